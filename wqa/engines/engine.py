"""The contract of engines, which compute encodings and scores in ranking.

An engine plans micro-batches, runs consecutive stages of a network on them, and stores the
encodings of pairs between stages. The ranker decides which pairs are dropped. An engine keeps no
results: `Engine.run_all` returns the input of the heads, and `Engine.scores` the scores. Both hold
the engine's lock, so that several threads may rank at once.

There is one engine a runtime: MXNet (`wqa.engines.mxnet`), oneDNN (`wqa.engines.onednn.engine`),
and ONNX Runtime (`wqa.engines.onnx.sessions`), which computes exported graphs; neither that one nor
this contract needs MXNet. What a system's inputs look like is the matter of
`wqa.engines.inputs.EngineInputs`. A new engine is a subclass of `Engine` with `plan`, `_run` and
`_scores`, or of `PaddedEngine` with `_compute`, and a branch in `wqa.engines.choice`, which says
before anything runs whether it can compute a network in a precision. In training, an engine is
attached to the network inside MXNet's autograd graph (`wqa.engines.choice.attach_engines`).
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.inputs import EngineInputs, pad_encodings, real_rows
from wqa.engines.threads import check_process
from wqa.text import plan_batches

#: Default number of tokens of a padded micro-batch, padding included.
TOKENS = 2048

#: Encodings of pairs between two runs, (length, C) each, by the numbers of the pairs.
Encodings = Dict[int, np.ndarray]


def store_encodings(
    store: Encodings, numbers: np.ndarray, lengths: np.ndarray, rows: np.ndarray
) -> None:
    """Store the encodings of a micro-batch without padding.

    Shapes: `numbers, lengths` (pairs,), `rows` (sum of lengths, C).
    """
    store.update(zip(numbers.tolist(), np.split(rows, np.cumsum(lengths)[:-1])))


class MicroBatch(NamedTuple):
    """Pairs that run together, and the stages to run.

    Attributes
    ----------
    stages : sequence of int
        Indices of consecutive stages.
    numbers : numpy.ndarray
        (pairs,) numbers of the pairs in the stores.
    pairs : sequence of TextInput
        Pairs of the micro-batch, or others that the engine's inputs read.
    store : dict of int to numpy.ndarray, optional
        Encodings of the pairs by their numbers; None for the first stage.
    next_store : dict of int to numpy.ndarray, optional
        Takes the encodings after the last of the stages; None if nothing reads them.
    """

    stages: Sequence[int]
    numbers: np.ndarray
    pairs: Sequence[Any]
    store: Optional[Encodings] = None
    next_store: Optional[Encodings] = None

    @property
    def lengths(self) -> np.ndarray:
        """(pairs,) tokens of each pair."""
        return np.array([pair.length for pair in self.pairs])


class Readings(NamedTuple):
    """Result of running stages on a micro-batch."""

    #: (pairs,) positions of each pair, padding included.
    positions: np.ndarray
    #: Input of `Engine.scores` for each stage with a head, pairs first.
    rows: List[np.ndarray]


class Engine:
    """Base class of engines, which compute for one thread at a time.

    Parameters
    ----------
    config : EngineConfig
        Device, precision, threads and sizes.
    lock : optional
        Lock that engines share; one of its own by default.
    """

    #: Element type of stored encodings.
    kind = "float32"

    def __init__(self, config: EngineConfig, lock: Any = None) -> None:
        check_process()
        self._config, self._lock = config, lock or threading.RLock()

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function while no other thread uses the engine."""
        check_process()
        with self._lock:
            return function(*arguments)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide pairs into micro-batches.

        Parameters
        ----------
        lengths : numpy.ndarray
            (pairs,) tokens of each pair, ascending.

        Returns
        -------
        list of numpy.ndarray
            Indices of the pairs of each micro-batch.
        """
        raise NotImplementedError

    def run_all(self, batches: Iterable[MicroBatch]) -> Iterator[Readings]:
        """Run consecutive stages on micro-batches, of which an engine may compute several at once.

        Parameters
        ----------
        batches : iterable of MicroBatch
            The stages, and the micro-batches in the order of the plan.

        Yields
        ------
        Readings
            Those of each micro-batch, in order.
        """
        for batch in batches:
            yield self._exclusively(self._run, batch)

    def scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """Scores of a stage.

        Parameters
        ----------
        stage : int
            Index of the stage.
        rows : numpy.ndarray
            Input of the stage's head, as `run_all` returned it, concatenated over micro-batches.

        Returns
        -------
        numpy.ndarray
            (pairs,) log-odds, or the numbers of a head that computes others.
        """
        return self._exclusively(self._scores, stage, rows)

    def _run(self, batch: MicroBatch) -> Readings:
        """`run_all` of one micro-batch, while no other thread uses the engine."""
        raise NotImplementedError

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """`scores`, while no other thread uses the engine; a column has one score a pair."""
        return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


class PaddedEngine(Engine):
    """Base class of engines on padded micro-batches.

    Parameters
    ----------
    inputs : EngineInputs
        Pads the pairs.
    config : EngineConfig
        Device, precision, threads and sizes.
    lock : optional
        As that of `Engine`.
    """

    def __init__(self, inputs: EngineInputs, config: EngineConfig, lock: Any = None) -> None:
        super().__init__(config, lock)
        self._inputs = inputs

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def _run(self, batch: MicroBatch) -> Readings:
        lengths = batch.lengths
        if batch.store is None:
            arrays = self._inputs.arrays(batch.pairs)
            positions = self._inputs.positions(arrays)
        else:
            positions = self._inputs.padded_length(int(lengths.max()))
            encodings = [batch.store.pop(number) for number in batch.numbers.tolist()]
            hidden = pad_encodings(encodings, positions)  # (B, L, C)
            arrays = {"hidden": hidden, "valid_length": lengths.astype(np.float32)}
        hidden, scores = self._compute(batch, arrays)
        if batch.next_store is not None:
            rows = real_rows(hidden, lengths)
            store_encodings(batch.next_store, batch.numbers, lengths, rows)
        return Readings(np.full(len(lengths), positions), scores)

    def _compute(self, batch: MicroBatch, arrays: Dict[str, np.ndarray]) -> Sequence[Any]:
        """Encodings after the last stage, where they are stored, and the scores of the stages.

        Shapes: the encodings (B, L, C).
        """
        raise NotImplementedError
