"""Rank candidate sentences for one question.

examples:
  wqa rank runs/wikiqa --question "how are glacier caves formed ?" --candidates sentences.txt
  grep -i glacier notes.txt | wqa rank runs/wikiqa --question "how are glacier caves formed ?" \\
      --candidates -

Candidates are read one a line. The table shows rank, score (log-odds of being an answer), the layer
at which the candidate was last scored, and the sentence. --drop-ratio or --keep drops candidates at
each exit. --json writes all fields.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, List

from wqa.cli.drops import add_drops, one_drop_setting
from wqa.cli.options import add_long_questions, add_ranking, ranking_options
from wqa.cli.output import add_json, show
from wqa.errors import DataError, InputError, OptionError, printable, shorten

_WIDTH = 300  # characters of a sentence that the table shows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa rank`` to its parser."""
    parser.add_argument(
        "run", metavar="RUN", help="run directory, .json file, or a baseline such as wo+rr"
    )
    parser.add_argument("--question", required=True, metavar="Q", help="the question")
    parser.add_argument(
        "--candidates",
        required=True,
        metavar="FILE",
        help="candidates, one a line; - for standard input",
    )
    add_drops(parser)
    parser.add_argument(
        "--top-k", type=int, metavar="K", help="show the first K only (default: all)"
    )
    add_json(parser)
    add_ranking(parser, with_cache=False)  # a cache knows documents by ids
    add_long_questions(parser, ("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa rank`` and print the ranking."""
    if options.top_k is not None and options.top_k < 1:
        raise OptionError("top_k", options.top_k, "a whole number from 1")
    question = utf8_argument(options.question)
    candidates = read_candidates(options.candidates)
    setting = one_drop_setting(options.drops)
    # MXNet takes a second to load, longer than the errors above need.
    from wqa.data import Question
    from wqa.inference import load_ranker
    from wqa.text import note_long_questions

    ranker = load_ranker(
        options.run, progress=True, **setting.arguments, **ranking_options(options)
    )
    ranking = ranker.rank(question, candidates, options.top_k, return_documents=True)
    if options.long_questions == "truncate":
        note_long_questions(ranker.prepare([Question("", question, ())]).truncated, 0)
    rows = ranking.to_dicts()
    result = {"question": question, "cost": ranking.cost.relative, "ranking": rows}
    show(_table(rows, ranking.cost.relative), result, options.json)


def read_candidates(path: str) -> List[str]:
    """Read candidates, one a line.

    Parameters
    ----------
    path : str
        A file, or ``-`` for standard input.

    Returns
    -------
    list of str
        The candidates in their order.

    Raises
    ------
    DataError
        If it cannot be read or is not UTF-8.
    InputError
        If it holds no line.
    """
    lines = read_lines(path, "candidates")
    if not lines:
        name = "standard input" if path == "-" else path
        raise InputError(name, "the candidate list is empty", "at least one candidate, one a line")
    return lines


def read_lines(path: str, what: str) -> List[str]:
    """Read texts, one a line.

    Parameters
    ----------
    path : str
        A file, or ``-`` for standard input.
    what : str
        What the texts are, for errors.

    Returns
    -------
    list of str
        The texts in their order; an empty file has none.

    Raises
    ------
    DataError
        If it cannot be read or is not UTF-8.
    """
    name = path
    try:
        if path == "-":
            name = "standard input"
            if sys.stdin is None:
                raise DataError(name, "it is closed", f"{what}, one a line")
            raw = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                raw = file.read()
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", mend="check the path") from None
    lines = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            lines.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}",
                f"byte {error.start} is not UTF-8",
                "UTF-8 text",
                "convert the file, for example with iconv",
            ) from None
    if not lines[-1]:
        lines.pop()
    return lines


def utf8_argument(text: str, name: str = "question") -> str:
    """Decode an argument as the UTF-8 that was typed, in a locale of any encoding.

    Parameters
    ----------
    text : str
        Text of the argument.
    name : str
        Name of the argument, for errors.

    Returns
    -------
    str
        The text that was typed.

    Raises
    ------
    InputError
        If it is not UTF-8.
    """
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise InputError(name, shorten(text), "UTF-8 text") from None


def _table(rows: List[Dict[str, Any]], cost: float) -> str:
    lines = ["rank    score  exit  sentence"]
    for row in rows:
        score = "-"
        if row["score"] is not None:
            score = f"{row['score']:.3f}"
        text = " ".join([*_notes(row), printable(_shortened(row["text"]))])
        lines.append(f"{row['rank']:4} {score:>8} {row['exit']:5}  {text}")
    lines.append(f"cost {100 * cost:.0f} % of the full encoder")
    return "\n".join(lines)


def _notes(row: Dict[str, Any]) -> List[str]:
    if row["blank"]:
        return ["(blank)"]
    notes = []
    if row["truncated"]:
        notes.append("(shortened)")
    if row["dropped"]:
        notes.append(f"(dropped at exit {row['exit']})")
    return notes


def _shortened(sentence: str) -> str:
    if len(sentence) <= _WIDTH:
        return sentence
    return sentence[: _WIDTH - 3] + "..."
