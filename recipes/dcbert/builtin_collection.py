#!/usr/bin/env python3
"""Write the built-in corpus as an open collection, for recipes in smoke mode.

    python recipes/dcbert/builtin_collection.py OUT

Writes documents.jsonl, train.documents.jsonl and {train,dev,test}.questions.jsonl as
data_scripts/squad_open.py does. A document is four consecutive candidates of a question. The
questions are those of builtin_answers.tsv, whose answers stand in a correct candidate.
"""

import pathlib
import sys

from wqa.data import builtin_path, read_questions, write_questions
from wqa.data.documents import Document, write_documents
from wqa.errors import run_script
from wqa.evaluation.report import read_rows

ANSWERS = pathlib.Path(__file__).with_name("builtin_answers.tsv")
SPLITS = ("train", "dev", "test")
#: Candidates of a document.
SENTENCES = 4


def documents_of(question):
    """Yield the candidates of a question as documents."""
    for start in range(0, len(question.texts), SENTENCES):
        text = " ".join(question.texts[start : start + SENTENCES])
        yield Document(f"{question.id}-{start // SENTENCES}", text)


def main(out):
    """Write the collection."""
    answers = {}
    for row in read_rows(ANSWERS, ("question", "answers")):
        answers[row["question"]] = tuple(row["answers"].split("|"))
    documents = []
    for split in SPLITS:
        questions = []
        for question in read_questions(builtin_path(split)):
            documents += documents_of(question)
            if question.id in answers:
                asked = question._replace(candidates=(), answers=answers[question.id])
                questions.append(asked)
        write_questions(pathlib.Path(out) / f"{split}.questions.jsonl", questions)
        if split == "train":
            write_documents(pathlib.Path(out) / "train.documents.jsonl", documents)
    write_documents(pathlib.Path(out) / "documents.jsonl", documents)


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
