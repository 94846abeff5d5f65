#!/usr/bin/env python3
"""Word overlap by several ways to split words, beside the published figures of Table 2.

    python recipes/cosinet/overlap.py data/wikiqa/test.jsonl data/squad/test.jsonl

A table for each file: how many words its questions and candidates have, and P@1, MAP and MRR of WO
and WO+RR over the questions with an answer. Ties of WO count against the correct candidates. The
last log is recipes/cosinet/logs/overlap.txt.
"""

import pathlib
import sys

from wqa.data import filter_questions, read_questions
from wqa.errors import run_script
from wqa.evaluation import evaluate_ranker, table
from wqa.systems.cosinet.baselines import WordOverlap, WordOverlapByRank
from wqa.text.words import split_words


def lower_by_space(text):
    """Lower-cased words between white space."""
    return text.lower().split()


#: Ways to split words, those of the package first.
SPLITS = {
    "split_words": split_words,
    "white space, lower case": lower_by_space,
    "white space": str.split,
}


def figures(ranker, questions):
    """P@1, MAP and MRR of a ranker."""
    [row] = evaluate_ranker(ranker, questions)
    return {name: row[name] for name in ("p@1", "map", "mrr")}


def rows_of(questions):
    """A row for each way to split words."""
    answered = filter_questions(questions, "no-all-negative")
    texts = [text for question in questions for text in question.texts]
    rows = []
    for name, split in SPLITS.items():
        in_questions = sum(len(split(question.question)) for question in questions)
        row = {
            "words": name,
            "a question": in_questions / len(questions),
            "a candidate": sum(len(split(text)) for text in texts) / len(texts),
        }
        for ranker in (WordOverlap(split=split), WordOverlapByRank(split=split)):
            for metric, value in figures(ranker, answered).items():
                row[f"{ranker.rule} {metric}"] = f"{100 * value:.2f}"
        rows.append(row)
    return rows


def main(paths):
    """Print the tables."""
    for path in paths:
        questions = list(read_questions(path))
        print(f"{'/'.join(pathlib.Path(path).parts[-2:])}: {len(questions)} questions")
        print(table(rows_of(questions)))


if __name__ == "__main__":
    run_script(main, sys.argv[1:])
