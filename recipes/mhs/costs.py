#!/usr/bin/env python3
"""Count the parameters of rankers, and time them in turn.

    python recipes/mhs/costs.py QUESTIONS.jsonl RUN ...

Each row has a ranker's parameters, the median of its seconds per 1,000 candidates, from text to
ranking, and that time over the first ranker's. A RUN is a run directory or the file of an ensemble.
The variable QUESTIONS limits the questions, all by default, and ROUNDS is the number of rounds.
"""

import math
import os
import pathlib
import sys

from wqa.data import read_questions
from wqa.errors import run_script
from wqa.evaluation import table
from wqa.inference.timing import time_rankers
from wqa.systems.load import load_ranker

ROUNDS = int(os.environ.get("ROUNDS", "5"))
MOST = int(os.environ.get("QUESTIONS", "0")) or None


def parameters_of(ranker):
    """Number of parameters that a ranker computes with, or all rankers inside it."""
    if ranker.capabilities.rankers:
        return sum(map(parameters_of, ranker.capabilities.rankers))
    parameters = {}
    for stage in ranker.network.stages():  # layers above the last exit are in none
        parameters.update(stage.collect_params())
    return sum(math.prod(parameter.shape) for parameter in parameters.values())


def open_ranker(run):
    """Open a run, named by its last two folders, as seeds differ in the last one."""
    path = pathlib.Path(run)
    return f"{path.parent.name}/{path.name}", load_ranker(run)


def main(data, *arguments):
    """Print the table."""
    questions = list(read_questions(data))[:MOST]
    rankers = dict(map(open_ranker, arguments))
    ranks = {}
    for name, ranker in rankers.items():
        ranks[name] = lambda group, ranker=ranker: list(ranker.rank_all(group))
    rows = []
    for row in time_rankers(ranks, questions, ROUNDS):
        thousands = sum(len(question.candidates) for question in questions) / 1000
        rows.append(
            {
                "ranker": row["ranker"],
                "parameters": f"{parameters_of(rankers[row['ranker']]):,}",
                "seconds per 1,000": row["seconds"] / thousands,
                "over the first": row["time_ratio"],
            }
        )
    print(table(rows))


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
