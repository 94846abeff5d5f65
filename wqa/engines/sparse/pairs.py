"""Encoded pairs: products and differences of two convolved texts."""

from __future__ import annotations

from typing import Tuple

import numpy as np


def combine(questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Encoded pairs: ``[q * c; q - c]`` (Bonadiman and Moschitti 2020, section 4.1.2).

    Parameters
    ----------
    questions, candidates : numpy.ndarray
        (n, F) float32 texts of each pair.

    Returns
    -------
    numpy.ndarray
        (n, 2 F) float32.
    """
    filters = questions.shape[1]
    pairs = np.empty((len(questions), 2 * filters), np.float32)
    np.multiply(questions, candidates, out=pairs[:, :filters])
    np.subtract(questions, candidates, out=pairs[:, filters:])
    return pairs


def combine_backward(
    questions: np.ndarray, candidates: np.ndarray, gradient: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Gradients of `combine`.

    Parameters
    ----------
    questions, candidates : numpy.ndarray
        (n, F) float32 texts of each pair.
    gradient : numpy.ndarray
        (n, 2 F) float32 gradient of the pairs.

    Returns
    -------
    questions, candidates : numpy.ndarray
        (n, F) float32.
    """
    filters = questions.shape[1]
    product, difference = gradient[:, :filters], gradient[:, filters:]
    return product * candidates + difference, product * questions - difference
