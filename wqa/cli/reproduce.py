"""Reproduce a table of a paper, or check the figures that are committed.

examples:
  wqa reproduce cascade/table2 --scale small
  wqa reproduce cascade/table2 --check
  wqa reproduce --check

It runs the recipe of the table, unless all its figures are there already, and prints published
beside reproduced figures: OK within their tolerance, near within twice that, FAIL, or why they
cannot be had here. Figures of another unit or other hardware are shown and do not count. What the
recipe writes goes to runs/reproduced/PAPER; after a stop the same command resumes. --check runs
nothing, and judges what is committed at both scales. The exit status is 1 if a figure or a claim
fails. Run it in a checkout of the repository, which holds the recipes.
"""

from __future__ import annotations

import argparse
import shutil

from wqa.cli.output import add_json, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa reproduce`` to its parser."""
    parser.add_argument(
        "table",
        nargs="?",
        default="",
        metavar="PAPER[/TABLE]",
        help="such as cascade/table3, or cascade; all by default, with --check",
    )
    parser.add_argument(
        "--scale", choices=("paper", "small"), help="scale (default: small; both with --check)"
    )
    parser.add_argument("--check", action="store_true", help="judge committed figures; run nothing")
    parser.add_argument(
        "--recipes",
        default="recipes",
        metavar="DIR",
        help="folder of all recipes (default: recipes)",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run ``wqa reproduce``, print the tables, and return 1 if a figure or a claim fails."""
    from wqa.errors import OptionError
    from wqa.evaluation.claims import SCALES
    from wqa.evaluation.layout import matrix, overview
    from wqa.evaluation.report import WIDTH
    from wqa.evaluation.reproduction import check, reproduce

    if options.check:
        scales = (options.scale,) if options.scale else SCALES
        judgements = check(options.table, options.recipes, scales)
    elif options.table:
        judgements = reproduce(options.table, options.recipes, options.scale or "small")
    else:
        raise OptionError("table", "none", "PAPER or PAPER/TABLE", "or pass check=True")
    text = overview(judgements)
    if options.table:
        width = shutil.get_terminal_size((WIDTH, 0)).columns
        text = "\n\n".join(matrix(judgement, width) for judgement in judgements)
    show(text, [judgement.as_json() for judgement in judgements], options.json)
    return int(any(judgement.failed for judgement in judgements))
