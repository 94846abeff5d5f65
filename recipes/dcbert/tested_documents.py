#!/usr/bin/env python3
"""The documents of a collection that questions have retrieved.

    python recipes/dcbert/tested_documents.py QUESTIONS.jsonl DOCUMENTS.jsonl OUT.jsonl

A cache of these is enough to rank the questions, whatever the size of the collection.
"""

import sys

from wqa.data import read_questions
from wqa.data.documents import read_documents, write_documents
from wqa.errors import run_script


def main(questions, documents, out):
    """Write the documents, in the order of the collection."""
    ids = set()
    for question in read_questions(questions):
        ids.update(candidate.id for candidate in question.candidates)
    kept = (document for document in read_documents(documents) if document.id in ids)
    write_documents(out, kept)


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
