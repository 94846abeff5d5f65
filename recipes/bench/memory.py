#!/usr/bin/env python3
"""Memory while questions of random lengths are ranked: after the first tenth, and at the end.

    python recipes/bench/memory.py RUN 5000

Each question has 10 candidates; pairs have 8 to 128 tokens, drawn anew for each.
"""

import os
import sys

import numpy as np

from wqa.inference import load_ranker
from wqa.inference.random import random_pairs

PRECISIONS = ("float32", "bfloat16", "int8")


def resident():
    """MiB of memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(run, questions, precision):
    rng, ranker = np.random.default_rng(0), load_ranker(run, drop_ratio=0.3, precision=precision)
    size, early = ranker.model.config.vocab_size, 0.0
    for done in range(0, questions, 50):
        ranker.rank_pairs([random_pairs(rng, 10, 8, 128, size) for _ in range(50)])
        if done < questions // 10 <= done + 50:
            early = resident()
    print(
        f"{precision}: {early:.0f} MiB after {questions // 10} questions, {resident():.0f} "
        f"MiB after {questions}, "
        f"{resident() / early:.3f} times",
        flush=True,
    )


if __name__ == "__main__":
    for each in sys.argv[3:] or PRECISIONS:
        main(sys.argv[1], int(sys.argv[2]), each)
