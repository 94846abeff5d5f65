"""A stream of messages that are not worth an error: progress, notes, the line of an error."""

from __future__ import annotations

from typing import Any, Optional, TextIO


class LossyStream:
    """A stream of text that drops what it cannot write.

    Parameters
    ----------
    stream : file object or None
        Stream to write to; None where the process has none.
    """

    def __init__(self, stream: Optional[TextIO]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        int
            Its length.
        """
        try:
            if self._stream is not None:
                self._stream.write(text)
        except (OSError, ValueError):  # a closed pipe or terminal, a full disk, a closed file
            pass
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            pass

    def isatty(self) -> bool:
        """Whether the stream is a terminal.

        Returns
        -------
        bool
        """
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
