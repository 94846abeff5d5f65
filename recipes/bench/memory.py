#!/usr/bin/env python3
"""Memory while questions of random lengths are ranked: after the first tenth, and at the end.

    python recipes/bench/memory.py RUN 5000 [PRECISION ...]

A question has 10 candidates; a pair has from 8 to 128 tokens. A precision that the processor does
not compute in is left out, and the output says so.
"""

import sys

import numpy as np
from ours import resident

from wqa.errors import MissingDependency, PrecisionError
from wqa.systems.load import load_ranker
from wqa.systems.random import random_pairs

PRECISIONS = ("float32", "bfloat16", "int8")
GROUP = 50  # questions that are ranked together


def measure(run, questions, precision):
    """Rank questions and print the memory.

    Parameters
    ----------
    run : str
        Run directory.
    questions : int
        The number of questions.
    precision : str
        What the products compute in.
    """
    try:
        ranker = load_ranker(run, drop_ratio=0.3, precision=precision)
    except (PrecisionError, MissingDependency) as error:
        print(f"left out: {precision}: {error}", flush=True)
        return
    rng = np.random.default_rng(0)
    vocab_size = ranker.inputs.tokenizer.vocab_size
    early = 0.0
    for begin in range(0, questions, GROUP):
        pairs = [random_pairs(rng, 10, 8, 128, vocab_size) for _ in range(GROUP)]
        ranker.rank_pairs(pairs)
        if begin < questions // 10 <= begin + GROUP:
            early = resident()
    late = resident()
    print(
        f"{precision}: {early:.0f} MiB after {questions // 10} questions, "
        f"{late:.0f} MiB after {questions}, {late / early:.3f} times",
        flush=True,
    )


if __name__ == "__main__":
    for name in sys.argv[3:] or PRECISIONS:
        measure(sys.argv[1], int(sys.argv[2]), name)
