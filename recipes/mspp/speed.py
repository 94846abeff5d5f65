#!/usr/bin/env python3
"""Time a joint model that re-ranks a pairwise model's first k, with random weights.

    python recipes/mspp/speed.py SHAPE [--candidates 30] [--keep 5] [--precision float32] ...

The rankers take turns in each round: the pairwise model on all candidates of a question, the same
with the joint model behind it, and the joint model on as many candidates alone. A ratio is that to
the first, the median over the rounds.
"""

import argparse
import pathlib
import sys

from wqa.config import BACKBONES, EngineConfig
from wqa.errors import check_choice, run_script
from wqa.evaluation import table
from wqa.inference.timing import time_rankers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from random_rankers import joined, random_ranker, random_splits


def ranks_of(pairwise, joint, keep):
    """What ranks groups of questions, by name."""

    def by_pairs(group):
        return pairwise.rank_pairs([[joined(pair) for pair in pairs] for pairs in group])

    def both(group):
        rankings = by_pairs(group)
        firsts = []
        for pairs, ranking in zip(group, rankings):
            firsts.append([pairs[index] for index in sorted(ranking.order[:keep])])
        joint.rank_pairs(firsts)
        return rankings

    return {
        "pairwise": by_pairs,
        f"pairwise, joint on its first {keep}": both,
        f"joint on {keep} candidates": lambda group: joint.rank_pairs(
            [pairs[:keep] for pairs in group]
        ),
    }


def main(options):
    """Print the table."""
    check_choice("shape", options.shape, BACKBONES)
    config, engine = BACKBONES[options.shape], EngineConfig(precision=options.precision)
    own = {"k": options.keep, "segment_length": options.segment_length}
    pairwise = random_ranker(config, system="pairwise", engine=engine)
    joint = random_ranker(config, system="mspp", own=own, engine=engine)
    questions = random_splits(
        options.questions,
        options.candidates,
        tuple(options.question_tokens),
        tuple(options.tokens),
        config.vocab_size,
    )
    rows = []
    for row in time_rankers(ranks_of(pairwise, joint, options.keep), questions, options.rounds):
        columns = ("ranker", "seconds", "deviation", "time_ratio")
        rows.append({name: row[name] for name in columns})
    shown = f"{options.questions} questions of {options.candidates} candidates"
    print(f"{options.shape}, {options.precision}, {shown}\n{table(rows)}")


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape")
    parser.add_argument("--precision", default="float32")
    numbers = {"candidates": 30, "keep": 5, "segment-length": 64, "questions": 4, "rounds": 5}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--question-tokens", type=int, nargs=2, default=[8, 16])
    parser.add_argument("--tokens", type=int, nargs=2, default=[20, 60])
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
