"""Tokenize a corpus into a store, which training reads without loading it into memory.

examples:
  wqa tokenize --encoder encoders/roberta-base --data data/asnq/train.jsonl \\
      --out data/asnq/train.store
  wqa train cascade --encoder encoders/roberta-base --train data/asnq/train.store \\
      --out runs/transfer ...

A store belongs to one tokenizer and one --max-length. If the command is stopped, the same command
continues it; the store has its final name only when it is complete. Candidates without a token are
left out and counted. --long-questions skip leaves questions out that have too many tokens, truncate
keeps their first tokens; a training on such a store takes the same option.
"""

from __future__ import annotations

import argparse

from wqa.cli.options import add_data, add_json, add_long_questions, add_number, show
from wqa.errors import printable

#: Counts of a store that the command prints as JSON.
_COUNTS = ("questions", "pairs", "truncated", "blank", "truncated_questions", "skipped_questions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa tokenize`` to its parser."""
    start = parser.add_mutually_exclusive_group(required=True)
    text = "encoder whose tokenizer to take, as `wqa train` takes it"
    start.add_argument("--encoder", metavar="DIR", help=text)
    start.add_argument("--init", metavar="RUN", help="run whose tokenizer to take instead")
    add_data(parser, "labelled questions, JSONL, .csv or .tsv")
    text = "folder to write; name it .store"
    parser.add_argument("--out", required=True, metavar="PATH", help=text)
    add_number(parser, "--max-length", 128, "limit of a pair", "TOKENS")
    add_long_questions(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa tokenize`` and print the counts."""
    from wqa.text import PairInputs, build_store, load_tokenizer, note_long_questions

    tokenizer = load_tokenizer(options.encoder or options.init)
    inputs = PairInputs(tokenizer, options.max_length, options.long_questions)
    meta = build_store(options.data, options.out, inputs)
    note_long_questions(meta["truncated_questions"], meta["skipped_questions"], options.data)
    size = sum(meta["files"].values())
    pairs = f"{meta['pairs']:,} pairs, {meta['truncated']:,} shortened"
    text = f"{printable(options.out)}: {meta['questions']:,} questions, {pairs}, "
    text += f"{meta['blank']:,} blank candidates left out, {size:,} bytes"
    counts = {name: meta[name] for name in _COUNTS}
    show(text, {"store": options.out, **counts, "bytes": size}, options.json)
