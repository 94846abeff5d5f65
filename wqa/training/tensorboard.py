"""Figures of a training for TensorBoard, beside ``metrics.jsonl``."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from wqa.errors import MissingDependency, how_to_install
from wqa.io.files import storage_errors


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
