"""The lines of ``metrics.jsonl``."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Callable, Dict, List, Optional

from wqa.config import parse_json
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
