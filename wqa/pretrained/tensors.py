"""Base class of files of tensors."""

from __future__ import annotations

import pathlib
from typing import Dict, Tuple

import numpy as np


class TensorFile:
    """Tensors of one file by name, read a few rows at a time.

    Parameters
    ----------
    path : pathlib.Path
        Name of the file.

    Attributes
    ----------
    shapes : dict of str to tuple of int
        Shapes of the tensors.

    Raises
    ------
    EncoderError
        If the file cannot be read.
    """

    shapes: Dict[str, Tuple[int, ...]]

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a tensor.

        Parameters
        ----------
        name : str
            Name of the tensor.
        start, stop : int
            First row, and the row after the last one.

        Returns
        -------
        numpy.ndarray
            The rows in the file's type. bfloat16, which NumPy lacks, is widened to float32.
        """
        raise NotImplementedError


def widen(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16 to float32.

    Parameters
    ----------
    halves : numpy.ndarray
        The numbers as uint16: the upper halves of float32 numbers.

    Returns
    -------
    numpy.ndarray
        float32, of the same shape.
    """
    return (halves.astype("<u4") << 16).view("<f4")
