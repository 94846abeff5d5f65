"""Figures of a training while it runs, in ``metrics.jsonl``."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from typing import Any, Dict, List

from wqa.config import parse_json
from wqa.io.files import atomic_writer, storage_errors


class MetricsFile:
    """The file ``metrics.jsonl`` of a run directory: one JSON object a line."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def append(self, line: Dict[str, Any]) -> None:
        """Append a line."""
        with storage_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

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
