"""Convert a pretrained encoder or a fine-tuned classifier, and report on it.

example:
  wqa convert tanda_roberta_base_asnq.tar encoders/tanda
  wqa convert roberta-base encoders/roberta --check /path/to/python-with-transformers
  wqa train cascade --encoder encoders/roberta ...

SRC is a Hugging Face directory (BERT, RoBERTa, ELECTRA or ALBERT; safetensors or pytorch_model.bin,
in shards or not) or a tar of one, or a directory with a file of GluonNLP's zoo and its vocabulary.
OUT is what --encoder takes; where SRC holds a classifier, `wqa rank OUT` ranks at once and --init
starts from it. --encoder takes SRC as it is, too: converting checks it once and says what it holds.
"""

from __future__ import annotations

import argparse
import shlex

from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa convert`` to its parser."""
    parser.add_argument("source", metavar="SRC", help="directory or tar to read")
    parser.add_argument("out", metavar="OUT", help="new directory to write")
    parser.add_argument(
        "--check",
        default="",
        metavar="FILE|PYTHON",
        help="compare every layer's hidden states with stored ones (a .npz with token_ids, "
        "valid_length "
        "and states), or with those of PyTorch and transformers, run by this Python interpreter",
    )


def run(options: argparse.Namespace) -> None:
    """Run ``wqa convert`` and print its report."""
    from wqa.pretrained import convert

    print(convert(options.source, options.out, options.check, shlex.join(options.command_line)))
    print(f"wrote       {printable(options.out)}")
