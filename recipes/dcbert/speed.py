#!/usr/bin/env python3
"""Time rankers in turn, from text to ranking, document caches included.

    python recipes/dcbert/speed.py QUESTIONS.jsonl OUT.json NAME=RUN[;OPTION=VALUE...] ...

Options are those of `wqa.load_ranker`: cache, precision, drop_ratio. With the option top,
RUN is an index, which retrieves so many documents. Each row has the questions that a ranker ranks
in a second, the median over ROUNDS rounds, and its speedup over the first ranker in the same round.
CTX is the device. QUESTIONS limits the number of questions, all by default.
"""

import functools
import os
import pathlib
import sys
import types

import numpy as np

from wqa.data import read_questions
from wqa.errors import run_script
from wqa.evaluation import table
from wqa.inference.dropping import FREE
from wqa.inference.timing import time_rankers
from wqa.io.files import write_json
from wqa.retrieval import Index, retrieve
from wqa.systems.load import load_ranker

ROUNDS = int(os.environ.get("ROUNDS", "5"))
MOST = int(os.environ.get("QUESTIONS", "0")) or None


def opened(text):
    """Load a ranker; returns its name and what ranks questions."""
    name, _, rest = text.partition("=")
    run, *settings = rest.split(";")
    given = dict(setting.split("=", 1) for setting in settings)
    if "top" in given:
        return name, functools.partial(search, Index(run), int(given["top"]))
    options = {"ctx": os.environ.get("CTX", "cpu"), "long_questions": "truncate", **given}
    if "drop_ratio" in options:
        options["drop_ratio"] = float(options["drop_ratio"])
    ranker = load_ranker(pathlib.Path(run), **options)
    return name, lambda questions: list(ranker.rank_all(questions))


def search(index, top, questions):
    """Retrieve documents; returns them as rankings that cost no layer. No label is looked for."""
    rankings, asked = [], (question._replace(answers=()) for question in questions)
    for question in retrieve(index, asked, top):
        blank = np.zeros(len(question.candidates), bool)
        rankings.append(types.SimpleNamespace(blank=blank, cost=FREE))
    return rankings


def main(data, out, *rankers):
    """Print the table and write it as JSON."""
    questions = list(read_questions(data))[:MOST]
    ranks = dict(map(opened, rankers))
    rows = []
    for row in time_rankers(ranks, questions, ROUNDS):
        rows.append(
            {
                "ranker": row["ranker"],
                "questions_per_second": len(questions) / row["seconds"],
                "speedup": 1 / row["time_ratio"],
                "seconds": row["seconds"],
                "deviation": row["deviation"],
            }
        )
    write_json(out, rows)
    print(table(rows))


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
