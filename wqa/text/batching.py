"""Batches by token budget, over few bucketed lengths."""
from __future__ import annotations

from typing import List, Optional, Sequence, Tuple, Union

import numpy as np

#: Lengths are rounded up to a multiple of this, so that few shapes occur.
BUCKET = 8


def bucketed(length: int, most: Optional[int] = None) -> int:
    """Round a length up to its bucket.

    Parameters
    ----------
    length : int
    most : int, optional
        Greatest result, for encoders with few positions; at least ``length``.

    Returns
    -------
    int
    """
    padded = -(-length // BUCKET) * BUCKET
    return padded if most is None else max(length, min(padded, most))


def plan_batches(lengths: Union[Sequence[int], np.ndarray], tokens: int,
                 rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
    """Group samples into batches of at most ``tokens`` padded tokens; every sample once.

    Samples are filled in from the shortest bucket up, so a batch holds samples of nearly one
    length, and only the last batch may be short. How many batches there are does not depend on
    the order of the samples. A sample longer than the budget is a batch of its own.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each sample.
    tokens : int
        Budget, padding included.
    rng : numpy.random.Generator, optional
        Shuffles the samples inside a bucket, and the batches; without it the order is by length.

    Returns
    -------
    list of numpy.ndarray
        Sample indices.
    """
    padded = np.array([bucketed(length) for length in lengths])
    shuffled = rng.permutation(len(padded)) if rng is not None else np.arange(len(padded))
    ordered = shuffled[np.argsort(padded[shuffled], kind="stable")]
    batches, start = [], 0
    while start < len(ordered):
        end = start + 1
        while end < len(ordered) and padded[ordered[end]] * (end + 1 - start) <= tokens:
            end += 1
        batches.append(ordered[start:end])
        start = end
    if rng is not None:
        batches = [batches[place] for place in rng.permutation(len(batches))]
    return batches


def pack_batches(lengths: Union[Sequence[int], np.ndarray], tokens: int) -> List[np.ndarray]:
    """Group samples, in their order, into batches of at most ``tokens`` tokens; nothing is padded.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each sample, ascending, so that equal ones stand together.
    tokens : int
        Budget. A sample longer than it is a batch of its own.

    Returns
    -------
    list of numpy.ndarray
        Sample indices.
    """
    ends = np.cumsum(lengths)
    batches, start, before = [], 0, 0
    while start < len(ends):
        end = max(start + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        batches.append(np.arange(start, end))
        start, before = end, int(ends[end - 1])
    return batches


def split_rows(rows: int, parts: int) -> List[Tuple[int, int]]:
    """Share rows out over devices as evenly as they go.

    Parameters
    ----------
    rows : int
    parts : int

    Returns
    -------
    list of (int, int)
        Start and end a device; equal for a device that gets none.
    """
    edges = [rows * part // parts for part in range(parts + 1)]
    return list(zip(edges, edges[1:]))
