"""Rank candidate sentences for one question.

examples:
  wqa rank minilm --question "how are glacier caves formed ?" --candidates sentences.txt
  wqa rank runs/wikiqa --question "how are glacier caves formed ?" --candidates sentences.txt
  grep -i ice notes.txt | wqa rank minilm --question "how are glacier caves formed ?" --candidates -

Candidates are read one a line. Lines of a file that ends in .jsonl or .jsonl.gz are JSON objects,
the candidates of canonical JSONL: {"text": ..., "id": ..., "meta": {...}}; --json writes their
fields. The table shows rank, score (log-odds of being an answer), the layer at which the candidate
was last scored, and the sentence. --drop-ratio or --keep drops candidates at each exit. --json
writes all fields. --threshold says "none of these" in place of the table where the relevance of the
first candidate is below the threshold that `wqa calibrate` stored in the run, or below a number.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Union

from wqa.cli.options import add_drops, add_json, add_number, add_ranking, ranking_options, show
from wqa.data import Candidate
from wqa.data import read_candidates as read_records
from wqa.data.folders import OFFICE
from wqa.data.tables import TABLES, suffix_of
from wqa.errors import DataError, InputError, OptionError, printable, shorten

#: Options that ``--help`` explains.
FIRST = ("drops", "top_k", "threshold", "json", "precision", "long_candidates")
_WIDTH = 300  # characters of a sentence that the table shows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa rank`` to its parser."""
    text = "run directory, .json file, or a name such as minilm or wo+rr"
    parser.add_argument("run", metavar="RUN", help=text)
    parser.add_argument("--question", required=True, metavar="Q", help="the question")
    text = "candidates, one a line; - for standard input; give it again for another file"
    keywords: Dict[str, Any] = {"required": True, "action": "append", "metavar": "FILE"}
    parser.add_argument("--candidates", help=text, **keywords)
    add_drops(parser)
    add_number(parser, "--top-k", None, "show the first K only (default: all)", "K")
    text = 'say "none of these" where the relevance of the first is below X, 0 to 1 (without X: '
    text += "below the threshold of the calibrated run)"
    parser.add_argument("--threshold", nargs="?", const="", metavar="X", help=text)
    add_json(parser)
    # A cache is for the documents of a collection.
    add_ranking(parser, with_cache=False, long_questions=("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa rank`` and print the ranking."""
    if options.top_k is not None and options.top_k < 1:
        raise OptionError("top_k", options.top_k, "a whole number from 1")
    question = utf8_argument(options.question)
    candidates = [one for path in options.candidates for one in read_candidates(path)]
    keywords = ranking_options(options)
    threshold = threshold_of(options.threshold)
    # MXNet takes a second to load, longer than the errors above need.
    from wqa.data import Question
    from wqa.systems.load import load_ranker
    from wqa.text import note_long_questions

    ranker = load_ranker(options.run, **keywords)
    ranking = ranker.rank(question, candidates, options.top_k, return_documents=True)
    if options.long_questions == "truncate":
        note_long_questions(ranker.prepare([Question("", question, ())]).truncated, 0)
    rows = ranking.to_dicts()
    result: Dict[str, Any] = {"question": question, "cost": ranking.cost.relative, "ranking": rows}
    has_exits = ranker.capabilities.has_exits
    text = ranking_table(rows, ranking.cost.relative, has_exits)
    if options.threshold is not None:
        if threshold is None:
            threshold = ranking.threshold
        result.update(answered=ranking.answered(threshold), threshold=threshold)
        first = rows[0]
        if first["blank"]:
            text = "none of these: no candidate has text"
        elif not result["answered"]:
            text = f"none of these: the relevance of the first, {first['relevance']:.4f}, is below "
            text += f"{threshold:.4f}"
    show(text, result, options.json)


def threshold_of(text: Optional[str]) -> Optional[float]:
    """Read the threshold that the command line gives."""
    if not text:
        return None
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise OptionError("threshold", shorten(text), "a number from 0 to 1")


def read_candidates(path: str) -> Sequence[Union[str, Candidate]]:
    """Read candidates, one a line."""
    suffix = suffix_of(path)
    if suffix == ".jsonl":
        return read_records(path)
    if suffix in (*TABLES, *OFFICE):
        hint = "`wqa index` and `wqa ask` read tables" if suffix in TABLES else "convert it to text"
        raise DataError(path, f"is a {suffix} file", "candidates, one a line", hint)
    lines = read_lines(path)
    if not lines:
        name = "standard input" if path == "-" else path
        raise InputError(name, "the candidate list is empty", "at least one candidate, one a line")
    return lines


def read_lines(path: str) -> List[str]:
    """Read texts, one a line, from a file or from standard input."""
    from wqa.io.lines import bounded_lines, decoded_lines, open_bytes

    name = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        raise DataError(name, "it is closed", "texts, one a line")
    with contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if path == "-" else stack.enter_context(open_bytes(path))
        lines = decoded_lines(bounded_lines(file, name), name)
        return [line.rstrip("\n").rstrip("\r") for _, line in lines]


def utf8_argument(text: str, name: str = "question") -> str:
    """Decode an argument as the UTF-8 that was typed, in a locale of any encoding."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise InputError(name, shorten(text), "UTF-8 text") from None


def ranking_table(rows: List[Dict[str, Any]], cost: float, has_exits: bool = True) -> str:
    """Format a ranking for a terminal, with exits and cost of a ranker that has them."""
    lines = [f"rank    score{'  exit' if has_exits else ''}  sentence"]
    for row in rows:
        score = "-" if row["score"] is None else f"{row['score']:.3f}"
        sentence = row["text"]
        if row.get("window"):
            sentence = sentence[slice(*row["window"])]
        if len(sentence) > _WIDTH:
            sentence = sentence[: _WIDTH - 3] + "..."
        text = " ".join([*_notes(row), printable(sentence)])
        exit_ = f" {row['exit']:5}" if has_exits else ""
        lines.append(f"{row['rank']:4} {score:>8}{exit_}  {text}")
    if has_exits:
        lines.append(f"cost {100 * cost:.0f} % of the full encoder")
    return "\n".join(lines)


def _notes(row: Dict[str, Any]) -> List[str]:
    if row["blank"]:
        return ["(blank)"]
    notes = []
    if row["truncated"]:
        notes.append("(shortened)")
    if row.get("window"):
        start, end = row["window"]
        notes.append(f"(characters {start:,} to {end:,})")
    if row["dropped"]:
        notes.append(f"(dropped at exit {row['exit']})")
    return notes
