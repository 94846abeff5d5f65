"""Encoded pairs: products and differences of two convolved texts."""

from __future__ import annotations

from typing import Tuple

import numpy as np


def combine(questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Encoded pairs: ``[q * c; q - c]`` (Bonadiman and Moschitti 2020, section 4.1.2).

    Shapes: `questions, candidates` (n, F), the result (n, 2 F).
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

    Shapes: `questions, candidates` (n, F), `gradient` (n, 2 F), `questions, candidates` (n, F).
    """
    filters = questions.shape[1]
    product, difference = gradient[:, :filters], gradient[:, filters:]
    return product * candidates + difference, product * questions - difference
