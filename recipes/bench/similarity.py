#!/usr/bin/env python3
"""Compare the cosines of `cosine:ENCODER` with those of sentence-transformers.

    python recipes/bench/similarity.py --peers-python .venv-peers/bin/python \\
        --data data/wikiqa/dev.jsonl --questions 80

The encoder pools the mean and needs no prompts, as `minilm` does. sentence-transformers runs in a
process of its own. The questions are those of the built-in test set, and the first of --data. For
each engine the script prints the greatest difference of a cosine; an engine that cannot run here is
left out, and the output says so.
"""

import argparse
import itertools
import json
import subprocess
import sys

import numpy as np

from wqa.data import builtin_path, read_questions
from wqa.errors import MissingDependency, WqaError
from wqa.io.encoder_directories import encoder_directory
from wqa.systems.dcbert.similarity import MIDPOINT, SCALE
from wqa.systems.load import load_ranker

ENGINES = ("onednn", "mxnet")
#: Reads lines of texts, a question before its candidates. Writes its version, then the cosines.
PEER = """
import json, sys, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
print(json.dumps(sentence_transformers.__version__))
for line in sys.stdin:
    rows = model.encode(json.loads(line), normalize_embeddings=True)
    print(json.dumps((rows[1:] @ rows[0]).tolist()))
"""


def run_peer(python, folder, questions):
    """Return sentence-transformers' version and the cosines of each question's candidates."""
    lines = [json.dumps([question.question, *question.texts]) for question in questions]
    done = subprocess.run(
        [python, "-c", PEER, str(folder)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{python} ended with status {done.returncode}\n{done.stderr}")
    version, *cosines = map(json.loads, done.stdout.splitlines())
    return version, cosines


def greatest_difference(ranker, questions, expected):
    """Return the greatest difference of a ranker's cosines from the expected ones."""
    differences = []
    for question, cosines in zip(questions, expected):
        scores = ranker.rank(question.question, question.texts).scores
        differences.append(np.abs(scores / SCALE + MIDPOINT - cosines).max())
    return max(differences)


def main(options):
    """Print the differences."""
    questions = list(read_questions(builtin_path("test")))
    if options.data:
        questions += itertools.islice(read_questions(options.data), options.questions)
    with encoder_directory(options.encoder) as folder:
        version, cosines = run_peer(options.peers_python, folder, questions)
    candidates = sum(map(len, cosines))
    print(f"sentence-transformers {version}, {len(questions)} questions, {candidates} candidates")
    for engine in ENGINES:
        try:
            ranker = load_ranker(f"cosine:{options.encoder}", engine=engine)
        except MissingDependency as error:
            print(f"left out: {engine}: {error}")
            continue
        difference = greatest_difference(ranker, questions, cosines)
        print(f"{engine}: greatest difference {difference:.1e}")


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers-python", required=True, help="interpreter of peers.txt")
    parser.add_argument("--encoder", default="minilm", help="as cosine:ENCODER takes it")
    parser.add_argument("--data", help="questions beside the built-in ones")
    parser.add_argument("--questions", type=int, help="how many of --data (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
