"""MXNet's engine of networks on lists of candidates, and the choice of their engine."""

from __future__ import annotations

from typing import Iterator, List, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.choice import choose_ranking_engine
from wqa.engines.engine import MXNET_LOCK, Engine, MicroBatch, Readings
from wqa.engines.mxnet import BlockEngine
from wqa.engines.sparse import SparseEngine
from wqa.systems.cosinet.inputs import ListInputs, WordPair
from wqa.systems.cosinet.lists import ListNetwork
from wqa.text import plan_batches

#: Default number of words of a micro-batch, padding included.
_TOKENS = 8192
#: Most elements of the encoded pairs of a batch of lists.
_ELEMENTS = 1 << 23


class ListMXNetEngine(BlockEngine):
    """The pairs of lists in padded micro-batches, then their lists, by MXNet on any device.

    It reads the current parameters of the network at each run.

    Parameters
    ----------
    network : ListNetwork
        Network with its parameters on the device.
    inputs : ListInputs
        Pads pairs.
    config : EngineConfig
        Device, threads and sizes.
    """

    def __init__(self, network: ListNetwork, inputs: ListInputs, config: EngineConfig) -> None:
        self._inputs, (self._pairs, self._lists) = inputs, network.parts()
        super().__init__(config, [self._pairs, self._lists])

    def _run(self, batch: MicroBatch) -> Readings:
        pairs: List[WordPair] = []
        for words in batch.pairs:
            pairs += words.pairs()
        encoded, positions = self._encode(pairs)
        counts = np.array([len(words.lengths) for words in batch.pairs])
        ends = np.cumsum(counts)
        starts = ends - counts
        scores = np.zeros(len(pairs), np.float32)
        for lists in _by_length(counts, max(1, _ELEMENTS // encoded.shape[1])):
            padded = np.zeros((len(lists), counts[lists].max(), encoded.shape[1]), np.float32)
            for row, index in zip(padded, lists):
                row[: counts[index]] = encoded[starts[index] : ends[index]]
            arrays = self._arrays((padded, counts[lists].astype(np.float32)))
            for row, index in zip(self._lists(*arrays).asnumpy(), lists):
                scores[starts[index] : ends[index]] = row[: counts[index]]
        return Readings(positions, [scores])

    def _encode(self, pairs: Sequence[WordPair]) -> Tuple[np.ndarray, np.ndarray]:
        """Encodings of pairs, (pairs, C), and their positions, (pairs,)."""
        lengths = np.array([(len(pair.question), len(pair.candidate)) for pair in pairs])
        positions = np.zeros(len(pairs), dtype=np.int64)
        encoded = np.zeros((len(pairs), 0), np.float32)
        for batch in plan_batches(lengths, self._config.batch_tokens or _TOKENS):
            arrays = self._inputs.pad([pairs[index] for index in batch])
            rows = self._pairs(*self._arrays(arrays[:-1])).asnumpy()  # (pairs, 1, C)
            if not encoded.size:
                encoded = np.zeros((len(pairs), rows.shape[2]), np.float32)
            encoded[batch] = rows[:, 0]
            positions[batch] = arrays[0].shape[1] + arrays[2].shape[2]
        return encoded, positions


def _by_length(counts: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Group lists of similar lengths, each padded to the longest, up to ``most`` candidates."""
    order = np.argsort(counts, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * counts[order[end]] > most:
            yield order[start:end]
            start = end


def build_list_engine(network: ListNetwork, inputs: ListInputs, config: EngineConfig) -> Engine:
    """Build the engine of a network in memory."""
    if choose_ranking_engine(network, config) == "sparse":
        return SparseEngine(network, config)
    with MXNET_LOCK:
        return ListMXNetEngine(network, inputs, config)
