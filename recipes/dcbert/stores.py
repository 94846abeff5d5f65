#!/usr/bin/env python3
"""What a document cache loses by its element type, and by leaving out the end of documents.

    python recipes/dcbert/stores.py RUN QUESTIONS.jsonl DOCUMENTS.jsonl TABLE.tsv \
        [--stores float32 float16 int8] [--first-tokens 128 64] [--total N]

Ranks the questions with a cache of each element type that holds documents whole, and with one of
float16 of each number of first tokens. A row has P@1, P@10 and MAP, the greatest change of a score,
and the bytes of a document. Changes are from the first row.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np

from wqa.config import EngineConfig
from wqa.data import read_questions
from wqa.errors import WqaError
from wqa.evaluation import evaluate, table
from wqa.io.files import atomic_writer
from wqa.systems.encode import encode_documents
from wqa.systems.load import load_ranker

METRICS = {"p@1": "hit@1", "p@10": "hit@10", "map": "map"}
CUT_STORE = "float16"


def main(options):
    """Write the table and print it."""
    questions = list(read_questions(options.questions))
    caches = [(store, 0) for store in options.stores]
    caches += [(CUT_STORE, tokens) for tokens in options.first_tokens]
    rows, first = [], None
    for store, tokens in caches:
        row, scores = measured(options, questions, store, tokens)
        first = scores if first is None else first
        change = max(np.abs(now - before).max() for now, before in zip(scores, first))
        rows.append({**row, "score_change": f"{change:.2g}"})
    with atomic_writer(options.table) as file:
        for values in (rows[0], *(row.values() for row in rows)):
            file.write("\t".join(map(str, values)) + "\n")
    print(table(rows))


def measured(options, questions, store, tokens):
    """Row of a cache, and the scores of each question's documents."""
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder) / "cache"
        engine = EngineConfig(ctx=options.ctx)
        report = encode_documents(
            options.run, options.documents, cache, store, tokens, engine=engine
        )
        ranker = load_ranker(
            options.run,
            precision=options.precision,
            ctx=options.ctx,
            cache=cache,
            long_questions="truncate",
        )
        rankings = list(ranker.rank_all(questions))
        del ranker  # it holds the cache's files
    figures = evaluate(
        [ranking.order for ranking in rankings],
        questions,
        metrics=list(METRICS.values()),
        total=options.total,
    )
    row = {"store": store, "first_tokens": tokens or "all"}
    row.update({name: f"{100 * figures[metric]:.2f}" for name, metric in METRICS.items()})
    row["bytes_a_document"] = round(sum(report["files"].values()) / report["documents"])
    return row, [np.asarray(ranking.scores) for ranking in rankings]


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("run", "questions", "documents", "table"):
        parser.add_argument(name)
    parser.add_argument("--stores", nargs="+", default=["float32", "float16", "int8"])
    parser.add_argument("--first-tokens", nargs="*", type=int, default=[])
    parser.add_argument("--total", type=int, default=0)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--ctx", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
