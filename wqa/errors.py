"""Typed errors, whose message is one line: where, the problem, the expectation and the remedy."""

from __future__ import annotations

import math
import numbers
import re
import sys
from typing import Any, Callable, Iterable, Iterator

#: Characters that act on a terminal, reorder its text or cannot be seen: controls (C0, DEL, C1),
#: the soft hyphen, bidirectional marks, embeddings, overrides and isolates, separators of lines
#: and paragraphs, zero-width spaces, invisible operators, annotations, tags, lone surrogates. The
#: two zero-width joiners are not among them, as Persian, Indic scripts and emoji need them.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


class WqaError(Exception):
    """Base class of errors that a user can cause and correct.

    Parameters
    ----------
    where : str
        File, line or argument that is wrong.
    found : str
        Its value, or the problem with it.
    expected : str, optional
        Description of a right value.
    hint : str, optional
        What the user can do.
    """

    def __init__(
        self, where: object, found: object, expected: object = "", hint: object = ""
    ) -> None:
        self.where = str(where)
        self.found = str(found)
        self.expected = str(expected)
        self.hint = str(hint)
        parts = [f"{self.where}: {self.found}"]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.hint:
            parts.append(self.hint)
        super().__init__(printable("; ".join(" ".join(part.split()) for part in parts)))


class DataError(WqaError):
    """A corpus, run or qrels file breaks its format."""


class InputError(WqaError):
    """A question or a candidate list that cannot be ranked."""


class QuestionTooLong(InputError):
    """A question that leaves too few tokens for its candidates."""


class OptionError(WqaError):
    """An option or argument outside its range."""


class DeviceError(WqaError):
    """A device that is unknown or absent."""


class PrecisionError(WqaError):
    """A precision that this processor does not support."""


class EncoderError(WqaError):
    """A pretrained encoder that cannot be read."""


class RunDirectoryError(WqaError):
    """A run directory with a missing, truncated or contradictory file."""


class StorageError(WqaError):
    """A file that cannot be written; its old content is kept."""


class ScoreError(WqaError):
    """A score of a candidate that is not a finite number."""


class ProcessError(WqaError):
    """A forked process that uses what only its parent has."""


class ClusterError(WqaError):
    """A cluster that does not answer, or work that failed on it."""


class OutputLocked(StorageError):
    """An output that another process writes to.

    Parameters
    ----------
    path : object
        File or folder.
    lock : object
        The lock file.
    """

    def __init__(self, path: object, lock: object) -> None:
        super().__init__(
            path,
            f"locked by another process, in {lock}",
            "one writer at a time",
            "wait until it ends, stop it, or choose another output",
        )


class TrainingDiverged(WqaError):
    """A loss or a parameter that is not finite."""


class Stopped(WqaError):
    """Work that a signal stopped, and that can be continued.

    Parameters
    ----------
    signal : int
        Number of the signal.
    where : object
        How far the work came.
    hint : object
        Where its result so far is.
    """

    def __init__(self, signal: int, where: object, hint: object) -> None:
        self.signal = signal
        super().__init__(where, f"stopped by signal {signal}", hint=hint)


class TrainingStopped(Stopped):
    """A training that a signal stopped.

    Parameters
    ----------
    signal : int
        Number of the signal.
    where : object
        Number of updates that were made.
    checkpoints : object
        Folder of the checkpoint from which the training can be resumed.
    """

    def __init__(self, signal: int, where: object, checkpoints: object) -> None:
        super().__init__(signal, where, f"the checkpoint is in {checkpoints}")


class MissingDependency(WqaError, ImportError):
    """A library that is missing: of an extra of the package, or of the NVIDIA driver."""


def how_to_install(extra: str) -> str:
    """Say how to install an extra of the package, which is on no package index.

    Parameters
    ----------
    extra : str
        Name of the extra, a key of ``extras_require`` in ``setup.py``.

    Returns
    -------
    str
        Part of a sentence, for `MissingDependency`.
    """
    return f"in a checkout of wqa: pip install -e '.[{extra}]'"


def not_installed(library: str, expected: str, extra: str) -> MissingDependency:
    """The error of a library that is not installed, which an extra of the package brings."""
    return MissingDependency(library, "is not installed", expected, how_to_install(extra))


def counted(count: int, noun: str) -> str:
    """A number of things: "1 document", "2 documents"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    r"""Escape what must not reach a terminal.

    Parameters
    ----------
    text : str
        Text from outside: a question, a candidate, an id, the name of a file.

    Returns
    -------
    str
        One line, in which each character of `UNPRINTABLE` is escaped as in a Python string:
        ``\n``, ``\x1b``, ``\u202e``. All others stay, a backslash among them.
    """
    return UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def shorten(value: object, width: int = 60) -> str:
    """Quote a value for a message, in at most ``width`` characters.

    Parameters
    ----------
    value : object
        Value to quote.
    width : int
        Greatest length of the result.

    Returns
    -------
    str
        The start of ``repr(value)``. Of lists, tuples and dicts, which may hold one object many
        times, no more is made than is shown.
    """
    text = ""
    for piece in _pieces(value, width):
        text += piece
        if len(text) > width:
            return text[: width - 3] + "..."
    return text


def _pieces(value: Any, width: int) -> Iterator[str]:
    """Parts of ``repr(value)``, none of them empty, or its start."""
    if type(value) in (list, tuple, dict):
        opening, closing = _BRACKETS[type(value).__name__]
        yield opening
        for index, item in enumerate(value):
            if index:
                yield ", "
            yield from _pieces(item, width)
            if isinstance(value, dict):
                yield ": "
                yield from _pieces(value[item], width)
        yield ",)" if isinstance(value, tuple) and len(value) == 1 else closing
    elif isinstance(value, (str, bytes)):
        yield repr(value[:width])
    else:
        try:
            yield repr(value)
        except (RecursionError, ValueError):  # Python prints no number of thousands of digits
            yield f"a value of type {type(value).__name__}"


_BRACKETS = {"list": ("[", "]"), "tuple": ("(", ")"), "dict": ("{", "}")}


def check_choice(where: str, value: object, choices: Iterable[str]) -> None:
    """Check that an argument has one of a few values.

    Parameters
    ----------
    where : str
        Name of the argument.
    value : object
        Value of the argument.
    choices : iterable of str
        Values that it may have, such as the keys of a registry.

    Raises
    ------
    OptionError
        If it has another value; the message lists the choices.
    """
    choices = list(choices)
    if value not in choices:
        raise OptionError(where, shorten(value), "one of " + ", ".join(choices))


def check_range(where: str, value: Any, least: float, most: float = math.inf) -> None:
    """Check that a number lies in a range; a least value of type float allows fractions.

    Parameters
    ----------
    where : str
        Name of the argument.
    value : int or float
        Value of the argument.
    least, most : float
        Its bounds, which it may have, but for infinity.

    Raises
    ------
    OptionError
        If it lies outside, or is no number.
    """
    kind = numbers.Real if isinstance(least, float) else numbers.Integral
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or value == math.inf:
        noun = "a number" if kind is numbers.Real else "a whole number"
        upper = "" if most == math.inf else f" to {most:.10g}"
        raise OptionError(where, shorten(value), f"{noun} from {least:.10g}{upper}")


def run_script(main: Callable[..., Any], *arguments: Any) -> None:
    """Call the main function of a script and exit with its status; an error is one line and 2."""
    try:
        sys.exit(main(*arguments))
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
