"""Make the table of word vectors that rankers without a pretrained encoder start from.

examples:
  wqa embed-words --data train.jsonl dev.jsonl test.jsonl --out words/minilm --encoder minilm
  wqa embed-words --data train.jsonl --out words/numberbatch \\
      --vectors numberbatch-en-19.08.txt.gz

The table has the words of all texts of the files; their labels are not read. --vectors takes them
from a published file (Numberbatch, GloVe, or word2vec's text form, plain or .gz). --encoder
distils static vectors from a pretrained encoder: each word is encoded by itself and reduced by
principal components and normalized to length 1. --length scales all vectors to another
length, such as Compare-Aggregate needs. A table that was made with the same options is kept as it
is.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict

from wqa.cli.options import add_engine, add_number, engine_of, refuse, values_of
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa embed-words`` to its parser."""
    # --data A --data B is --data A B.
    given: Dict[str, Any] = {"required": True, "nargs": "+", "action": "extend", "metavar": "FILE"}
    parser.add_argument("--data", help="questions, JSONL, .csv or .tsv", **given)
    parser.add_argument("--out", required=True, metavar="PATH", help="folder of the table")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--vectors", metavar="FILE", help="file of published word vectors")
    text = "encoder to distil, as `wqa train` takes it"
    source.add_argument("--encoder", metavar="DIR", help=text)
    text = "elements of a vector, for --encoder (default: 300)"
    add_number(parser, "--units", None, text)
    text = "scale each vector to this length (default: 1 for --encoder, none for --vectors)"
    parser.add_argument("--length", type=float, metavar="X", help=text)
    add_engine(parser, ("float32", "bfloat16"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa embed-words`` and print what the table holds."""
    from wqa.systems.words import embed_words

    if options.vectors:
        names = ("engine", "precision", "threads", "ctx")
        refuse(options, names, "with --vectors, where nothing is computed", "--encoder")
    report = embed_words(
        engine=engine_of(options),
        progress=True,
        **values_of(options, "data", "out", "vectors", "encoder", "units", "length"),
    )
    table = report.table
    time = f"{report.seconds:.1f} seconds" if report.seconds else "it was there already"
    text = f"{options.out}: {len(table):,} words of {table.units} elements, {table.meta['kind']}; "
    text += f"{report.known:,} of the {report.vocabulary:,} words of the texts and "
    text += f"{100 * report.coverage:.2f} % of their occurrences have a vector; {time}"
    print(printable(text))
