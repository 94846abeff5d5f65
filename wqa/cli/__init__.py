"""The command line: one short file a subcommand, which parses and calls one function.

The module of a subcommand has two functions. ``add_arguments(parser)`` adds its arguments to an
`argparse.ArgumentParser`. ``run(options)`` takes the parsed arguments, and may return an exit
status. Its ``FIRST``, if it has one, names the options that ``--help`` explains.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from importlib import import_module
from typing import Optional, Sequence, Union

import wqa
from wqa.cli.options import check_number, note_cache
from wqa.cli.parser import CommandParser, at_the_command_line
from wqa.errors import Stopped, StorageError, WqaError, printable
from wqa.io.progress import messages_on_stderr

#: Exit status after an error of the user, and after an interrupt or the end of a pipe's reader: 128
#: plus the number of SIGINT or SIGPIPE.
FAILED, INTERRUPTED, BROKEN_PIPE = 2, 130, 141

#: Modules of the subcommands, in the order of the help text.
_MODULES = (
    "train evaluate ask calibrate index rank verify retrieve convert doctor embed_words encode "
    "export bench quantize score serve tokenize tune"
)
COMMANDS = {
    module.replace("_", "-"): import_module(f"wqa.cli.{module}") for module in _MODULES.split()
}


def build_parser() -> CommandParser:
    """Build the parser of the subcommands."""
    parser = CommandParser(
        prog="wqa",
        description="Answer sentence selection: put the sentence that answers a question first.",
    )
    parser.add_argument("--version", action="version", version=f"wqa {wqa.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").strip()
        commands.add_parser(
            name,
            help=summary.splitlines()[0],
            description=summary,
            add_arguments=module.add_arguments,
            first=getattr(module, "FIRST", ()),
        )
    return parser


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse a command line."""
    words = sys.argv[1:] if arguments is None else arguments
    options, unknown = build_parser().parse_known_args(words)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.command_line = ["wqa", *words]
    return options


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Parse a command line and run the subcommand; returns the exit status."""
    options = argparse.Namespace(parser=CommandParser())
    try:
        with messages_on_stderr(), contextlib.ExitStack() as stack:
            stack.callback(sys.stdout.flush)  # here, where an error can be shown
            options = parse(arguments)
            for name, value in vars(options).items():
                check_number(value, name)
            status = COMMANDS[options.command].run(options)
            note_cache(options)
            return status or 0
    except Stopped as stopped:
        message = f"{stopped.where}: {stopped.found}; resume with:"
        print(f"{message}\n{printable(options.resume_command)}", file=sys.stderr)
        return 128 + stopped.signal
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except (WqaError, OSError, MemoryError) as error:
        text = at_the_command_line(_typed(error), options.parser)
        print(f"error: {text}", file=sys.stderr)
        return FAILED


def _typed(error: Union[WqaError, OSError, MemoryError]) -> WqaError:
    """The typed error for one of the operating system."""
    if isinstance(error, MemoryError):
        hint = "take a smaller model or less data at a time"
        return StorageError("memory", "there is not enough of it", hint=hint)
    if isinstance(error, OSError) and not isinstance(error, WqaError):
        where = error.filename or "standard output or the system"
        hint = "check the path, its permissions and space"
        return StorageError(where, error.strerror or error, hint=hint)
    return error
