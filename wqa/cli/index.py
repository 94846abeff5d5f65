"""Index a collection of documents, which `wqa ask` answers questions from.

examples:
  wqa index docs/ --out indexes/docs
  wqa index articles.csv --column body --out indexes/articles
  wqa index documents.jsonl --out indexes/squad --method tfidf

DOCUMENTS is a folder of .txt, .md and .html files, or one of these; a table, .csv or .tsv, with a
column of texts; or JSONL, a document a line: {"id": "D1", "text": "...", "title": "..."}, the title
optional. Or ir: and the name of a dataset of ir_datasets, such as ir:beir/scifact/test. bm25
weights words, tfidf hashed unigrams and bigrams as DrQA does, for large collections: terms of half
of the documents or more weigh nothing. The index holds the documents too, and the sentences of
those of a folder or a table. If the command is stopped, it leaves no index under this name.
"""

from __future__ import annotations

import argparse
import time

from wqa.cli.options import add_choice, values_of
from wqa.errors import counted, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa index`` to its parser."""
    text = "folder, .csv, .tsv, JSONL, or ir:NAME"
    parser.add_argument("documents", metavar="DOCUMENTS", help=text)
    parser.add_argument("--out", required=True, metavar="PATH", help="folder to write")
    text = "texts of a table (default: text)"
    parser.add_argument("--column", default="text", metavar="NAME", help=text)
    text = "find the sentences of JSONL too, for `wqa ask`; they take a millisecond each"
    parser.add_argument("--sentences", action="store_true", default=None, help=text)
    text = "replace the index of other documents or settings that --out is"
    parser.add_argument("--replace", action="store_true", help=text)
    add_choice(parser, "--method", ("bm25", "tfidf"), "weights of terms")


def run(options: argparse.Namespace) -> None:
    """Run ``wqa index`` and print the counts."""
    from wqa.retrieval import build_index

    begin = time.perf_counter()
    meta = build_index(
        options.documents,
        options.out,
        options.method,
        progress=True,
        **values_of(options, "sentences", "column", "replace"),
    )
    seconds = time.perf_counter() - begin
    names = ("documents", "sentences", "terms")
    counts = ", ".join(counted(meta[name], name[:-1]) for name in names if name in meta)
    size = f"{sum(meta['files'].values()):,} bytes, {seconds:.1f} seconds"
    print(f"{printable(options.out)}: {counts}, {meta['method']}, {size}")
