"""Score the candidates of a corpus by a ranker, once, to teach other rankers.

examples:
  wqa score runs/electra_large --data data/wikiqa/train.jsonl --out scores/electra_large
  wqa train pairwise --encoder encoders/electra-base --train data/wikiqa/train.jsonl \\
      --out runs/student --teachers scores/electra_large --alpha 0.1 --tau 3 ...

RUN is whatever `wqa rank` takes: a run, a classifier, the file of a sequence, a baseline. The
folder holds a score, the log-odds of being an answer, and a key for each candidate, by which a
training finds it; candidates in other data have other keys. If the command is stopped, the same
command continues it, and writes the same bits.
"""

from __future__ import annotations

import argparse

from wqa.cli.options import add_filter, add_long_questions, add_ranking, ranking_options
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa score`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run directory, or another ranker")
    parser.add_argument(
        "--data", required=True, metavar="FILE", help="questions to score, canonical JSONL"
    )
    parser.add_argument("--out", required=True, metavar="PATH", help="folder to write")
    add_filter(parser, "--filter", "all", "questions to score")
    add_ranking(parser)
    add_long_questions(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa score`` and print the counts."""
    from wqa.inference import write_scores
    from wqa.text import note_long_questions

    meta = write_scores(
        options.run,
        options.data,
        options.out,
        options.filter,
        progress=True,
        **ranking_options(options),
    )
    note_long_questions(meta["truncated_questions"], meta["skipped_questions"], options.data)
    print(
        f"{printable(options.out)}: {meta['questions']:,} questions, {meta['pairs']:,} candidates, "
        f"{meta['blank']:,} blank, scored by {printable(options.run)} ({meta['system']})"
    )
