"""Output of subcommands, and messages of the library's errors."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from typing import Any, Dict, Mapping, Sequence

from wqa.errors import UNPRINTABLE, OptionError, WqaError

LOGGER = logging.getLogger(__name__)

#: Figures that are shown in a line above the table.
_ABOVE = ("questions", "filter", "truncated_questions", "skipped_questions")
#: An argument with its value, as Python takes it: ``ctx="cpu"``, ``picture=False``.
_ARGUMENT = re.compile(r"""(?<![\w./'"-])([a-z]\w*)=("[^"]*"|'[^']*'|[^\s,;)]+)""")
#: A name of several words, which does not occur in ordinary text.
_LONG_NAME = re.compile(r"""(?<![\w./'"-])[a-z]\w*_\w+(?![\w/'"-])""")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=_output_file,
        help="write the result as JSON too; - for standard output instead of the table",
    )


def _output_file(path: str) -> str:
    """A name that a file can be written to at the end, or ``-``."""
    if os.path.isdir(path):
        raise OptionError("--json", f"{path}, a folder", "the name of a file, or -")
    return path


def show(text: str, value: Any, path: str) -> None:
    """Print a result as text, or write it as JSON, or both."""
    document = _document(value)
    if path == "-":
        try:
            document.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            document = json.dumps(value, indent=2) + "\n"
        sys.stdout.write(document)
        return
    # The file first: a reader of standard output may close it.
    if path:
        from wqa.io.files import atomic_writer  # needs NumPy, which `wqa doctor` may find missing

        with atomic_writer(path) as file:
            file.write(document)
    print(text)


def _document(value: Any) -> str:
    """A value as JSON, with an escape for each character that must not reach a terminal."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    lines = [UNPRINTABLE.sub(_escape, line) for line in text.split("\n")]
    return "\n".join(lines) + "\n"


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def figures_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the rows of an evaluation."""
    from wqa.evaluation import table

    cells = []
    for row in rows:
        cells.append({name: value for name, value in row.items() if name not in _ABOVE})
    first = rows[0]
    title = f"{first['questions']} questions scored, filter {first['filter']}"
    if first.get("skipped_questions"):
        title += f", {first['skipped_questions']} over-long left out"
    return f"{title}\n{table(cells)}"


def note_long_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print on standard error how many over-long questions were truncated or skipped."""
    from wqa.text import note_long_questions

    names = ("truncated_questions", "skipped_questions")
    counts = [[row[name] for name in names] for row in rows if all(name in row for name in names)]
    if counts:
        # Runs of different lengths truncate different questions.
        note_long_questions(*map(max, zip(*counts)))


def note_omissions(row: Mapping[str, Any]) -> None:
    """Print on standard error how many questions of a TREC run or its judgements do not count."""
    if row.get("missing"):
        text = "judged questions are not in the run and are left out of the mean"
        LOGGER.warning(f"{row['missing']} {text}")
    if row.get("unjudged"):
        LOGGER.warning(f"{row['unjudged']} questions of the run have no judgement and do not count")


def at_the_command_line(error: WqaError, parser: argparse.ArgumentParser) -> str:
    """Message of an error, with flags in place of arguments.

    If the error's ``where`` is an option, such as ``learning_rate``, it becomes the flag
    ``--learning-rate``, and so does each name of several words in the message. In all errors
    ``ctx="cpu"`` becomes ``--ctx cpu``.
    """
    flags = _flags(parser)
    names = error.where.split(" and ")
    is_option = all(name in flags for name in names)

    def reworded(text: str) -> str:
        text = _ARGUMENT.sub(lambda match: _as_flag(match, flags), text)
        if is_option:
            text = _LONG_NAME.sub(lambda match: flags.get(match[0], match[0]), text)
        return text

    where = error.where
    if is_option:
        where = " and ".join(flags[name] for name in names)
    parts = map(reworded, (error.found, error.expected, error.mend))
    return str(WqaError(where, *parts))


def with_flags(text: str, parser: argparse.ArgumentParser) -> str:
    """A message that the library logs, with flags in place of arguments such as ``ctx="cpu"``."""
    flags = _flags(parser)
    return _ARGUMENT.sub(lambda match: _as_flag(match, flags), text)


def _flags(parser: argparse.ArgumentParser) -> Dict[str, str]:
    """Flag of each option, or metavar of a positional argument, by the library's names."""
    flags = {}
    for action in parser._actions:  # argparse has no public list of them
        flags[action.dest] = str(action.metavar)
        for flag in reversed(action.option_strings):
            flags[action.dest] = flag
            flags[flag.lstrip("-").replace("-", "_")] = flag
    if "ranker" in flags:  # what the library calls a run
        flags.setdefault("run", flags["ranker"])
    return flags


def _as_flag(match: re.Match[str], flags: Dict[str, str]) -> str:
    name, value = match.groups()
    if name not in flags:
        return match[0]
    if value in ("True", "False"):
        return flags[name]
    value = value.strip("\"'")
    return f"{flags[name]} {value}"
