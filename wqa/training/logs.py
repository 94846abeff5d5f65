"""What a training tells while it runs: ``metrics.jsonl``, TensorBoard, messages and the bar.

Standard error of a training outlives the terminal or the pipe that reads it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import re
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from tqdm import tqdm

from wqa.config import parse_json
from wqa.errors import MissingDependency, how_to_install
from wqa.io.files import atomic_writer, storage_errors
from wqa.io.streams import LossyStream

#: How each line of ``metrics.jsonl`` begins.
_START = b'{"update": '


class MetricsFile:
    """The file ``metrics.jsonl`` of a run directory: one JSON object a line."""

    def __init__(
        self, path: pathlib.Path, listener: Optional[Callable[[Dict[str, Any]], None]] = None
    ) -> None:
        self.path, self._listener = path, listener

    def is_own(self) -> bool:
        """Whether the file begins as a training writes it, or holds no more than a part of that."""
        if not self.path.is_file():  # absent, or a device
            return True
        try:
            with open(self.path, "rb") as file:
                return _START.startswith(file.read(len(_START)))
        except OSError:
            return False

    def append(self, line: Dict[str, Any]) -> None:
        """Append a line."""
        with storage_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._listener is not None:
            self._listener(line)

    def sync(self) -> None:
        """Flush all lines to the disk."""
        if self.path.exists():
            with storage_errors(self.path), open(self.path, "ab") as file:
                os.fsync(file.fileno())

    def log_start(self, start: str) -> bool:
        """Write the first line of a run that starts from another one, if the file lacks it."""
        lines = self._lines()
        if any("start" in self._parse(line) for line in lines[:1]):
            return False
        first = json.dumps({"update": 0, "start": start}).encode("utf-8")
        self._write([first, *lines])
        return True

    def keep_until(self, update: int) -> None:
        """Delete the lines after an update, and those that were not written completely."""
        kept = []
        for line in self._lines():
            number = self._parse(line).get("update")
            if isinstance(number, int) and number <= update:
                kept.append(line)
        if self.path.exists():
            self._write(kept)

    def _lines(self) -> List[bytes]:
        return self.path.read_bytes().split(b"\n") if self.path.is_file() else []

    @staticmethod
    def _parse(line: bytes) -> Dict[str, Any]:
        """The object of a line; an empty one if the line holds none."""
        try:
            values = parse_json(line)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}

    def _write(self, lines: List[bytes]) -> None:
        with atomic_writer(self.path, "wb") as file:
            file.writelines(line + b"\n" for line in lines if line)


LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def lossy_messages() -> Iterator[None]:
    """Drop messages and progress bars that standard error does not take, inside the block."""
    stream: Any = LossyStream(sys.stderr)
    with contextlib.redirect_stderr(stream):
        yield


#: Number of updates without an estimate. Libraries compile their kernels in the first ones, for the
#: shapes of those batches, which takes many times longer than an update does.
COMPILING = 10


class TrainingBar(tqdm):
    """Bar on standard error whose speed is measured after the first updates of the process.

    Until then it shows no time that is left. The measurement includes evaluations and checkpoints.
    """

    def __init__(self, total: int, done: int, **options: Any) -> None:
        # Number of updates and the time at which the measurement starts.
        self._measured_from: Optional[Tuple[int, float]] = None
        options = {
            "desc": "training",
            "unit": "update",
            "file": sys.stderr,
            "mininterval": 0.5 if sys.stderr.isatty() else 20,
            "dynamic_ncols": True,
            **options,
        }
        super().__init__(total=total, initial=done, **options)

    def update(self, n: float = 1) -> Optional[bool]:
        """Count updates."""
        if self.disable:
            return None
        if self._measured_from is None and self.n + n - self.initial >= COMPILING:
            self._measured_from = (self.n + n, self._time())
        return super().update(n)

    @property
    def format_dict(self) -> Dict[str, Any]:
        """What the line of the bar is made of; tqdm shows a question mark for a rate of 0."""
        return {**super().format_dict, "rate": self._updates_per_second()}

    def _updates_per_second(self) -> float:
        if self._measured_from is None:
            return 0.0
        number, begin = self._measured_from
        return (self.n - number) / max(self._time() - begin, 1e-9)


class TensorBoardLog:
    """A folder of event files."""

    def __init__(self, folder: str) -> None:
        try:
            import tensorboardX
        except ImportError:
            raise MissingDependency(
                "log_dir",
                "tensorboardX is not installed",
                "the library that writes TensorBoard's files",
                f"{how_to_install('tensorboard')}, or leave log_dir out",
            ) from None
        self._folder, self._make = folder, tensorboardX.SummaryWriter
        self._writer: Optional[Any] = None

    def add(self, line: Dict[str, Any]) -> None:
        """Add the figures of a line of ``metrics.jsonl``."""
        update = line["update"]
        if self._writer is None:
            with storage_errors(self._folder):
                # Figures that a killed process wrote for this update and later ones do not count.
                # A thread writes; its queue has no bound, as it would block on a full disk.
                # A file of its own, also within the second of the file before.
                suffix = f".{update}"
                self._writer = self._make(
                    self._folder,
                    purge_step=update,
                    max_queue=0,
                    flush_secs=10,
                    filename_suffix=suffix,
                )
        for name, value in line.items():
            if isinstance(value, dict):
                for inner, number in value.items():
                    self._writer.add_scalar(_tag(f"{name}/{inner}"), number, update)
            elif name != "update":
                self._writer.add_scalar(_tag(name), value, update)

    def close(self) -> None:
        """Write what is buffered, and end the thread that writes."""
        if self._writer is not None:
            with storage_errors(self._folder):
                self._writer.close()
            self._writer = None


def _tag(name: str) -> str:
    """Name that TensorBoard takes: ``dev/p_1`` of p@1."""
    return re.sub(r"[^-/\w.]", "_", name)
