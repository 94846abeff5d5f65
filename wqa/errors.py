"""Typed errors. Each says where, what was found, what was expected, and the mend, in one line."""


class WqaError(Exception):
    """Base of every error that a user of the package can cause and mend.

    Parameters
    ----------
    where : str
        The file, line or argument at fault.
    found : str
        What was found there.
    expected : str, optional
        What should have been there.
    mend : str, optional
        What to do about it.
    """

    def __init__(
        self, where: object, found: object, expected: object = "", mend: object = ""
    ) -> None:
        self.where, self.found, self.expected, self.mend = (
            str(where),
            str(found),
            str(expected),
            str(mend),
        )
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
    """A precision that this processor does not compute in."""


class EncoderError(WqaError):
    """A pretrained encoder that cannot be read."""


class RunDirectoryError(WqaError):
    """A run directory with a missing, cut-off or contradictory file."""


class StorageError(WqaError):
    """A file that could not be written; whatever stood there before still stands."""


class TrainingDiverged(WqaError):
    """A loss or a parameter that is no longer finite."""


class TrainingStopped(WqaError):
    """A training that a signal ended.

    Parameters
    ----------
    signal : int
        The signal.
    where : object
        How far the training came.
    checkpoints : object
        Folder of the checkpoint to go on from.
    """

    def __init__(self, signal: int, where: object, checkpoints: object) -> None:
        self.signal = signal
        super().__init__(
            where, f"stopped by signal {signal}", mend=f"the checkpoint is in {checkpoints}"
        )


class MissingDependency(WqaError, ImportError):
    """A library that comes by an extra and is not installed."""


def shorten(value: object, width: int = 60) -> str:
    """Quote a value for a message, at most ``width`` characters of it.

    Parameters
    ----------
    value : object
        What was found.
    width : int
        Characters kept.

    Returns
    -------
    str
    """
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."
