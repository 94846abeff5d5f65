"""Export a run to MXNet's symbols and parameters, or to a Hugging Face directory.

example:
  wqa export runs/wikiqa exported
  wqa export runs/pairwise exported --format huggingface

The MXNet form serves MXNet's other languages: model-symbol.json and model-0000.params give a score
a pair, and a cascade's stages follow as networks of their own; export.json describes their inputs.
The Hugging Face form is a sequence classifier with one output, for monolithic rankers.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of the subcommand.
    """
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("out", metavar="OUT", help="new directory to write")
    parser.add_argument(
        "--format",
        default="mxnet",
        choices=("mxnet", "huggingface"),
        help="whose files (default: mxnet)",
    )


def run(options: argparse.Namespace) -> None:
    """Export as the options say, and print the names of the files.

    Parameters
    ----------
    options : argparse.Namespace
        What was parsed.
    """
    from wqa.inference.export import export_huggingface, export_mxnet

    write = export_mxnet if options.format == "mxnet" else export_huggingface
    for name in write(options.run, options.out):
        print(f"{options.out}/{name}")
