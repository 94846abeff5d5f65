#!/usr/bin/env python3
"""Write the built-in corpus as documents for pre-training and as claims, for recipes in smoke mode.

    python recipes/mspp/builtin_corpora.py OUT

Writes documents/{train,dev}.jsonl as data_scripts/paragraphs.py does: a document is three
consecutive questions, each a paragraph of its candidates. And fever/{train,dev,test}.jsonl as
data_scripts/fever.py does: a claim is the first candidate of a question with the next ones as its
evidence, its label is by turns one of the three, and those of test are not known.
"""

import json
import pathlib
import sys

from wqa.data import builtin_path, read_questions
from wqa.data.documents import LABELS, Claim, write_claims
from wqa.errors import run_script
from wqa.io.lines import write_lines

#: Paragraphs of a document, pieces of evidence of a claim, and questions of a file.
PARAGRAPHS, EVIDENCE, QUESTIONS = 3, 4, 12


def questions_of(split):
    """The first questions of a split."""
    return list(read_questions(builtin_path(split)))[:QUESTIONS]


def documents_of(split):
    """Yield the documents of a split."""
    questions = questions_of(split)
    for start in range(0, len(questions), PARAGRAPHS):
        group = questions[start : start + PARAGRAPHS]
        paragraphs = [question.texts for question in group]
        yield json.dumps({"id": group[0].id, "paragraphs": paragraphs})


def claims_of(split):
    """Yield the claims of a split."""
    for number, question in enumerate(questions_of(split)):
        claim, *evidence = question.texts
        label = None if split == "test" else LABELS[number % len(LABELS)]
        yield Claim(str(number), claim, tuple(evidence[:EVIDENCE]), label)


def main(out):
    """Write the files."""
    for name, splits, write, make in (
        ("documents", ("train", "dev"), write_lines, documents_of),
        ("fever", ("train", "dev", "test"), write_claims, claims_of),
    ):
        folder = pathlib.Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        for split in splits:
            write(folder / f"{split}.jsonl", make(split))


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
