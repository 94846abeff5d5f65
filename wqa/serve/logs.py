"""Structured logs: a JSON object a line, on standard error. No question or candidate is in them."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
import traceback
from typing import Any, Dict, Iterator, Tuple

LOGGER = logging.getLogger(__name__)


def log(event: str, **fields: Any) -> None:
    """Log an event."""
    LOGGER.info(event, extra={"fields": fields})


def log_exception(event: str, error: BaseException) -> None:
    """Log an exception: its type and where it was raised, not its message, which may quote a
    text.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames]
    log(event, error=type(error).__name__, places=places[-8:])


class JsonLines(logging.Handler):
    """Writes a line for each record; what standard error does not take is dropped.

    A warning or an error of one line of code and one type of exception is written once a second.
    ``suppressed`` of the next line is the number of records in between.
    """

    def __init__(self) -> None:
        super().__init__()
        # When the last one was written, and the number of those that have been dropped since.
        self._written: Dict[Tuple[str, int, Any], Tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        if not super().filter(record):
            return False
        if record.levelno < logging.WARNING:
            return True
        kind = record.exc_info[0] if record.exc_info else None
        key = (record.pathname, record.lineno, kind)
        last, suppressed = self._written.get(key, (-math.inf, 0))
        if 0 <= record.created - last < 1:
            self._written[key] = (last, suppressed + 1)
            return False
        self._written[key] = (record.created, 0)
        if suppressed:
            record.suppressed = suppressed
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": os.getpid(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.name != LOGGER.name:
            line["logger"] = record.name
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        if hasattr(record, "suppressed"):
            line["suppressed"] = record.suppressed
        stream = sys.stderr
        if stream is None:
            return
        with contextlib.suppress(OSError, ValueError):  # a closed pipe or terminal, a full disk
            stream.write(json.dumps(line, default=str) + "\n")
            stream.flush()


@contextlib.contextmanager
def json_logs() -> Iterator[None]:
    """Log the package and the server in JSON inside the block."""
    names = ("wqa", "uvicorn", "asyncio")
    before = []
    for name in names:
        logger = logging.getLogger(name)
        before.append((logger, list(logger.handlers), logger.level, logger.propagate))
        logger.handlers[:] = [JsonLines()]
        logger.propagate = False
        logger.setLevel(logging.INFO if name == "wqa" else logging.WARNING)
    try:
        yield
    finally:
        for logger, handlers, level, propagate in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate
