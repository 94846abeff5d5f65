"""Score the candidates of a corpus by a ranker: to teach others, or on many machines.

examples:
  wqa score runs/electra_large --data data/wikiqa/train.jsonl --out scores/electra_large
  wqa train pairwise --encoder encoders/electra-base --train data/wikiqa/train.jsonl \\
      --out runs/student --teachers scores/electra_large --alpha 0.1 --tau 3 ...
  wqa score runs/cascade --data data/asnq/test.jsonl --out runs/asnq --format trec --ctx gpu:0-7
  wqa score runs/cascade --data data/asnq/test.jsonl --out runs/asnq --format trec --shard 3/64
  wqa score runs/cascade --data data/asnq/test.jsonl --out runs/asnq --cluster local:2

RUN is whatever `wqa rank` takes: a run, a classifier, the file of a sequence, a baseline. The
folder holds a score, the log-odds of being an answer, and a key for each candidate, by which a
training finds it; candidates in other data have other keys. If the command is stopped, the same
command continues it, and writes the same bits.

The questions are scored in partitions, which wait in OUT.partitions until all are scored. --shard,
--cluster, and several devices of --ctx divide them between processes; whoever scores the last one
merges them. Shards may run in any order, at once, on any machines that share the folder and have
the same --threads.
"""

from __future__ import annotations

import argparse
from typing import Any

from wqa.cli.options import (
    add_choice,
    add_data,
    add_filter,
    add_json,
    add_partitions,
    add_ranking,
    ranking_options,
    show_parts,
    values_of,
)
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa score`` to its parser."""
    from wqa.data.partitions import PARTITION_TOKENS

    parser.add_argument("run", metavar="RUN", help="run directory, or another ranker")
    add_data(parser, "questions to score, JSONL, .csv or .tsv")
    parser.add_argument("--out", required=True, metavar="PATH", help="folder to write")
    text = "logits, arrays for `wqa train --teachers`; jsonl, scores and order of each question; "
    text += "trec, a run"
    add_choice(parser, "--format", ("logits", "jsonl", "trec"), text)
    add_partitions(parser, "score", "scored", "questions", PARTITION_TOKENS)
    add_filter(parser, "--filter", "all", "questions to score")
    add_ranking(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa score`` and print the counts."""
    from wqa.systems.scores import ScoringTask
    from wqa.text import note_long_questions

    keywords = ranking_options(options)
    if options.cluster is not None:
        options.threads = keywords["threads"] = 1 if options.threads is None else options.threads
    if "cache" in keywords:
        keywords["cache"] = str(keywords["cache"].path)  # other processes open it by themselves
    given = values_of(options, "run", "data", "out", "filter", "partition_tokens")

    def describe(report: Any) -> str:
        meta = report.meta
        note_long_questions(meta["truncated_questions"], meta["skipped_questions"], options.data)
        counts = f"{meta['questions']:,} questions, {meta['pairs']:,} candidates"
        run = f"{printable(options.run)} ({meta['system']})"
        return f"{printable(options.out)}: {counts}, {meta['blank']:,} blank, scored by {run}"

    task = ScoringTask(output=options.format, options=keywords, **given)
    show_parts(options, task, describe)
