"""Figures of a training while it runs: ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
from typing import Any, Callable, Dict, List, Optional

from wqa.config import parse_json
from wqa.errors import MissingDependency, how_to_install
from wqa.io.files import atomic_writer, storage_errors


class MetricsFile:
    """The file ``metrics.jsonl`` of a run directory: one JSON object a line."""

    def __init__(
        self, path: pathlib.Path, listener: Optional[Callable[[Dict[str, Any]], None]] = None
    ) -> None:
        self.path, self._listener = path, listener

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
        if lines and "start" in lines[0]:
            return False
        self._write([{"update": 0, "start": start}, *lines])
        return True

    def keep_until(self, update: int) -> None:
        """Delete the lines after an update, and those that were not written completely."""
        if self.path.exists():
            self._write([line for line in self._lines() if line["update"] <= update])

    def _lines(self) -> List[Dict[str, Any]]:
        """The lines that were written completely."""
        lines = []
        if self.path.is_file():
            for line in self.path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    values = parse_json(line)
                    if isinstance(values, dict) and isinstance(values.get("update"), int):
                        lines.append(values)
        return lines

    def _write(self, lines: List[Dict[str, Any]]) -> None:
        with atomic_writer(self.path) as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


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
                # TensorBoard drops what a killed process wrote for this update and later ones. The
                # thread that writes has a queue without a bound, as it would block on a full disk.
                self._writer = self._make(
                    self._folder, purge_step=update, max_queue=0, filename_suffix=f".{update}"
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
