#!/usr/bin/env python3
"""Write questions with the first k candidates of a ranker, for a joint model to re-rank.

    python recipes/mspp/first.py RUN --keep 5 --questions QUESTIONS.jsonl FILTER OUT.jsonl ...

As a ranker gets them behind another one in a sequence, the candidates that are left stand in their
original order. A question without a positive among them stays: it counts 0 under the filter `all`.
"""

import argparse
import itertools
import pathlib

from wqa.data import filter_questions, read_questions, write_questions
from wqa.errors import run_script
from wqa.systems.load import load_ranker


def first_of(question, ranking, keep):
    """The question with the first candidates of a ranking alone."""
    kept = sorted(ranking.order[:keep])
    return question._replace(candidates=tuple(question.candidates[index] for index in kept))


def main(options):
    """Write the files."""
    ranker = load_ranker(options.run, ctx=options.ctx)
    for data, name, out in options.questions:
        questions = read_questions(data)
        if name != "all":
            questions = filter_questions(questions, name)
        given, ranked = itertools.tee(questions)
        pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
        pairs = zip(given, ranker.rank_all(ranked))
        write_questions(out, (first_of(*pair, options.keep) for pair in pairs))


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--keep", type=int, required=True)
    parser.add_argument("--questions", nargs=3, action="append", required=True)
    parser.add_argument("--ctx", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
