"""Batches by token budget, over few bucketed lengths."""

from __future__ import annotations

from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

#: Lengths are rounded up to a multiple of this, so that few shapes occur.
BUCKET = 8

Lengths = Union[Sequence[int], np.ndarray]
Rng = Optional[np.random.Generator]


def bucketed(length: int, most: Optional[int] = None) -> int:
    """Round a length up to its bucket.

    Parameters
    ----------
    length : int
        Number of tokens.
    most : int, optional
        Upper limit of the result, for encoders with few positions. A greater length is returned.

    Returns
    -------
    int
        The padded length.
    """
    padded = -(-length // BUCKET) * BUCKET
    if most is None:
        return padded
    return max(length, min(padded, most))


def pad_rows(
    rows: Sequence[np.ndarray], length: int, value: int = 0, dtype: Any = np.int32
) -> np.ndarray:
    """Arrange sequences of numbers, or of vectors, in one array, ``value`` behind each.

    Shapes: `rows` (tokens, ...), the result (rows, length, ...).
    """
    padded = np.empty((len(rows), length, *rows[0].shape[1:]), dtype)
    for out, row in zip(padded, rows):
        out[: len(row)] = row
        out[len(row) :] = value
    return padded


def plan_batches(
    lengths: Lengths,
    tokens: int,
    rng: Rng = None,
) -> List[np.ndarray]:
    """Group samples into batches of at most ``tokens`` padded tokens; every sample once.

    Batches are filled from the shortest bucket up, so a batch holds samples of nearly one length,
    and only the last batch may be short. The number of batches does not depend on the order of
    the samples. A sample longer than the budget is a batch of its own.

    Samples that consist of several inputs are sorted by the last input, then by the one before. A
    batch pads each input to its longest.

    Parameters
    ----------
    lengths : sequence of int, or numpy.ndarray
        (N,) tokens of each sample, or (N, k) of the k inputs of each sample.
    tokens : int
        Token budget of a batch, padding included.
    rng : numpy.random.Generator, optional
        Shuffles the samples inside a bucket, and the batches; without it the order is by length.

    Returns
    -------
    list of numpy.ndarray
        Sample indices of each batch.
    """
    padded = np.asarray(lengths, dtype=np.int32)
    if not len(padded):
        return []
    padded = -(-padded // BUCKET) * BUCKET
    padded = padded.reshape(len(padded), -1)  # (N, k)
    samples = order_of(len(padded), rng)
    shuffled = padded[samples]
    by_length = np.lexsort(shuffled.T)
    samples = samples[by_length]
    batches = []
    for start, end in _spans(padded[samples], tokens):
        batches.append(samples[start:end])
    return [batches[index] for index in order_of(len(batches), rng)]


def order_of(count: int, rng: Rng) -> np.ndarray:
    """Indices from 0 on, shuffled if there is a generator."""
    if rng is None:
        return np.arange(count)
    return rng.permutation(count)


def _spans(widths: np.ndarray, tokens: int) -> Iterator[Tuple[int, int]]:
    """Cut sorted rows of widths, (N, k), into the longest spans that fit a budget.

    A span is padded to the greatest width of each of the k inputs. It takes whole buckets of rows
    of equal widths at once.
    """
    changes = np.diff(widths, axis=0).any(axis=1)
    last_rows = np.append(np.flatnonzero(changes), len(widths) - 1)
    bucket_widths = widths[last_rows]
    bucket_ends = (last_rows + 1).tolist()
    start = first = 0
    while start < len(widths):
        end = start + 1
        while bucket_ends[first] <= start:
            first += 1
        greatest = bucket_widths[first]
        for bucket_end, width in zip(bucket_ends[first:], bucket_widths[first:]):
            greatest = np.maximum(greatest, width)
            width_of_row = int(greatest.sum())
            last_fitting = start + tokens // width_of_row
            end = max(end, min(last_fitting, bucket_end))
            if last_fitting <= bucket_end:
                break
        yield start, end
        start = end


def plan_by_question(
    lengths: Lengths,
    questions: np.ndarray,
    tokens: int,
    rng: Rng = None,
    batches_a_block: int = 50,
) -> List[np.ndarray]:
    """Group samples into batches of samples that are near one another in the corpus.

    A store is then read from the disk in long runs. The corpus is divided into blocks of whole
    questions, which do not depend on the shuffle. The blocks are shuffled, and `plan_batches`
    groups the samples of each.

    Parameters
    ----------
    lengths : sequence of int, or numpy.ndarray
        Tokens of each sample, as `plan_batches` takes them.
    questions : numpy.ndarray
        Question index of each sample, ascending.
    tokens : int
        Token budget of a batch, padding included.
    rng : numpy.random.Generator, optional
        Shuffles the blocks, and the batches of each; without it the order is that of the corpus.
    batches_a_block : int
        Least number of batches that a block fills.

    Returns
    -------
    list of numpy.ndarray
        Sample indices of each batch. The number of batches does not depend on the shuffle.
    """
    lengths = np.asarray(lengths)
    if not len(lengths):
        return []
    by_input = lengths.reshape(len(lengths), -1)
    in_all = by_input.sum(axis=1, dtype=np.int64)
    starts = _block_starts(in_all, questions, tokens * batches_a_block)
    ends = np.append(starts[1:], len(lengths))
    plan = []
    for block in order_of(len(starts), rng):
        start = starts[block]
        end = ends[block]
        for batch in plan_batches(lengths[start:end], tokens, rng):
            plan.append(start + batch)
    return plan


def _block_starts(lengths: np.ndarray, questions: np.ndarray, tokens: int) -> np.ndarray:
    """First samples of blocks of whole questions: a block starts with every ``tokens`` tokens."""
    changes = np.diff(questions, prepend=questions[0] - 1)
    question_starts = np.flatnonzero(changes)
    tokens_until = np.cumsum(lengths, dtype=np.int64)
    tokens_before = np.concatenate([[0], tokens_until])
    blocks = tokens_before[question_starts] // tokens
    changes = np.diff(blocks, prepend=-1)
    return question_starts[np.flatnonzero(changes)]


def pack_batches(lengths: Lengths, tokens: int) -> List[np.ndarray]:
    """Group samples, in their order, into batches of at most ``tokens`` tokens; nothing is padded.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each sample, ascending, so that samples of one length are neighbours.
    tokens : int
        Token budget of a batch. A sample longer than it is a batch of its own.

    Returns
    -------
    list of numpy.ndarray
        Sample indices of each batch.
    """
    tokens_until = np.cumsum(lengths)
    batches = []
    start = 0
    tokens_before = 0
    while start < len(tokens_until):
        fitting = np.searchsorted(tokens_until, tokens_before + tokens, side="right")
        end = max(start + 1, int(fitting))
        batches.append(np.arange(start, end))
        start = end
        tokens_before = int(tokens_until[end - 1])
    return batches


def split_rows(rows: int, parts: int) -> List[Tuple[int, int]]:
    """Divide rows among devices as evenly as possible.

    Parameters
    ----------
    rows : int
        Number of rows.
    parts : int
        Number of devices.

    Returns
    -------
    list of (int, int)
        Start and end of the rows of each device; equal for a device that gets none.
    """
    edges = [rows * part // parts for part in range(parts + 1)]
    return list(zip(edges, edges[1:]))
