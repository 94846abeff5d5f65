#!/usr/bin/env python3
"""Figures of a retriever alone, beside the first retriever's order.

    python recipes/dcbert/retrievers.py FIRST.jsonl SECOND.jsonl METRICS OUT.json [--total N]

Both files are the same questions with candidates, as `wqa retrieve` writes them, which leaves out
questions that retrieve nothing. hit@N is the second retriever's; pbt@N and ptb@N compare it with
the first. With one file twice, it is the retriever that the others are compared with. Figures are
shares of the --total questions, by default of those that either retrieves documents for.
"""

import argparse

from wqa.data import Candidate, read_questions
from wqa.errors import run_script
from wqa.evaluation import evaluate
from wqa.io.files import write_json

#: Metrics that compare the second retriever with the first.
COMPARED = ("pbt@", "ptb@")


def beside(first, second, behind):
    """Return a question's candidates of the second retriever, then those of the first alone.

    Each candidate has the rank that the first retriever gives it; one that the first does not
    retrieve comes after all others. ``behind`` blank candidates stand before those of the first
    alone, so that these never count among the second retriever's first ``behind``.
    """
    ranks = {candidate.id: rank for rank, candidate in enumerate(first.candidates)}
    last = len(first.candidates) + len(second.candidates) + behind
    candidates = []
    for candidate in second.candidates:
        rank = ranks.pop(candidate.id, last)
        candidates.append(candidate._replace(rank=rank))
    candidates += [Candidate("", 0, rank=last)] * behind
    for candidate in first.candidates:
        if candidate.id in ranks:
            candidates.append(candidate._replace(rank=ranks[candidate.id]))
    return second._replace(candidates=tuple(candidates))


def figures_of(questions, metrics, total):
    """Metrics of the questions' candidates as they stand."""
    orders = [range(len(question.candidates)) for question in questions]
    return evaluate(orders, questions, metrics=metrics, total=total)


def main(options):
    """Write the figures."""
    first, second = (
        {question.id: question for question in read_questions(path)}
        for path in (options.first, options.second)
    )
    metrics = options.metrics.split(",")
    compared = [name for name in metrics if name.startswith(COMPARED)]
    behind = max((int(name.partition("@")[2]) for name in compared), default=0)
    both = []
    for key, question in {**first, **second}.items():
        nothing = question._replace(candidates=())
        both.append(beside(first.get(key, nothing), second.get(key, nothing), behind))
    total = options.total or len(both)
    own = [name for name in metrics if name not in compared]
    figures = figures_of(list(second.values()), own, total)
    figures.update(figures_of(both, compared, total))
    write_json(options.out, figures)


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("first", "second", "metrics", "out"):
        parser.add_argument(name)
    parser.add_argument("--total", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
