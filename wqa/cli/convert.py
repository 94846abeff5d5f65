"""Convert an encoder, a fine-tuned classifier or an authors' checkpoint, and report on it.

example:
  wqa convert tanda_roberta_base_asnq.tar encoders/tanda
  wqa train cascade --encoder encoders/roberta ...
  wqa convert cerberus_model.pt runs/student --encoder encoders/electra-base

SRC is a Hugging Face directory (BERT or a relative of it; safetensors or pytorch_model.bin,
in shards or not) or a tar of one, or a directory with a file of GluonNLP's zoo and its vocabulary,
or gluonnlp:MODEL/DATASET for the zoo itself.
OUT is what --encoder takes; where SRC holds a classifier, `wqa rank OUT` ranks at once and --init
starts from it. --encoder takes SRC as it is, too: converting checks it once and says what it holds.

SRC may also be the checkpoint of the Multiple-Heads Student's authors, cerberus_model.pt, or a
.safetensors file of the same names. It has no configuration: --encoder names the ELECTRA encoder
whose configuration and tokenizer it takes. OUT is then a run. So it is for a directory of the joint
models of MSPP's authors (JointRoberta...), which has its configuration.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex

from wqa.cli.options import add_json, show
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa convert`` to its parser."""
    parser.add_argument("source", metavar="SRC", help="directory, tar or checkpoint to read")
    parser.add_argument("out", metavar="OUT", help="new directory to write")
    text = "encoder that a checkpoint without a configuration was trained from"
    parser.add_argument("--encoder", metavar="DIR", help=text)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa convert`` and print its report."""
    from wqa.systems.convert import convert

    command = shlex.join(options.command_line)
    report = convert(options.source, options.out, command, options.encoder)
    text = f"{report}\nwrote       {printable(options.out)}"
    show(text, {"out": options.out, **dataclasses.asdict(report)}, options.json)
