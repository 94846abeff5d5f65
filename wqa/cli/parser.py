"""The parser of commands: short help for newcomers, and errors of one line."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
import textwrap
from typing import Any, Callable, Dict, NoReturn, Optional, Sequence

from wqa.errors import OptionError, WqaError, shorten

#: What took the place of commands that are gone, by their names.
MOVED = {
    "answer": "wqa ask INDEX --reader RUN takes its place",
    "compare": "wqa evaluate takes its place, with several RUNs or --run files",
    "agreement": "recipes/mhs/agreement.py takes its place",
    "completion": "nothing takes its place",
    "demo": "wqa rank takes its place",
    "reproduce": "recipes/tables.py writes the tables of docs/results",
}

#: An argument with its value, as Python takes it: ``ctx="cpu"``, ``keep=5``.
_ARGUMENT = re.compile(r'\b([a-z]\w*)=("?)([\w.,:/-]+)\2')
#: Longest message of argparse that is shown, which may quote an argument of any length.
_LONGEST = 300


class CommandParser(argparse.ArgumentParser):
    """Parser of a command, whose arguments are added when it is first used.

    Parameters
    ----------
    add_arguments : callable
        Adds the arguments.
    first : sequence of str
        Names of the options that ``--help`` explains beside those that are required; none for all.
        ``--help-all`` explains all options, and shows the whole description.
    **keywords
        As `argparse.ArgumentParser` takes them.
    """

    def __init__(
        self,
        add_arguments: Optional[Callable[[CommandParser], None]] = None,
        first: Sequence[str] = (),
        **keywords: Any,
    ) -> None:
        layout = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=30)
        keywords.setdefault("formatter_class", layout)
        super().__init__(**keywords)
        self.first = first
        self._add_own_arguments = add_arguments
        self.set_defaults(parser=self)
        if first:
            text = "show all options, and what the command does, and exit"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help=text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments as `argparse.ArgumentParser` does."""
        self.complete()
        return super().parse_known_args(args, namespace)

    def complete(self) -> None:
        """Add the arguments, if this has not happened yet."""
        add_arguments, self._add_own_arguments = self._add_own_arguments, None
        if add_arguments is not None:
            add_arguments(self)

    def format_help(self) -> str:
        """Help text of the first options, or of all where none are named."""
        self.complete()
        if not self.first:
            return super().format_help()
        shown = [action for action in self._actions if self._is_first(action)]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, [action for action in shown if action.required], [])
        formatter.add_text("\n\n".join((self.description or "").split("\n\n")[:2]))
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments([action for action in group._group_actions if action in shown])
            formatter.end_section()
        further = [action.option_strings[-1] for action in self._actions if action not in shown]
        formatter.start_section("further options, which --help-all explains")
        formatter.add_text(textwrap.fill(" ".join(further), width=90, break_on_hyphens=False))
        formatter.end_section()
        return formatter.format_help()

    def _is_first(self, action: argparse.Action) -> bool:
        """Whether ``--help`` explains an argument."""
        names = (*self.first, "help", "help_all")
        return action.required or not action.option_strings or action.dest in names

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            if value in MOVED:
                raise OptionError(value, "is no command any more", hint=MOVED[value])
            nearest = difflib.get_close_matches(value, action.choices, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"{self.prog} --help explains them"
            known = ", ".join(action.choices)
            raise OptionError(str(action.metavar), shorten(value), f"one of {known}", hint)
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stdout).write(message)  # argparse would drop errors

    def error(self, message: str) -> NoReturn:
        """Raise an `OptionError` with a message of argparse."""
        if len(message) > _LONGEST:
            message = message[: _LONGEST - 3] + "..."
        hint = f"{self.prog} --help explains its arguments"
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        nearest = self._nearest(unknown[1]) if unknown else ""
        if nearest:
            hint = f"did you mean {nearest}? {hint}"
        raise OptionError(self.prog, message, hint=hint)

    def _nearest(self, flag: str) -> str:
        """The option that a flag is likely meant for, by its spelling or its initials."""
        flags = [option for action in self._actions for option in action.option_strings]
        by_initials = {re.sub(r"-+(\w)[^-]*", r"\1", option): option for option in flags}
        close = difflib.get_close_matches(flag, flags, n=1)
        return by_initials.get(flag.strip("-")) or (close or [""])[0]


class _HelpAll(argparse.Action):
    """Shows the help text of all options."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.first = ()
        parser.print_help()
        parser.exit()


def at_the_command_line(error: WqaError, parser: argparse.ArgumentParser) -> str:
    """Message of an error, whose arguments have the names that they have on the command line.

    The argument ``learning_rate`` is the option ``--learning-rate``, ``ctx="cpu"`` in a hint is
    ``--ctx cpu``, and ``run`` is ``RUN``.
    """
    flags: Dict[str, str] = {}
    for action in parser._actions:  # argparse has no public list of them
        flags[action.dest] = str(action.metavar)
        for flag in reversed(action.option_strings):
            flags[action.dest] = flags[flag.lstrip("-").replace("-", "_")] = flag

    def as_flag(match: re.Match[str]) -> str:
        return f"{flags[match[1]]} {match[3]}" if match[1] in flags else match[0]

    where = " and ".join(flags.get(name, name) for name in error.where.split(" and "))
    parts = [_ARGUMENT.sub(as_flag, part) for part in (error.found, error.expected, error.hint)]
    return str(WqaError(where, *parts))
