"""Calibrate a run's probabilities, and whether it answers at all, on development questions.

examples:
  wqa calibrate runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa rank runs/wikiqa --question "how are glacier caves formed ?" --candidates sentences.txt \\
      --threshold

A temperature for each exit is fitted by maximum likelihood, with nothing dropped. The threshold is
the relevance of a first candidate from which on it answers its question, with the best F1 over the
questions: an answer is right if this candidate is. Both are written to calibration.json in the run
directory. Every command that ranks uses the temperatures; scores and order do not change. The table
has the negative log-likelihood (nll) and the expected calibration error (ece) of each exit, before
and after. Keep questions without an answer in the data: they teach the threshold.
"""

from __future__ import annotations

import argparse
import logging

from wqa.cli.options import add_data, add_json, add_ranking, ranking_options, show
from wqa.errors import printable

LOGGER = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa calibrate`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    add_data(parser, "labelled development questions, JSONL, .csv or .tsv")
    add_json(parser)
    add_ranking(parser, with_windows=False, with_pool=False)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa calibrate`` and print the figures."""
    from wqa.evaluation import table
    from wqa.evaluation.reliability import note_few_questions
    from wqa.text import note_long_questions
    from wqa.tuning import calibrate

    result = calibrate(options.run, options.data, progress=True, **ranking_options(options))
    best, counts = result.triggering, result.counts
    note_long_questions(counts["truncated_questions"], counts["skipped_questions"], options.data)
    for figures in result.exits:
        if figures.at_limit:
            LOGGER.warning(f"exit {figures.exit}: the temperature is at its limit")
    if counts["answerable"] == counts["questions"]:
        LOGGER.warning(f"{printable(options.data)}: every question has an answer")
    note_few_questions(counts["answerable"], recall=best.recall)
    lines = [
        f"{counts['questions']} questions, {counts['answerable']} with an answer; "
        f"{counts['candidates']} candidates, {counts['positives']} answers",
        table([figures._asdict() for figures in result.exits]),
        f"threshold {best.threshold:.3f}: answers {best.answered} questions, "
        f"precision {100 * best.precision:.2f}, recall {100 * best.recall:.2f}, "
        f"F1 {100 * best.f1:.2f}",
        f"stored in {printable(str(result.path))}",
    ]
    show("\n".join(lines), result.to_dict(), options.json)
