"""Index a collection of documents, from which `wqa retrieve` takes candidates.

examples:
  wqa index documents.jsonl --out indexes/squad
  wqa index documents.jsonl --out indexes/squad_bm25 --method bm25 --k1 0.9 --b 0.4

DOCUMENTS is JSONL, a document a line: {"id": "D1", "text": "...", "title": "..."}, the title
optional. Or ir: and the name of a dataset of ir_datasets, such as ir:beir/scifact/test. tfidf
weights hashed unigrams and bigrams as DrQA does, bm25 unigrams. The index holds the documents too.
If the command is stopped, it leaves no index under this name.
"""

from __future__ import annotations

import argparse
import time

from wqa.cli.options import add_choice
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa index`` to its parser."""
    parser.add_argument("documents", metavar="DOCUMENTS", help="documents, JSONL, or ir:NAME")
    parser.add_argument("--out", required=True, metavar="PATH", help="folder to write")
    add_choice(parser, "--method", ("tfidf", "bm25"), "weights of terms")
    parser.add_argument(
        "--k1", type=float, metavar="X", help="bm25: saturation of frequencies (default: 1.2)"
    )
    parser.add_argument(
        "--b", type=float, metavar="X", help="bm25: normalization by length (default: 0.75)"
    )


def run(options: argparse.Namespace) -> None:
    """Run ``wqa index`` and print the counts."""
    from wqa.retrieval import build_index

    given = {"k1": options.k1, "b": options.b}
    settings = {name: value for name, value in given.items() if value is not None}
    begin = time.perf_counter()
    meta = build_index(options.documents, options.out, options.method, progress=True, **settings)
    seconds = time.perf_counter() - begin
    print(
        f"{printable(options.out)}: {meta['documents']:,} documents, {meta['terms']:,} terms, "
        f"{meta['method']}, {sum(meta['files'].values()):,} bytes, {seconds:.1f} seconds"
    )
