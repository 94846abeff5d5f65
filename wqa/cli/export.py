"""Export a run to ONNX, to MXNet's symbols and parameters, or to a Hugging Face directory.

example:
  wqa export runs/wikiqa exported --format onnx
  wqa export runs/wikiqa exported
  wqa export runs/pairwise exported --format huggingface

The ONNX format is one graph for each part of the network, with Hugging Face's names of inputs and
outputs, and config.json, which describes them. A cascade is also one graph, dropping.onnx, that
drops candidates inside. It takes the pairs of one question and a drop ratio for each exit.

MXNet's bindings of other languages read the MXNet format: model-symbol.json and model-0000.params
compute the score of a pair, each stage of a cascade is also a network of its own, and export.json
describes their inputs. The Hugging Face format is a sequence classifier with one output, for
monolithic rankers.
"""

from __future__ import annotations

import argparse

from wqa.cli.options import add_choice
from wqa.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa export`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("out", metavar="OUT", help="new directory to write")
    text = "library that reads the files"
    add_choice(parser, "--format", ("mxnet", "onnx", "huggingface"), text)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa export`` and print the names of the files."""
    from wqa.systems.export import export_huggingface, export_mxnet

    formats = {"mxnet": export_mxnet, "huggingface": export_huggingface}
    if options.format == "onnx":
        from wqa.systems.export_onnx import export_onnx

        formats["onnx"] = export_onnx
    for name in formats[options.format](options.run, options.out):
        print(printable(f"{options.out}/{name}"))
