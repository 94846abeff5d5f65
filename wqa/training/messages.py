"""Standard error of a training, which outlives the terminal or the pipe that reads it."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Iterator

from wqa.data.streams import LossyStream


@contextlib.contextmanager
def lossy_messages() -> Iterator[None]:
    """Drop messages and progress bars that standard error does not take, inside the block."""
    stream: Any = LossyStream(sys.stderr)
    with contextlib.redirect_stderr(stream):
        yield
