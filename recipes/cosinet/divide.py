#!/usr/bin/env python3
"""Divide a file of questions into two, between questions on different paragraphs.

    python recipes/cosinet/divide.py QUESTIONS.jsonl SHARE TRAIN.jsonl TEST.jsonl

TRAIN.jsonl gets the first questions, at least that share of them, and those that follow with the
same candidates as the last one; TEST.jsonl gets the rest. squad_small.tsv is RESULTS/table5.tsv by

    python data_scripts/squad.py --unanswered --out data/squad_sent && mkdir data/half
    python recipes/cosinet/divide.py data/squad_sent/test.jsonl 0.66 data/half/{train,test}.jsonl
    export RUNS=runs/cosinet_squad SQUAD=data/half TABLE_KIND=distilled CA_SEEDS=0
    export RESULTS=$RUNS/results
    MODELS="cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn" \
        recipes/cosinet/table5.sh
"""

import math
import sys

from wqa.data import read_questions, write_questions
from wqa.errors import DataError, OptionError, run_script


def texts(question):
    """Texts of the candidates."""
    return [candidate.text for candidate in question.candidates]


def main(source, share, train, test):
    """Write the two files."""
    questions = list(read_questions(source))
    if not 0 < float(share) < 1:
        raise OptionError("SHARE", share, "a number between 0 and 1")
    end = math.ceil(float(share) * len(questions))
    while end < len(questions) and texts(questions[end]) == texts(questions[end - 1]):
        end += 1
    if end == len(questions):
        raise DataError(source, "no question is left to test", "several paragraphs")
    write_questions(train, questions[:end])
    write_questions(test, questions[end:])
    print(f"{end:,} questions to train, {len(questions) - end:,} to test")


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
