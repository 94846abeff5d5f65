"""Base class of files of tensors."""

from __future__ import annotations

import pathlib
from typing import Dict, Tuple

import numpy as np


class TensorFile:
    """Tensors of one file by name, read a few rows at a time."""

    shapes: Dict[str, Tuple[int, ...]]

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a tensor."""
        raise NotImplementedError
