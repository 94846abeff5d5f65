"""Figures of a training while it runs, in ``metrics.jsonl``."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any, Dict

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

    def log_start(self, values: Dict[str, Any]) -> bool:
        """Write the first line of a run, if there is none."""
        if self.path.exists():
            return False
        self.append({"update": 0, **values})
        return True

    def keep_until(self, update: int) -> None:
        """Delete the lines after an update, and those that were not written completely."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                values = parse_json(line)
                number = values.get("update") if isinstance(values, dict) else None
                if isinstance(number, int) and number <= update:
                    kept.append(line)
        with atomic_writer(self.path, "wb") as file:
            file.writelines(line + b"\n" for line in kept)
