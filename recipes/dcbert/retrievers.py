#!/usr/bin/env python3
"""Figures of a retriever alone, beside the first retriever's order.

    python recipes/dcbert/retrievers.py FIRST.jsonl SECOND.jsonl METRICS OUT.json

Both files are the same questions with candidates, as `wqa retrieve` writes them. hit@N is the
second retriever's; pbt@N and ptb@N compare it with the first. With one file twice, it is the
retriever that the others are compared with.
"""

import json
import sys

from wqa.data import atomic_writer, read_questions
from wqa.errors import WqaError
from wqa.evaluation import evaluate


def beside(first, second):
    """Return a question's candidates of the second retriever, then those of the first alone.

    Each candidate has the rank that the first retriever gives it; one that the first does not
    retrieve comes after all others.
    """
    ranks = {candidate.id: rank for rank, candidate in enumerate(first.candidates)}
    candidates = []
    for candidate in second.candidates:
        rank = ranks.pop(candidate.id, len(first.candidates) + len(candidates))
        candidates.append(candidate._replace(rank=rank))
    for candidate in first.candidates:
        if candidate.id in ranks:
            candidates.append(candidate._replace(rank=ranks[candidate.id]))
    return second._replace(candidates=tuple(candidates))


def main(first, second, metrics, out):
    """Write the figures."""
    known = {question.id: question for question in read_questions(first)}
    questions = []
    for question in read_questions(second):
        nothing = question._replace(candidates=())
        questions.append(beside(known.get(question.id, nothing), question))
    orders = [range(len(question.candidates)) for question in questions]
    figures = evaluate(orders, questions, metrics=metrics.split(","))
    with atomic_writer(out) as file:
        file.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
