"""The command line: one short file a subcommand, which parses and calls one function.

The module of a subcommand has two functions. ``add_arguments(parser)`` adds its arguments to an
`argparse.ArgumentParser`. ``run(options)`` takes the parsed arguments.
"""

from __future__ import annotations

import argparse
import sys
from typing import Optional, Sequence

import wqa
from wqa.cli import (
    bench,
    compare,
    convert,
    evaluate,
    export,
    quantize,
    rank,
    report,
    tokenize,
    train,
    tune,
)
from wqa.cli.messages import at_the_command_line
from wqa.errors import TrainingStopped, WqaError, printable

COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "compare": compare,
    "rank": rank,
    "convert": convert,
    "export": export,
    "bench": bench,
    "quantize": quantize,
    "report": report,
    "tokenize": tokenize,
    "tune": tune,
}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands.

    Returns
    -------
    argparse.ArgumentParser
        Its options include ``command`` and the ``parser`` of the subcommand.
    """
    parser = argparse.ArgumentParser(
        prog="wqa",
        description="Answer sentence selection: put the sentence that answers a question first.",
    )
    parser.add_argument("--version", action="version", version=f"wqa {wqa.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").strip()
        sub = commands.add_parser(
            name,
            help=summary.splitlines()[0],
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            conflict_handler="resolve",  # a subcommand may bring its own --help
        )
        module.add_arguments(sub)
        sub.set_defaults(parser=sub)
    return parser


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse a command line, including the options of the system that it trains.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments to parse; by default those of the process.

    Returns
    -------
    argparse.Namespace
        Options, with ``command``, the whole ``command_line`` and the subcommand's ``parser``.

    Raises
    ------
    WqaError
        If the system is unknown.
    """
    parser = build_parser()
    options, _ = parser.parse_known_args(arguments)
    if options.command == "train":
        train.add_own_options(options.parser, options.system)
    options = parser.parse_args(arguments)
    options.command_line = ["wqa", *(sys.argv[1:] if arguments is None else arguments)]
    return options


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Parse a command line and run the subcommand.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line, as `parse` takes it.

    Returns
    -------
    int
        Exit code: 0; 2 after an error, with one line on standard error; 128 plus the number of a
        signal.
    """
    parser = None
    try:
        options = parse(arguments)
        parser = options.parser
        COMMANDS[options.command].run(options)
    except TrainingStopped as stopped:
        message = f"{stopped.where}: {stopped.found}; resume with:"
        print(f"{message}\n{printable(options.resume_command)}", file=sys.stderr)
        return 128 + stopped.signal
    except WqaError as error:
        text = at_the_command_line(error, parser) if parser else str(error)
        print(f"error: {text}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has closed it
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0
