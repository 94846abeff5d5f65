"""Standard error of a training, which outlives the terminal or the pipe that reads it."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Iterable, Iterator, Tuple

from wqa.errors import printable
from wqa.io.files import PathLike
from wqa.io.streams import LossyStream

LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def lossy_messages() -> Iterator[None]:
    """Drop messages and progress bars that standard error does not take, inside the block."""
    stream: Any = LossyStream(sys.stderr)
    with contextlib.redirect_stderr(stream):
        yield


def note_counts(train_file: PathLike, counts: Iterable[Tuple[int, str, str]]) -> None:
    """Print on standard error what was cut from training data, or left out, if anything was."""
    parts = []
    for count, what, done in counts:
        if count:
            parts.append(f"{count:,} {what}{'s' if count > 1 else ''} {done}")
    if parts:
        LOGGER.warning(printable(f"{train_file}: {', '.join(parts)}"))
