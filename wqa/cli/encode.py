"""Encode documents ahead of time, for a ranker that encodes them apart from questions.

examples:
  wqa encode runs/dcbert --documents data/squad_open/documents.jsonl --out caches/squad_open
  wqa evaluate runs/dcbert --data dev.jsonl --cache caches/squad_open
  wqa encode runs/dcbert --documents data/wikipedia.jsonl --out caches/wikipedia --shard 3/64
  wqa encode --remove old_ids.txt --out caches/squad_open

The cache holds the encoding of each token of each document, and a digest of the document's text. If
the command is stopped, the same command continues it. Run it again on a file with more documents to
add them: only new and changed ones are encoded. Documents that are not in the file stay, unless
--prune removes them. A cache belongs to the weights, the tokenizer and the --max-length of one run.

--shard and --cluster divide the documents into partitions, which wait in OUT.partitions until all
are encoded; whoever encodes the last one merges them into the cache. They encode all documents of
the file, also those that the cache holds.
"""

from __future__ import annotations

import argparse
import shlex

from wqa.cli.options import (
    add_choice,
    add_engine,
    add_partitions,
    divides,
    engine_of,
    rate_line,
    run_job,
    state_line,
    values_of,
)
from wqa.errors import OptionError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa encode`` to its parser."""
    from wqa.cache.cache_index import STORES
    from wqa.cache.document_cache_writer import PARTITION_TOKENS

    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="run directory; needed with --documents"
    )
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--documents", metavar="FILE", help="documents to encode, JSONL")
    work.add_argument(
        "--remove", metavar="FILE", help="ids of documents to remove from the cache, one a line"
    )
    parser.add_argument("--out", required=True, metavar="PATH", help="folder of the cache")
    text = "element type of the cache; int8 has a scale for each token"
    add_choice(parser, "--store", tuple(STORES), text)
    parser.add_argument(
        "--first-tokens",
        type=int,
        default=0,
        metavar="N",
        help="keep the first N tokens of a document alone (default: 0, all)",
    )
    parser.add_argument(
        "--prune", action="store_true", help="remove documents that are not in --documents"
    )
    add_partitions(parser, "encode", "encoded", "documents", PARTITION_TOKENS)
    add_engine(parser, ("float32", "bfloat16"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa encode`` and print what the cache holds."""
    from wqa.systems.encode import encode_documents, remove_documents

    if options.partition_tokens is not None and not divides(options):
        found = f"{options.partition_tokens} for one process"
        raise OptionError("partition_tokens", found, "--shard, --cluster or --merge beside it")
    if options.remove:
        if options.prune:
            raise OptionError("prune", "with --remove", "--documents, whose ids it compares")
        if divides(options):
            raise OptionError("remove", "with partitions", "one process, which encodes nothing")
        _show(options.out, remove_documents(options.out, options.remove))
        return
    if options.run is None:
        raise OptionError("run", "none", "the run that encodes the documents")
    if divides(options):
        _encode_in_partitions(options)
        return
    from wqa.io.progress import stop_on_signals

    options.resume_command = shlex.join(options.command_line)
    with stop_on_signals() as stop:
        report = encode_documents(
            progress=True,
            stop=stop,
            engine=engine_of(options),
            **values_of(options, "run", "documents", "out", "store", "first_tokens", "prune"),
        )
    _show(options.out, report)


def _encode_in_partitions(options: argparse.Namespace) -> None:
    from wqa.cache.document_cache_writer import PARTITION_TOKENS
    from wqa.cluster.encoder import EncodingJob
    from wqa.systems.encode import CacheReport

    tokens = options.partition_tokens
    engine = values_of(options, "ctx", "engine", "precision", "threads")
    job = EncodingJob(
        options.run,
        options.documents,
        options.out,
        PARTITION_TOKENS if tokens is None else tokens,
        engine,
        **values_of(options, "store", "first_tokens", "prune"),
    )
    report = run_job(options, job)
    if report.meta is None:
        print(state_line(job, report))
        return
    cache = CacheReport(**report.meta)
    count = cache.new + cache.changed + cache.unchanged
    _show(options.out, cache, rate_line(report._asdict(), count, "documents"))


def _show(out: str, report, rate: str = "") -> None:  # noqa: ANN001 - `CacheReport`, whose module imports MXNet
    counts = {
        "new": report.new,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "shortened": report.truncated,
        "without a token left out": report.blank,
        "not in the cache": report.missing,
    }
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    summary = ", ".join(parts) or "no change"
    print(f"{printable(out)}: {report.documents:,} documents; {summary}{rate}")
    if report.documents and report.bytes:
        size = report.bytes / report.documents
        print(f"{size:,.0f} bytes a document, {size / 1e3:,.2f} GB for a million documents")
    encoded = report.new + report.changed
    if encoded and report.seconds:
        print(f"{1e3 * report.seconds / encoded:,.2f} ms a document")
