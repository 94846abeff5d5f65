"""Checks of the elements of arrays, block by block, as `ArrayFolder.check` takes them."""

from __future__ import annotations

import numpy as np

from wqa.io.arrays import BlockCheck


def values_below(limit: int, name: str) -> BlockCheck:
    """Check that values are from 0 up to a limit."""

    def check(block: np.ndarray, start: int) -> str:
        wrong = (block < 0) | (block >= limit)
        if not wrong.any():
            return ""
        index = int(wrong.argmax())
        return f"{name} {block[index]} at index {start + index}, not from 0 to {limit - 1}"

    return check


def check_text_ends(longest: int, shortest: int = 1, unit: str = "token") -> BlockCheck:
    """Check the ends of texts: no text is shorter or longer than a limit."""
    last = 0

    def check(block: np.ndarray, start: int) -> str:
        nonlocal last
        lengths = np.diff(block, prepend=last)
        last = block[-1]
        wrong = (lengths < shortest) | (lengths > longest)
        if not wrong.any():
            return ""
        index = int(wrong.argmax())
        return (
            f"text {start + index} has {lengths[index]} {unit}s, not from {shortest} to {longest}"
        )

    return check


def check_question_indices(limit: int) -> BlockCheck:
    """Check the question indices of pairs: they never fall, and are below a limit."""
    last = 0

    def check(block: np.ndarray, start: int) -> str:
        nonlocal last
        wrong = (np.diff(block, prepend=last) < 0) | (block >= limit)
        last = block[-1]
        if not wrong.any():
            return ""
        index = int(wrong.argmax())
        return f"question index {block[index]} of pair {start + index}, of {limit} questions"

    return check
