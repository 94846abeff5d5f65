#!/usr/bin/env python3
"""Write questions with the sentences of what they retrieve as candidates, for `wqa evaluate`.

    wqa index documents.jsonl --sentences --method tfidf --out INDEX
    python recipes/cascade/collection_questions.py INDEX QUESTIONS.jsonl OUT.jsonl --top 40

A candidate is correct where it contains an answer, as `wqa ask --data` counts it. Questions without
a known answer are left out; those of which no answer was retrieved stay, and count 0 under the
filter `all`.
"""

import argparse
import itertools
import sys

from wqa.data import Candidate, read_questions, write_questions
from wqa.errors import WqaError
from wqa.inference.pipeline import sentences_of
from wqa.retrieval import Index, contains_answer


def with_sentences(index, question, top):
    """The question with all sentences of its first documents, or a blank one where it has none."""
    candidates = []
    for sentence in sentences_of(index, index.search(question.question, top)):
        label = int(contains_answer(sentence.text, question.answers))
        candidates.append(Candidate(sentence.text, label))
    return question._replace(candidates=tuple(candidates or [Candidate("", 0)]))


def main(options):
    """Write the file, and print how many candidates a question has."""
    index = Index(options.index)
    questions = read_questions(options.questions, with_candidates=False)
    answered = (question for question in questions if question.answers)
    chosen = itertools.islice(answered, options.limit)
    ready = [with_sentences(index, question, options.top) for question in chosen]
    write_questions(options.out, ready)
    mean = sum(len(question.candidates) for question in ready) / len(ready)
    answerable = sum(any(question.labels) for question in ready)
    print(
        f"{options.out}: {len(ready)} questions, {mean:.0f} sentences each, "
        f"an answer among those of {answerable}"
    )


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("index", "questions", "out"):
        parser.add_argument(name)
    parser.add_argument("--top", type=int, default=80, help="documents of a question")
    parser.add_argument("--limit", type=int, help="questions to take, the first")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
