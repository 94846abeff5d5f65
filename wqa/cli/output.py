"""Output of subcommands: a text, or the result as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from wqa.errors import OptionError


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    text = "write the result as JSON too; - for standard output instead of the table"
    parser.add_argument("--json", metavar="FILE", type=_output_file, help=text)


def _output_file(path: str) -> str:
    """A name that a file can be written to at the end, or ``-``."""
    if os.path.isdir(path):
        raise OptionError("--json", f"{path}, a folder", "the name of a file, or -")
    return path


def show(text: str, value: Any, path: str) -> None:
    """Print a result as text, or write it as JSON, or both."""
    if path == "-":
        sys.stdout.write(_document(value))
        return
    # The file first: a reader of standard output may close it.
    if path:
        from wqa.io.files import atomic_writer  # needs NumPy, which `wqa doctor` may find missing

        with atomic_writer(path) as file:
            file.write(_document(value))
    print(text)


def _document(value: Any) -> str:
    """A value as JSON in ASCII, which no terminal takes for a command."""
    # JSON has no NaN and no infinity.
    value = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f") + "\n"
