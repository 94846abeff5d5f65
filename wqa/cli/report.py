"""Lay what the recipes reproduced beside what a paper published.

example:
  wqa report cascade

Every table of the paper is printed, each figure as PUBLISHED | REPRODUCED or "not run", with the
recipe that gives it; then the tables of other scales. Run it in a checkout, as the tables lie
beside the recipes.
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
    parser.add_argument("paper", metavar="PAPER", help="folder of its recipes, such as cascade")
    parser.add_argument(
        "--recipes",
        default="recipes",
        metavar="DIR",
        help="folder of all recipes (default: recipes)",
    )


def run(options: argparse.Namespace) -> None:
    """Print the report.

    Parameters
    ----------
    options : argparse.Namespace
        What was parsed.
    """
    from wqa.evaluation.report import report

    print(report(options.paper, options.recipes))
