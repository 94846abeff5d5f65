"""Embeddings and layers compiled for training, for each of several threads.

A thread computes a chunk of the pairs of a mini-batch, forward and backward, and after all threads
a share of the rows of each weight's gradient, over all pairs.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.training_memory import Chunk, TrainingMemory
from wqa.engines.onednn.training_parameters import (
    External,
    Trained,
    TrainedEmbeddings,
    TrainedLayer,
)
from wqa.engines.onednn.training_tape import Tape


class Part(NamedTuple):
    """A layer, or the embeddings, with what each thread runs."""

    trained: Trained
    tapes: List[Tape]


class Compiled:
    """Embeddings, or layers in sequence, compiled for a mini-batch.

    Their input and output, and the gradients of both, are in MXNet's memory.
    """

    def __init__(self, threads: int, source: Tuple[Chunk, int], out: Tuple[Chunk, int]) -> None:
        self.parts: List[Part] = []
        self.source, self.of_source = _external(threads, *source), _external(threads, *source)
        self.out, self.of_out = _external(threads, *out), _external(threads, *out)
        #: Rows that are read, (B, n); None where all are.
        self.positions: Optional[np.ndarray] = None
        self.bias: Optional[External] = None
        self.bias_sums = np.zeros((0, 0), np.float32)

    def blocks(self) -> List[Trained]:
        """Each block once, in the order of their parameters among MXNet's inputs."""
        return list(dict.fromkeys(part.trained for part in self.parts))


def _external(threads: int, whole: Chunk, width: int) -> List[External]:
    """Rows of each thread's chunk in memory that MXNet owns."""
    arrays = []
    for chunk in whole.split(threads):
        arrays.append(External((chunk.rows, width), chunk.first * chunk.length * width))
    return arrays


def _tapes(memory: TrainingMemory, operations: Sequence[Operations]) -> List[Tape]:
    threads = len(operations)
    return [Tape(memory, own, thread, threads) for thread, own in enumerate(operations)]


def compile_embeddings(
    memory: TrainingMemory,
    operations: Sequence[Operations],
    trained: TrainedEmbeddings,
    call: int,
    whole: Chunk,
) -> Compiled:
    """Compile embeddings for each thread, by its operations."""
    units = memory.config.units
    width = memory.config.embedding_size or units
    compiled = Compiled(len(operations), (whole, width), (whole, units))
    tapes = _tapes(memory, operations)
    for thread, tape in enumerate(tapes):
        sums = compiled.source[thread], compiled.of_source[thread]
        last = tape.embeddings(trained, memory.embeddings(call), whole, sums)
        tape.leave(compiled.out[thread], compiled.of_out[thread], last, whole)
    compiled.parts.append(Part(trained, tapes))
    return compiled


def compile_layers(
    memory: TrainingMemory,
    operations: Sequence[Operations],
    layers: Sequence[TrainedLayer],
    call: int,
    keys: Chunk,
    queries: Chunk,
) -> Compiled:
    """Compile layers for each thread, the last one for the positions that are read."""
    config, threads = memory.config, len(operations)
    compiled = Compiled(threads, (keys, config.units), (queries, config.units))
    if queries != keys:
        compiled.positions = np.zeros((queries.pairs, queries.length), np.intp)
    if config.family.relative_buckets:
        size = config.num_heads * keys.length**2
        compiled.bias = External((1, config.num_heads, keys.length, keys.length))
        compiled.bias_sums = memory.bias_sums.data[: threads * size].reshape(threads, size)
    last = len(layers) - 1
    for index, layer in enumerate(layers):
        wholes = keys, queries if index == last else keys
        of_keys = memory.activations(call, index, False)
        own = memory.activations(call, index, wholes[1] != keys)
        tapes = _tapes(memory, operations)
        for thread, tape in enumerate(tapes):
            if not index:
                source = compiled.source[thread], compiled.of_source[thread]
                tape.enter(*source, of_keys.x, keys)
            positions = None
            if wholes[1] != keys and compiled.positions is not None:
                chunk = queries.split(threads)[thread]
                positions = compiled.positions[chunk.first : chunk.first + chunk.pairs]
            tape.layer(layer, of_keys, own, wholes, positions, compiled.bias)
            if index == last:
                out = compiled.out[thread], compiled.of_out[thread]
                tape.leave(*out, own.after, queries)
        compiled.parts.append(Part(layer, tapes))
    return compiled
