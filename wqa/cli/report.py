"""Show a paper's published figures beside the reproduced ones.

example:
  wqa report cascade

It prints all tables of the paper, each figure as PUBLISHED | REPRODUCED or "not run", with the
recipe that reproduces it, and then the tables of other scales. Wide tables are divided to fit the
terminal, or 100 characters where there is none. Run it in a checkout of the repository, which holds
the tables beside the recipes.
"""

from __future__ import annotations

import argparse
import shutil


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa report`` to its parser."""
    parser.add_argument("paper", metavar="PAPER", help="folder of its recipes, such as cascade")
    parser.add_argument(
        "--recipes",
        default="recipes",
        metavar="DIR",
        help="folder of all recipes (default: recipes)",
    )


def run(options: argparse.Namespace) -> None:
    """Run ``wqa report`` and print the tables."""
    from wqa.evaluation.report import WIDTH, report

    width = shutil.get_terminal_size((WIDTH, 0)).columns
    print(report(options.paper, options.recipes, width))
