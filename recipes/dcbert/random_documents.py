#!/usr/bin/env python3
"""Training questions with a few retrieved documents, a few near and a few random ones.

    python recipes/dcbert/random_documents.py RETRIEVED.jsonl DOCUMENTS.jsonl OUT.jsonl
        [--negatives 1] [--near 0] [--random 2]

Of each question's documents, as `wqa retrieve` wrote them, the first one with an answer and the
first ones without are kept. Documents of the collection that contain no answer are added: those
nearest to the first positive in the order of the file, which are mostly of the same article where
the documents are sentences in their order, and random ones. The retrieved negatives are on the
question's topic, the random ones mostly are not. No paper has the random ones; they are for
collections so small that a ranker does not learn from retrieved negatives alone.
"""

import argparse
import sys

import numpy as np

from wqa.data import Candidate, read_questions, write_questions
from wqa.data.documents import read_documents
from wqa.errors import run_script
from wqa.retrieval.methods import contains_spans, joined


def sampled(question, documents, texts, index_of, counts, rng):
    """Return a question with some of its candidates, and with near and random documents.

    ``texts`` are the tokens of each document, from `joined`; ``index_of`` gives the index of a
    document by its id. Without a positive candidate there are no near documents.
    """
    kept = []
    for label, count in ((1, 1), (0, counts.negatives)):
        kept += [item for item in question.candidates if item.label == label][:count]
    known = {candidate.id for candidate in question.candidates}
    spans = [joined(answer) for answer in question.answers]

    def added(order, count):
        selected = []
        for index in order:
            if len(selected) == count:
                break
            document = documents[index]
            if document.id not in known and not contains_spans(texts[index], spans):
                known.add(document.id)
                selected.append(Candidate(document.full_text, 0, document.id))
        return selected

    if kept and kept[0].label:
        kept += added(by_distance(index_of[kept[0].id], len(documents)), counts.near)
    kept += added(rng.permutation(len(documents)), counts.random)
    return question._replace(candidates=tuple(kept))


def by_distance(index, length):
    """Yield the other indices of a list, the nearest to an index first."""
    for distance in range(1, length):
        for other in (index + distance, index - distance):
            if 0 <= other < length:
                yield other


def main():
    """Write the sampled questions, and print how many documents they have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("retrieved")
    parser.add_argument("documents")
    parser.add_argument("out")
    for name, default in (("negatives", 1), ("near", 0), ("random", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    documents = list(read_documents(options.documents))
    texts = [joined(document.full_text) for document in documents]
    index_of = {document.id: index for index, document in enumerate(documents)}
    rng = np.random.default_rng(0)
    questions = []
    for question in read_questions(options.retrieved):
        questions.append(sampled(question, documents, texts, index_of, options, rng))
    write_questions(options.out, questions)
    count = sum(len(question.candidates) for question in questions)
    print(f"{options.out}: {len(questions):,} questions, {count:,} documents", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
