"""Retrieve documents for questions, as candidates to rank.

examples:
  wqa index documents.jsonl --out indexes/squad
  wqa retrieve indexes/squad --data dev.questions.jsonl --out dev.jsonl --top 80
  wqa evaluate rr --data dev.jsonl --metrics hit@1,hit@10

The questions are canonical JSONL, without candidates; those that they have are replaced. The
candidates are in the order of the index's scores. Where a question has answers, a candidate's label
is 1 if the document's text, without its title, contains an answer exactly: its words in a row,
without regard to case. Questions that retrieve nothing are left out, and counted.
"""

from __future__ import annotations

import argparse
import logging

from wqa.cli.options import add_data, add_number
from wqa.errors import printable

LOGGER = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa retrieve`` to its parser."""
    parser.add_argument("index", metavar="INDEX", help="folder that `wqa index` wrote")
    add_data(parser, "questions, JSONL, .csv or .tsv; they need no candidates")
    text = "canonical JSONL to write, plain or .gz"
    parser.add_argument("--out", required=True, metavar="PATH", help=text)
    add_number(parser, "--top", 80, "documents a question")


def run(options: argparse.Namespace) -> None:
    """Run ``wqa retrieve`` and print the counts."""
    from wqa.retrieval import write_retrieved

    counts = write_retrieved(options.index, options.data, options.out, options.top, progress=True)
    total = counts["questions"] + counts["without"]
    if counts["without"]:
        note = f"{counts['without']:,} of {total:,} questions retrieve no document and are left out"
        LOGGER.warning(f"{note} (`wqa evaluate --total {total}` counts them as 0)")
    if counts["missed"]:
        LOGGER.warning(f"{counts['missed']:,} questions retrieve no document with an answer")
    if counts["unknown"]:
        note = f"{counts['unknown']:,} questions have no answers"
        LOGGER.warning(f"{note}, so their candidates have no labels")
    candidates = f"{counts['candidates']:,} candidates, {counts['positives']:,} of them"
    made = f"{printable(options.out)}: {counts['questions']:,} questions"
    print(f"{made}, {candidates} with an answer")
