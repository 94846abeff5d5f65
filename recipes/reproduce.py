#!/usr/bin/env python3
"""Reproduce a table of a paper, or check the figures that are committed.

    python recipes/reproduce.py cascade/table2 --scale small
    python recipes/reproduce.py cascade --check
    python recipes/reproduce.py --check

Runs the recipe of the table, unless all its figures are there already, and prints published beside
reproduced figures: OK within their tolerance, near within twice that, FAIL, or why they cannot be
had here. What the recipe writes goes to runs/reproduced/PAPER. --check runs nothing, and judges
what is committed at both scales. The exit status is 1 if a figure or a claim fails.
"""

import argparse
import json
import pathlib
import shutil
import sys

from wqa.errors import OptionError, WqaError
from wqa.evaluation.claims import SCALES
from wqa.evaluation.layout import matrix, overview
from wqa.evaluation.report import WIDTH
from wqa.evaluation.reproduction import check, reproduce


def main(arguments):
    """Print the judgements; 1 if a figure or a claim fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", nargs="?", default="", metavar="PAPER[/TABLE]")
    parser.add_argument("--scale", choices=SCALES)
    parser.add_argument("--check", action="store_true", help="judge committed figures; run nothing")
    parser.add_argument("--recipes", default=pathlib.Path(__file__).parent, metavar="DIR")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    if options.check:
        scales = (options.scale,) if options.scale else SCALES
        judgements = check(options.table, options.recipes, scales)
    elif options.table:
        judgements = reproduce(options.table, options.recipes, options.scale or "small")
    else:
        raise OptionError("PAPER/TABLE", "none", "one to reproduce", "or pass --check")
    text = overview(judgements)
    if options.table:
        width = shutil.get_terminal_size((WIDTH, 0)).columns
        text = "\n\n".join(matrix(judgement, width) for judgement in judgements)
    print(text)
    if options.json:
        document = json.dumps([judgement.as_json() for judgement in judgements], indent=2)
        pathlib.Path(options.json).write_text(document + "\n", encoding="utf-8")
    return int(any(judgement.failed for judgement in judgements))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
