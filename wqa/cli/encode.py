"""Encode documents ahead of time, for a ranker that encodes them apart from questions.

examples:
  wqa encode runs/dcbert --documents data/squad_open/documents.jsonl --out caches/squad_open
  wqa evaluate runs/dcbert --data dev.jsonl --cache caches/squad_open
  wqa encode runs/dcbert --documents data/wikipedia.jsonl --out caches/wikipedia --shard 3/64

The cache holds the encoding of each token of each document. A document is found by its id and its
text. A cache belongs to the weights, the tokenizer and the --max-length of one run; with other
documents it is made again.

The documents are encoded in partitions, which wait in OUT.partitions until all are encoded. If the
command is stopped, the same command continues it. --shard, --cluster, and several devices of
--ctx, such as gpu:0-7, divide the partitions between processes; whoever encodes the last one merges
them into the cache.
"""

from __future__ import annotations

import argparse
from typing import Any

from wqa.cli.options import (
    add_choice,
    add_engine,
    add_json,
    add_number,
    add_partitions,
    engine_of,
    show_parts,
    values_of,
)
from wqa.errors import counted, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa encode`` to its parser."""
    from wqa.inference.document_cache import STORES
    from wqa.systems.encode import PARTITION_TOKENS

    parser.add_argument("run", metavar="RUN", help="run directory, minilm or maxsim:ENCODER")
    text = "documents to encode, JSONL"
    parser.add_argument("--documents", required=True, metavar="FILE", help=text)
    parser.add_argument("--out", required=True, metavar="PATH", help="folder of the cache")
    text = "element type of the cache; int8 has a scale for each token"
    add_choice(parser, "--store", tuple(STORES), text)
    text = "keep the first N tokens of a document alone; 0 for all"
    add_number(parser, "--first-tokens", 0, text)
    add_partitions(parser, "encode", "encoded", "documents", PARTITION_TOKENS)
    add_engine(parser, ("float32", "bfloat16"))
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa encode`` and print what the cache holds."""
    from wqa.systems.encode import EncodingTask

    if options.cluster is not None:
        options.threads = 1 if options.threads is None else options.threads
    given = values_of(options, "run", "out", "partition_tokens", "store", "first_tokens")
    task = EncodingTask(data=options.documents, engine=engine_of(options), **given)

    def describe(report: Any) -> str:
        meta, size = report.meta, sum(report.meta["files"].values())
        counts = f"{counted(meta['documents'], 'document')}, {meta['truncated']:,} shortened"
        text = f"{printable(options.out)}: {counts}, {meta['blank']:,} without a token left out; "
        text += f"{size / 1e6:,.1f} MB"
        if report.seconds and meta["documents"]:
            text += f"\n{1e3 * report.seconds / meta['documents']:,.2f} ms a document"
        return text

    show_parts(options, task, describe)
