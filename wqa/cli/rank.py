"""Rank candidate sentences for one question.

examples:
  wqa rank runs/wikiqa --question "how are glacier caves formed ?" --candidates sentences.txt
  grep -i glacier notes.txt | wqa rank runs/wikiqa --question "how are glacier caves formed ?"
  --candidates -

Candidates come one a line. The table shows rank, score (log-odds of being an answer), the layer at
which the candidate was last scored, and the sentence; a drop ratio above 0 discards the lowest part
at each exit. --json prints the same with every field.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any, Dict, List

from wqa.cli.options import add_ranking, drop_ratio, ranking_options
from wqa.errors import DataError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--question", required=True, metavar="Q", help="the question")
    parser.add_argument(
        "--candidates",
        required=True,
        metavar="FILE",
        help="candidates, one a line; - for standard input",
    )
    parser.add_argument(
        "--drop-ratio",
        metavar="A",
        help="one number, one an exit separated by commas, or tuned (default: 0)",
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="show the first K only (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Rank as the options say, and print.

    Parameters
    ----------
    options : argparse.Namespace
    """
    from wqa.inference import load_ranker

    candidates = read_candidates(options.candidates)
    ratio = drop_ratio(options.drop_ratio, options.run) if options.drop_ratio is not None else None
    ranker = load_ranker(options.run, ratio, progress=True, **ranking_options(options))
    ranking = ranker.rank(options.question, candidates)
    rows = [
        _row(place, index, ranking, candidates)
        for place, index in enumerate(ranking.order.tolist(), 1)
    ]
    rows = rows[: options.top_k] if options.top_k > 0 else rows
    if options.json:
        print(
            json.dumps(
                {"question": options.question, "cost": ranking.cost.relative, "ranking": rows},
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        _print(rows, ranking)


def read_candidates(path: str) -> List[str]:
    """Read candidates, one a line.

    Parameters
    ----------
    path : str
        A file, or ``-`` for standard input.

    Returns
    -------
    list of str

    Raises
    ------
    DataError
        If it cannot be read or is not UTF-8.
    InputError
        If it holds no line.
    """
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
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
    lines = lines[:-1] if not lines[-1] else lines
    if not lines:
        raise InputError(name, "the candidate list is empty", "at least one candidate, one a line")
    return lines


def _row(place: int, index: int, ranking: Any, candidates: List[str]) -> Dict[str, Any]:
    score = float(ranking.scores[index])
    return {
        "rank": place,
        "index": index,
        "score": None if math.isinf(score) else score,
        "exit": int(ranking.exits[index]),
        "truncated": bool(ranking.truncated[index]),
        "blank": bool(ranking.blank[index]),
        "sentence": candidates[index],
    }


def _print(rows: List[Dict[str, Any]], ranking: Any) -> None:
    print("rank    score  exit  sentence")
    for row in rows:
        dropped = not row["blank"] and math.isnan(ranking.exit_scores[-1, row["index"]])
        notes = [
            text
            for shown, text in (
                (row["blank"], "(blank)"),
                (row["truncated"], "(shortened)"),
                (dropped, f"(dropped at exit {row['exit']})"),
            )
            if shown
        ]
        score = "       -" if row["score"] is None else f"{row['score']:8.3f}"
        sentence = row["sentence"] if len(row["sentence"]) <= 300 else row["sentence"][:297] + "..."
        print(f"{row['rank']:4} {score} {row['exit']:5}  " + " ".join([*notes, sentence]))
    print(f"cost {100 * ranking.cost.relative:.0f} % of the full encoder")
