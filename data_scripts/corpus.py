"""Parts of all corpus scripts: splits written with their counts, and the command line."""

import argparse
import contextlib
import json
import os
import pathlib
import sys

import interrupts

from wqa.data import FILTERS, count, read_json, write_questions
from wqa.data.formats import to_line
from wqa.errors import DataError, WqaError, printable, shorten
from wqa.io.files import atomic_writer, scratch_folder
from wqa.io.lines import checked_utf8
from wqa.io.locks import lock_output
from wqa.io.streams import LossyStream, messages_on_stderr

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


def counted(questions, statistics, split):
    """Yield the questions and count them; a split without a question is an error."""
    for question in questions:
        statistics.add(question)
        yield question
    refuse_empty(split, statistics.totals["all"]["questions"])


def refuse_empty(split, count, name="question"):
    """Raise an error if the number of a split's questions, or of what ``name`` says, is zero."""
    if not count:
        raise DataError(
            f"split {split}", f"it holds no {name}", "at least one", "check that its file is whole"
        )


def write_split(out, split, questions):
    """Write a split one question at a time and return its counts."""
    statistics = Statistics()
    write_questions(out / f"{split}.jsonl", counted(questions, statistics, split))
    return statistics.figures()


def write_public(out, questions, is_dev):
    """Write the splits and the counts of a corpus whose test questions are not public.

    ``questions`` has the official training and development questions, by ``train`` and ``dev``, or
    one of the two. Development questions become the split test, training questions for which
    ``is_dev`` is true the split dev. Questions are written as they come, and no file has its name
    before all are whole. Returns the counts.
    """
    splits = []
    if "train" in questions:
        splits += ["train", "dev"]
    if "dev" in questions:
        splits.append("test")
    statistics = {split: Statistics() for split in splits}
    with contextlib.ExitStack() as stack:
        paths = {split: out / f"{split}.jsonl" for split in splits}
        opened = {split: stack.enter_context(atomic_writer(paths[split])) for split in splits}
        for question in questions.get("train", ()):
            split = "dev" if is_dev(question) else "train"
            _write_question(opened[split], question, statistics[split])
        for question in questions.get("dev", ()):
            _write_question(opened["test"], question, statistics["test"])
        for split in splits:
            refuse_empty(split, statistics[split].totals["all"]["questions"])
    stats = {split: statistics[split].figures() for split in splits}
    write_stats(out, stats)
    return stats


def _write_question(file, question, statistics):
    statistics.add(question)
    line = checked_utf8(to_line(question), f"question {shorten(question.id)}")
    file.write(line + "\n")


def write_stats(out, stats):
    """Write ``stats.json``."""
    with atomic_writer(out / "stats.json") as file:
        file.write(json.dumps(stats, indent=2) + "\n")


def show(stats):
    """Print the counts of every split and filter."""
    for split, filters in stats.items():
        for name, counts in filters.items():
            skipped = counts.get("without_candidates", 0)
            note = f"; {skipped} without a candidate skipped" if skipped else ""
            print(
                f"{split:20} {name:15} {counts['questions']:7,} questions  "
                f"{counts['candidates']:10,} candidates "
                f"({counts['candidates_per_question']:.1f} a question)  "
                f"{counts['correct']:7,} correct ({counts['correct_per_question']:.1f}){note}"
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
    with scratch_folder("corpus") as folder:
        return convert(fetch(folder), options.out)


def _has_counts(path):
    """Whether a file has what the scripts write to ``stats.json``: counts of each split."""
    try:
        counts = list(read_json(path).values())
        named = [{*value, *value.get("all", ())} for value in counts]
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    return any(names & {"questions", "documents", "claims", "examples"} for names in named)


@contextlib.contextmanager
def owned(out):
    """Refuse a folder whose files no script has written, and mark it meanwhile.

    The mark is a hidden file, which a killed script leaves; `stats.json` takes its place.
    """
    mark = out / ".wqa_data"
    stats = out / "stats.json"
    others = sorted(path.name for path in out.glob("*.jsonl")) if out.is_dir() else []
    others += [stats.name] if os.path.lexists(stats) else []
    if others and not mark.exists() and not _has_counts(stats):
        raise DataError(
            out,
            f"holds {shorten(others[0])}, and no stats.json with counts of a script",
            "a new folder, or one that a script has written",
            "move the file away, or choose another folder",
        )
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        if stats.exists() or not any(out.glob("*.jsonl")):
            mark.unlink()
        if is_new and not any(out.iterdir()):
            out.rmdir()


def run(work, out, show=show):
    """Call ``work``, print the counts that it returns by ``show``, and return the exit status.

    The folder ``out`` is locked meanwhile.
    """

    def locked():
        with lock_output(out), owned(out):
            stats = work()
        show(stats)

    return exit_status(locked)


def exit_status(work):
    """Call ``work`` and return the exit status of the script.

    An error becomes one line and the status 2, an interrupt one line and the status 130. A reader
    that closes its end of standard output is no error.
    """
    with writable_stderr():
        try:
            work()
            if sys.stdout is not None:
                sys.stdout.flush()
        except KeyboardInterrupt:
            print("interrupted; run the same command again", file=sys.stderr)
            return interrupts.INTERRUPTED
        except BrokenPipeError:
            discard(sys.stdout)
        except WqaError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            discard(sys.stdout)
            where = error.filename or "standard output"
            print(printable(f"error: {where}: {error}"), file=sys.stderr)
            return 2
    return 0


@contextlib.contextmanager
def writable_stderr():
    """Let notes and progress bars be lost where standard error is closed or full."""
    stderr = sys.stderr
    sys.stderr = LossyStream(stderr)
    try:
        with messages_on_stderr():
            yield
    finally:
        sys.stderr = stderr
        try:
            if stderr is not None:
                stderr.flush()
        except (OSError, ValueError):
            discard(stderr)  # the interpreter would try again, and fail


def discard(stream):
    """Send what a stream still holds, and all that follows, to the null device."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
