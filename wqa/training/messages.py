"""Standard error of a training, which outlives the terminal or the pipe that reads it."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Iterator, Optional, TextIO


class _LossyStream:
    """A stream of text that drops what it cannot write.

    Parameters
    ----------
    stream : file object or None
        Stream to write to; None where the process has none.
    """

    def __init__(self, stream: Optional[TextIO]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            if self._stream is not None:
                self._stream.write(text)
        except (OSError, ValueError):  # a closed pipe or terminal, a full disk, a closed file
            pass
        return len(text)

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            pass

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lossy_messages() -> Iterator[None]:
    """Drop messages and progress bars that standard error does not take, inside the block."""
    stream: Any = _LossyStream(sys.stderr)
    with contextlib.redirect_stderr(stream):
        yield
