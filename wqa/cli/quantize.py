"""Quantize a run for int8, on questions of its development split.

example:
  wqa quantize runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa rank runs/wikiqa --precision int8 --question "how are glacier caves formed ?" \\
      --candidates sentences.txt

The 8-bit weights are written to int8.safetensors in the run directory. model.params does not
change. Labels are not read.
"""

from __future__ import annotations

import argparse
from typing import Any, Iterator

from wqa.cli.options import add_data, add_json, add_long_questions, add_number, show
from wqa.errors import check_range, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa quantize`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    add_data(parser, "questions to measure ranges on, JSONL, .csv or .tsv, or claims")
    add_number(parser, "--questions", 100, "number of questions to measure on")
    add_long_questions(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa quantize`` and print the name of the file."""
    from wqa.systems.quantize import quantize
    from wqa.text import naming_file

    check_range("questions", options.questions, 1)
    questions = _questions(options)
    with naming_file(options.data):
        pairs = quantize(options.run, questions, options.questions, options.long_questions)
    file = f"{options.run}/int8.safetensors"
    text = f"{printable(file)}: calibrated on {pairs} pairs; it ranks by --precision int8"
    show(text, {"file": file, "pairs": pairs}, options.json)


def _questions(options: argparse.Namespace) -> Iterator[Any]:
    """Questions to measure ranges on; for a run that labels claims these, with their evidence."""
    from wqa.data import Candidate, Question, read_claims, read_questions
    from wqa.systems.registry import run_kind

    if run_kind(options.run) != "labels":
        yield from read_questions(options.data)
        return
    for claim in read_claims(options.data, labelled=False):
        candidates = tuple(Candidate(text) for text in claim.evidence)
        yield Question(claim.id, claim.claim, candidates)
