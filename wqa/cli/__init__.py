"""The command line: one short file a subcommand, which parses and calls one function.

The module of a subcommand has two functions. ``add_arguments(parser)`` adds its arguments to an
`argparse.ArgumentParser`. ``run(options)`` takes the parsed arguments, and may return an exit
status.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import os
import re
import sys
from typing import Any, Dict, List, NoReturn, Optional, Sequence

import wqa
from wqa.cli.options import check_number, note_cache
from wqa.cli.output import at_the_command_line, with_flags
from wqa.cli.systems import (
    Settings,
    add_own_options,
    read_settings,
    set_training_defaults,
    subparsers,
)
from wqa.errors import (
    MissingDependency,
    OptionError,
    Stopped,
    StorageError,
    WqaError,
    printable,
    shorten,
)
from wqa.io.streams import MessageHandler, messages_on_stderr

#: Exit status after an error of the user, and after an interrupt or the end of a pipe's reader: 128
#: plus the number of SIGINT or SIGPIPE.
FAILED, INTERRUPTED, BROKEN_PIPE = 2, 130, 141

OUT_OF_MEMORY = StorageError(
    "memory", "there is not enough of it", mend="take a smaller model or less data at a time"
)

#: Modules of the subcommands, in the order of the help text.
_MODULES = (
    "train evaluate ask calibrate index rank verify retrieve "
    "convert doctor embed_words encode export bench quantize score serve "
    "tokenize tune"
)
COMMANDS = {
    module.replace("_", "-"): importlib.import_module(f"wqa.cli.{module}")
    for module in _MODULES.split()
}
#: What took the place of commands that are gone, by their names.
MOVED = {
    "answer": "wqa ask INDEX --reader RUN takes its place",
    "compare": "wqa evaluate takes its place, with several RUNs or --run files",
    "agreement": "recipes/mhs/agreement.py takes its place",
    "completion": "nothing takes its place",
    "demo": "wqa rank takes its place",
    "reproduce": "recipes/tables.py writes the tables of docs/results",
}

_ONE_LETTER = re.compile("--[a-z]")
#: Characters of a parser's message, which may quote an argument of any length.
_LONGEST = 300
#: What an option expects that takes a number.
_NUMBERS: Dict[Any, str] = {int: "a whole number", float: "a number"}


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, as all others are.

    An option of one letter, such as ``--k``, is no abbreviation: the options of a system are known
    only after the first pass.
    """

    def _get_option_tuples(self, option_string: str) -> List:
        if _ONE_LETTER.fullmatch(option_string.partition("=")[0]):
            return []
        return super()._get_option_tuples(option_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            if value in MOVED:
                raise OptionError(value, "is no command any more", mend=MOVED[value])
            nearest = difflib.get_close_matches(value, action.choices, n=1)
            mend = f"did you mean {nearest[0]}?" if nearest else "wqa --help explains them"
            raise OptionError(
                "COMMAND", shorten(value), f"one of {', '.join(action.choices)}", mend
            )
        super()._check_value(action, value)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in _NUMBERS:
                raise
            name = argparse._get_action_name(action)
            raise OptionError(name, shorten(arg_string), _NUMBERS[action.type]) from None

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError:
            name, value = argparse._get_action_name(action), action.metavar or "a value"
            mend = f"{self.prog} --help explains it"
            raise OptionError(name, "no value", str(value), mend) from None

    def error(self, message: str) -> NoReturn:
        if len(message) > _LONGEST:
            message = message[: _LONGEST - 3] + "..."
        raise OptionError(self.prog, message, mend=f"{self.prog} --help explains its arguments")


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """Build the parser of the subcommands."""
    parser = _Parser(
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
        if command in ("", name):
            module.add_arguments(sub)
        sub.set_defaults(parser=sub)
    return parser


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse a command line, including the options of the system that it trains or times."""
    given = sys.argv[1:] if arguments is None else arguments
    for argument in given:
        if "\0" in argument:
            raise OptionError(shorten(argument), "holds the character NUL", "text without it")
    command = next((word for word in given if not word.startswith("-")), "")
    parser = build_parser(command)
    settings = read_settings(given) if command == "train" else Settings("", {})
    if settings.values:
        settings.set_defaults(subparsers(parser)[command])
    options, _ = parser.parse_known_args(arguments)
    if options.command in ("bench", "train"):
        _add_own_options(options)
    if options.command == "train":
        # Its own options decide some defaults, and are known now.
        settings.check_keys(options.parser)
        settings.set_defaults(options.parser)
        options, _ = parser.parse_known_args(arguments)
        set_training_defaults(options.parser, options, settings.values)
        settings.set_defaults(options.parser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.command_line = ["wqa", *given]
    return options


def _add_own_options(options: argparse.Namespace) -> None:
    """Add the options of the system that a command line trains or times.

    Exported graphs are timed where MXNet is not installed.
    """
    try:
        add_own_options(options.parser, options.system)
    except MissingDependency:
        if options.command == "train" or options.random:
            raise


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Parse a command line and run the subcommand."""
    try:
        return run_command(arguments)
    except MemoryError:
        print(f"error: {OUT_OF_MEMORY}", file=sys.stderr)
        return FAILED


def run_command(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the subcommand as `main` does, but raise a MemoryError, after which a process must
    end.
    """
    with messages_on_stderr() as messages:
        return _run_command(arguments, messages)


def _run_command(arguments: Optional[Sequence[str]], messages: MessageHandler) -> int:
    parser = None
    try:
        options = parse(arguments)
        parser = options.parser
        messages.reword = functools.partial(with_flags, parser=parser)
        for name, value in vars(options).items():
            check_number(value, name)
        status = COMMANDS[options.command].run(options)
        note_cache(options)
    except Stopped as stopped:
        message = f"{stopped.where}: {stopped.found}; resume with:"
        print(f"{message}\n{printable(options.resume_command)}", file=sys.stderr)
        return 128 + stopped.signal
    except BrokenPipeError:
        return BROKEN_PIPE
    except (WqaError, OSError) as error:
        typed = _typed(error)
        text = at_the_command_line(typed, parser) if parser else str(typed)
        print(f"error: {text}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return status or 0


def _typed(error: Exception) -> WqaError:
    """The typed error for one of the operating system."""
    if isinstance(error, WqaError):
        return error
    reason = error.strerror or str(error)  # type: ignore[attr-defined]
    where = error.filename or "operating system"  # type: ignore[attr-defined]
    return StorageError(os.fspath(where), reason, mend="check the path, its permissions and space")
