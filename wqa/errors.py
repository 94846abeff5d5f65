"""Typed errors, whose message is one line: where, the problem, the expectation and the remedy."""

from __future__ import annotations

from typing import Iterable


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
    mend : str, optional
        What the user can do.
    """

    def __init__(
        self, where: object, found: object, expected: object = "", mend: object = ""
    ) -> None:
        self.where = str(where)
        self.found = str(found)
        self.expected = str(expected)
        self.mend = str(mend)
        parts = [f"{self.where}: {self.found}"]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.mend:
            parts.append(self.mend)
        super().__init__("; ".join(" ".join(part.split()) for part in parts))


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


class TrainingDiverged(WqaError):
    """A loss or a parameter that is not finite."""


class TrainingStopped(WqaError):
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
        self.signal = signal
        super().__init__(
            where, f"stopped by signal {signal}", mend=f"the checkpoint is in {checkpoints}"
        )


class MissingDependency(WqaError, ImportError):
    """A library that an extra of the package installs, and that is missing."""


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
        The start of ``repr(value)``.
    """
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."


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
