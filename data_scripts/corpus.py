"""What the corpus scripts beside this file share: splits written with their counts, and the way out
of an error."""

import argparse
import json
import pathlib
import sys
import tempfile

from wqa.data import FILTERS, atomic_writer, count, write_questions
from wqa.errors import WqaError


class Statistics:
    """The counts of one split under each filter, gathered one question at a time."""

    def __init__(self):
        self.totals = {name: {"questions": 0, "candidates": 0, "correct": 0} for name in FILTERS}

    def add(self, question):
        """Count a question."""
        found = count([question])
        for name, keeps in FILTERS.items():
            if keeps(question):
                for key, value in found.items():
                    self.totals[name][key] += value

    def merge(self, totals):
        """Add the totals of a part."""
        for name, counts in totals.items():
            for key, value in counts.items():
                self.totals[name][key] += value

    def figures(self):
        """Counts a filter, with the averages that the papers' tables give."""
        return {
            name: {
                **totals,
                **{
                    f"{key}_per_question": round(totals[key] / max(totals["questions"], 1), 2)
                    for key in ("candidates", "correct")
                },
            }
            for name, totals in self.totals.items()
        }


def counted(questions, statistics):
    """Pass questions through, counting them."""
    for question in questions:
        statistics.add(question)
        yield question


def write_split(out, split, questions):
    """Write one split, questions as they come, and give its counts."""
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
                ""
                f"({counts['candidates_per_question']:.1f} a question)  "
                f"{counts['correct']:7,} correct "
                f"({counts['correct_per_question']:.1f})"
            )


def make_parser(doc):
    """A parser with the options of every script that has an archive."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--archive", type=pathlib.Path, help="local copy instead of a download")
    return parser


def from_archive(options, fetch, convert):
    """Convert the local copy, or what ``fetch`` puts into a temporary folder; gives the counts."""
    if options.archive:
        return convert(options.archive, options.out)
    with tempfile.TemporaryDirectory() as folder:
        return convert(fetch(pathlib.Path(folder)), options.out)


def run(work):
    """Do the work, which gives the counts; an error becomes one line and the exit status 2."""
    try:
        show(work())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
