#!/usr/bin/env python3
"""Training questions with a few retrieved documents and a few random ones.

    python recipes/dcbert/random_documents.py RETRIEVED.jsonl DOCUMENTS.jsonl OUT.jsonl
        [--positives 1] [--negatives 1] [--random 2] [--seed 0]

Of each question's documents, as `wqa retrieve` wrote them, the first ones with and without an
answer are kept. Random documents of the collection that contain no answer are added. The retrieved
negatives are on the question's topic, the random ones mostly are not. No paper has them; they are
for collections so small that a ranker does not learn from retrieved negatives alone.
"""

import argparse
import sys

import numpy as np

from wqa.data import Candidate, read_questions, write_questions
from wqa.data.documents import read_documents
from wqa.errors import OptionError, WqaError
from wqa.retrieval.methods import contains_spans, joined


def sampled(question, documents, texts, counts, rng):
    """Return a question with some of its candidates and with random documents.

    ``texts`` are the tokens of each document, from `joined`.
    """
    kept = []
    for label, count in ((1, counts.positives), (0, counts.negatives)):
        kept += [item for item in question.candidates if item.label == label][:count]
    known = {candidate.id for candidate in question.candidates}
    spans = [joined(answer) for answer in question.answers]
    added = 0
    for index in rng.permutation(len(documents)):
        if added == counts.random:
            break
        document = documents[index]
        if document.id not in known and not contains_spans(texts[index], spans):
            kept.append(Candidate(document.full_text, 0, document.id))
            added += 1
    return question._replace(candidates=tuple(kept))


def main(arguments):
    """Write the sampled questions, and print how many documents they have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("retrieved")
    parser.add_argument("documents")
    parser.add_argument("out")
    for name, default in (("positives", 1), ("negatives", 1), ("random", 2), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    for name in ("positives", "negatives", "random", "seed"):
        if getattr(options, name) < 0:
            raise OptionError(f"--{name}", getattr(options, name), "a whole number from 0")
    documents = list(read_documents(options.documents))
    texts = [joined(document.full_text) for document in documents]
    rng = np.random.default_rng(options.seed)
    questions = []
    for question in read_questions(options.retrieved):
        questions.append(sampled(question, documents, texts, options, rng))
    write_questions(options.out, questions)
    count = sum(len(question.candidates) for question in questions)
    print(f"{options.out}: {len(questions):,} questions, {count:,} documents", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(None)
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
