#!/usr/bin/env python3
"""Relevance at which `wqa ask` says that a collection has no answer, for a ranker without training.

    python recipes/few_labels/no_answer.py --data runs/few/selqa_val.jsonl

The questions are those of ``few_labels.py``. Each of 100 is ranked over its own section, and over
the sections of 15 other articles, which have no answer. Prints the share of both whose first
sentence reaches a score.
"""

import argparse
import random

import numpy as np
from scipy.special import expit

from wqa import load_ranker
from wqa.data import read_questions
from wqa.errors import run_script


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="FILE")
    parser.add_argument("--ranker", default="minilm", metavar="RUN")
    options = parser.parse_args()
    ranker = load_ranker(options.ranker)
    questions = list(read_questions(options.data))
    rng = random.Random(3)
    sample = rng.sample(questions, 100)
    sections = {}
    for question in questions:
        sections.setdefault(question.texts[0], question.texts)
    own, other = [], []
    for question in sample:
        others = [texts for name, texts in sections.items() if name != question.texts[0]]
        wrong = [text for texts in rng.sample(others, 15) for text in texts]
        own.append(ranker.rank(question.question, list(question.texts)).scores.max())
        other.append(ranker.rank(question.question, wrong).scores.max())
    print("score", "relevance", "own section", "other articles", sep="\t")
    for score in np.arange(-4, 2.5, 0.5):
        shares = [np.mean(np.array(scores) >= score) for scores in (own, other)]
        print(score, f"{expit(score):.3f}", *(f"{share:.2f}" for share in shares), sep="\t")


if __name__ == "__main__":
    run_script(main)
