#!/usr/bin/env python3
"""Development figures behind the constants of `wqa/systems/dcbert/similarity.py`.

    python recipes/cascade/untrained_dev.py DEV.jsonl ENCODER

Over the questions with an answer it prints the mean similarity of correct and of wrong candidates,
the MAP of `maxsim:ENCODER`, and the MAP where the question's special tokens count as well.
"""

import sys

import numpy as np

from wqa.config import EngineConfig
from wqa.data import filter_questions, read_questions
from wqa.errors import WqaError
from wqa.evaluation import evaluate
from wqa.inference.document_encoder import DocumentEncoder
from wqa.systems.dcbert.similarity import MIDPOINT, SCALE
from wqa.systems.load import load_ranker
from wqa.systems.text_encoder import load_encoders
from wqa.text import SingleInputs


def encoder_of_texts(name):
    """Return a function from texts to their encodings, whose rows have length 1."""
    encoders = load_encoders(name)
    tokenizer, length = encoders.tokenizer, encoders.max_length
    inputs = SingleInputs(tokenizer, length)
    encoder = DocumentEncoder(encoders.document, tokenizer, length, EngineConfig())

    def encode(texts):
        token_ids = [encoded.token_ids for encoded in inputs.encode(texts)]
        normalized = []
        for rows in encoder.encode(token_ids):
            rows = np.asarray(rows, np.float32)
            normalized.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        return normalized

    return encode


def order_with_special_tokens(encode, question):
    """Order a question's candidates by MaxSim over all tokens of the question."""
    tokens, *candidates = encode([question.question, *question.texts])
    scores = [(tokens @ candidate.T).max(axis=1).mean() for candidate in candidates]
    return np.argsort(-np.array(scores), kind="stable")


def main(data, name):
    """Print the figures."""
    questions = filter_questions(read_questions(data), "no-all-negative")
    ranker = load_ranker(f"maxsim:{name}")
    rankings = [ranker.rank(question.question, question.texts) for question in questions]
    encode = encoder_of_texts(name)
    others = [order_with_special_tokens(encode, question) for question in questions]
    scores = np.concatenate([ranking.scores for ranking in rankings])
    similarities = scores / SCALE + MIDPOINT
    correct = np.concatenate([question.labels for question in questions]) > 0
    print(f"# maxsim:{name}, {len(questions)} questions with an answer")
    print(f"mean similarity of correct candidates: {similarities[correct].mean():.3f}")
    print(f"mean similarity of wrong candidates: {similarities[~correct].mean():.3f}")
    orders = {"": [ranking.order for ranking in rankings], " with special tokens": others}
    for title, order in orders.items():
        figures = evaluate(order, questions, metrics=["map"])
        print(f"MAP{title}: {100 * figures['map']:.2f}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
