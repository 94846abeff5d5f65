#!/usr/bin/env python3
"""The documents of a collection that questions have retrieved.

    python recipes/dcbert/tested_documents.py QUESTIONS.jsonl DOCUMENTS.jsonl OUT.jsonl

A cache of these is enough to rank the questions, whatever the size of the collection.
"""

import sys

from wqa.data import read_questions
from wqa.data.documents import read_documents, write_documents
from wqa.errors import DataError, run_script


def main(questions, documents, out):
    """Write the documents, in the order of the collection."""
    ids = set()
    for question in read_questions(questions):
        ids.update(candidate.id for candidate in question.candidates)
    write_documents(out, documents_of(ids, documents, questions))


def documents_of(ids, documents, questions):
    """Yield the documents with some ids; raise an error if one is not among the documents."""
    left = set(ids)
    for document in read_documents(documents):
        if document.id in left:
            left.remove(document.id)
            yield document
    if left:
        raise DataError(
            documents,
            f"holds no document {min(map(str, left))}, a candidate of {questions}",
            "the collection that the questions retrieved from",
        )


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
