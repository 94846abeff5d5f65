"""Parts of all corpus scripts: splits written with their counts, and the command line."""

import argparse
import gzip
import json
import pathlib
import sys
import tempfile

from wqa.data import FILTERS, atomic_writer, count, write_questions
from wqa.errors import WqaError

COUNTS = ("questions", "candidates", "correct")


class Statistics:
    """Counts of a split under each filter."""

    def __init__(self):
        self.totals = {name: dict.fromkeys(COUNTS, 0) for name in FILTERS}

    def add(self, question):
        """Count a question."""
        counts = count([question])
        self.merge({name: counts for name, keeps in FILTERS.items() if keeps(question)})

    def merge(self, totals):
        """Add the totals of a part of the split."""
        for name, counts in totals.items():
            for key, value in counts.items():
                self.totals[name][key] += value

    def figures(self):
        """Counts by filter, with the averages that the papers' tables give."""
        return {name: self._with_averages(totals) for name, totals in self.totals.items()}

    @staticmethod
    def _with_averages(totals):
        questions = max(totals["questions"], 1)
        averages = {
            f"{key}_per_question": round(totals[key] / questions, 2)
            for key in ("candidates", "correct")
        }
        return {**totals, **averages}


def counted(questions, statistics):
    """Yield the questions and count them."""
    for question in questions:
        statistics.add(question)
        yield question


def open_bytes(path):
    """Open a file for reading bytes; a name in .gz is unpacked."""
    return gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb")


def write_split(out, split, questions):
    """Write a split one question at a time and return its counts."""
    statistics = Statistics()
    write_questions(out / f"{split}.jsonl", counted(questions, statistics))
    return statistics.figures()


def write_stats(out, stats):
    """Write ``stats.json``."""
    with atomic_writer(out / "stats.json") as file:
        file.write(json.dumps(stats, indent=2) + "\n")


def show(stats):
    """Print the counts of every split and filter."""
    for split, filters in stats.items():
        for name, counts in filters.items():
            print(
                f"{split:20} {name:15} {counts['questions']:7,} questions  "
                f"{counts['candidates']:10,} candidates "
                f"({counts['candidates_per_question']:.1f} a question)  "
                f"{counts['correct']:7,} correct ({counts['correct_per_question']:.1f})"
            )


def make_parser(doc):
    """Return a parser with the options of every script that reads an archive."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--archive", type=pathlib.Path, help="local copy instead of a download")
    return parser


def from_archive(options, fetch, convert):
    """Convert the local copy, or a download, and return the counts.

    ``fetch`` downloads to a folder and returns what ``convert`` reads.
    """
    if options.archive:
        return convert(options.archive, options.out)
    with tempfile.TemporaryDirectory() as folder:
        return convert(fetch(pathlib.Path(folder)), options.out)


def run(work):
    """Call ``work``, print the counts that it returns, and return the exit status.

    An error becomes one line and the exit status 2.
    """
    try:
        show(work())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
