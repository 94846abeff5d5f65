"""Time a run at several drop ratios.

examples:
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl --latency 200

Each round runs each drop ratio once, so that changes of the machine's speed affect all ratios. The
table holds medians over the rounds: seconds, and seconds over those of ratio 0 in the same round;
deviation is that of the seconds over the rounds. cost counts each candidate alike, token_cost
weights candidates by their tokens; both are over the cost of the full encoder.

--latency N ranks N questions one by one, from text to ranking. The table holds the median and the
99th percentile of the milliseconds, and those of the first call, which compiles.
"""

from __future__ import annotations

import argparse
from typing import Any

from wqa.cli.options import (
    add_data,
    add_drops,
    add_json,
    add_number,
    add_ranking,
    ranking_options,
    settings_by_name,
    show,
)
from wqa.errors import OptionError

_DEFAULT = {str(ratio): {"drop_ratio": ratio} for ratio in (0.3, 0.4, 0.5)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa bench`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    add_data(parser, "questions to rank, JSONL, .csv or .tsv")
    add_drops(parser, "; give it once for each row; 0, 0.3, 0.4 and 0.5 by default")
    add_number(parser, "--rounds", 5, "rounds that count, after one to warm up")
    text = "time N questions one by one instead"
    parser.add_argument("--latency", dest="count", type=int, metavar="N", help=text)
    add_json(parser)
    add_ranking(parser, with_windows=False)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa bench`` and print a table of times."""
    from wqa.data import read_questions
    from wqa.evaluation import table
    from wqa.inference.timing import ranks_at_drops, time_latency, time_rankers
    from wqa.systems.load import load_ranker
    from wqa.text import note_long_questions

    settings = settings_by_name(options.drop_rows, options.run)
    questions = list(read_questions(options.data))
    if not questions:
        raise OptionError("data", f"{options.data}, which has no question", "at least one")
    ranker = load_ranker(options.run, **ranking_options(options))
    prepared = ranker.prepare(questions)
    note_long_questions(prepared.truncated, prepared.skipped, options.data)
    if not settings and ranker.capabilities.stages > 1:
        settings = _DEFAULT
    settings = {"0": {"drop_ratio": 0.0}, **settings}  # the first is what others are compared with
    ranks = ranks_at_drops(ranker, settings)
    measure: Any = time_rankers
    count = options.rounds
    if options.count is not None:
        measure, count = time_latency, options.count
    rows = measure(ranks, prepared.questions, count, column="drop_ratio")
    show(table(rows), rows, options.json)
