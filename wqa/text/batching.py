"""Batches by token budget, over few bucketed lengths."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple, Union

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


def plan_batches(
    lengths: Union[Sequence[int], np.ndarray],
    tokens: int,
    rng: Optional[np.random.Generator] = None,
) -> List[np.ndarray]:
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
    padded = -(-np.asarray(lengths, dtype=np.int32) // BUCKET) * BUCKET
    shuffled = rng.permutation(len(padded)) if rng is not None else np.arange(len(padded))
    ordered = shuffled[np.argsort(padded[shuffled], kind="stable")]
    batches = [ordered[start:end] for start, end in _runs(padded[ordered], tokens)]
    if rng is not None:
        batches = [batches[place] for place in rng.permutation(len(batches))]
    return batches


def _runs(ascending: np.ndarray, tokens: int) -> Iterator[Tuple[int, int]]:
    """Longest runs of rows, each as wide as its last, that fit a budget; a bucket of one width is
    passed at once."""
    widths, firsts = np.unique(ascending, return_index=True)
    ends = [*firsts[1:].tolist(), len(ascending)]
    start = bucket = 0
    while start < len(ascending):
        end = min(ends[bucket], max(start + tokens // int(widths[bucket]), start + 1))
        while end == ends[bucket]:
            bucket += 1
            if bucket == len(ends) or start + tokens // int(widths[bucket]) <= end:
                break
            end = min(ends[bucket], start + tokens // int(widths[bucket]))
        yield start, end
        start = end


def plan_by_question(
    lengths: Union[Sequence[int], np.ndarray],
    questions: np.ndarray,
    tokens: int,
    rng: Optional[np.random.Generator] = None,
    batches_a_block: int = 50,
) -> List[np.ndarray]:
    """Group samples into batches so that neighbours in the corpus stay together, for reading from a
    disk.

    The corpus is divided into blocks of whole questions, always the same; blocks are shuffled, and
    each is grouped as `plan_batches` does, on its own.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each sample.
    questions : numpy.ndarray
        Question of each sample, ascending.
    tokens : int
        Budget, padding included.
    rng : numpy.random.Generator, optional
        Without it the order is that of the corpus.
    batches_a_block : int
        How many batches a block fills, at least.

    Returns
    -------
    list of numpy.ndarray
        Sample indices; how many batches there are does not depend on the shuffle.
    """
    lengths = np.asarray(lengths)
    if not len(lengths):
        return []
    starts = np.flatnonzero(np.diff(questions, prepend=questions[0] - 1))
    before = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[starts]
    block = before // (tokens * batches_a_block)
    edges = [*starts[np.flatnonzero(np.diff(block, prepend=-1))].tolist(), len(lengths)]
    spans = list(zip(edges, edges[1:]))
    order = rng.permutation(len(spans)) if rng is not None else np.arange(len(spans))
    return [
        spans[place][0] + batch
        for place in order
        for batch in plan_batches(lengths[spans[place][0] : spans[place][1]], tokens, rng)
    ]


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
