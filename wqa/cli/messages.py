"""Messages of the library's errors, with flags in place of arguments."""

from __future__ import annotations

import argparse
import re
from typing import Dict

from wqa.errors import WqaError

#: An argument with its value, as Python takes it: ``ctx="cpu"``, ``picture=False``.
_ARGUMENT = re.compile(r"""(?<![\w./'"-])([a-z]\w*)=("[^"]*"|'[^']*'|[^\s,;)]+)""")
#: A name of several words, which does not occur in ordinary text.
_LONG_NAME = re.compile(r"""(?<![\w./'"-])[a-z]\w*_\w+(?![\w/'"-])""")


def at_the_command_line(error: WqaError, parser: argparse.ArgumentParser) -> str:
    """Message of an error, with flags in place of arguments.

    If the error's ``where`` is an option, such as ``learning_rate``, it becomes the flag
    ``--learning-rate``, and so does each name of several words in the message. In all errors
    ``ctx="cpu"`` becomes ``--ctx cpu``.
    """
    flags = _flags(parser)
    names = error.where.split(" and ")
    is_option = all(name in flags for name in names)

    def reworded(text: str) -> str:
        text = _ARGUMENT.sub(lambda match: _as_flag(match, flags), text)
        if is_option:
            text = _LONG_NAME.sub(lambda match: flags.get(match[0], match[0]), text)
        return text

    where = error.where
    if is_option:
        where = " and ".join(flags[name] for name in names)
    parts = map(reworded, (error.found, error.expected, error.mend))
    return str(WqaError(where, *parts))


def with_flags(text: str, parser: argparse.ArgumentParser) -> str:
    """A message that the library logs, with flags in place of arguments such as ``ctx="cpu"``."""
    flags = _flags(parser)
    return _ARGUMENT.sub(lambda match: _as_flag(match, flags), text)


def _flags(parser: argparse.ArgumentParser) -> Dict[str, str]:
    """Flag of each option, or metavar of a positional argument, by the library's names."""
    flags = {}
    for action in parser._actions:  # argparse has no public list of them
        flags[action.dest] = str(action.metavar)
        for flag in reversed(action.option_strings):
            flags[action.dest] = flag
            flags[flag.lstrip("-").replace("-", "_")] = flag
    return flags


def _as_flag(match: re.Match[str], flags: Dict[str, str]) -> str:
    name, value = match.groups()
    if name not in flags:
        return match[0]
    if value in ("True", "False"):
        return flags[name]
    value = value.strip("\"'")
    return f"{flags[name]} {value}"
