"""The contract of engines, which compute encodings and scores in ranking.

An engine plans micro-batches, runs consecutive stages of a network on them, and stores the
encodings of pairs between stages. The ranker decides which pairs are dropped. An engine keeps no
results: `Engine.run_all` returns the input of the heads, and `Engine.scores` the scores. Both hold
the engine's lock, so that several threads may rank at once.

There is one engine a runtime: MXNet (`wqa.engines.mxnet`), oneDNN (`wqa.engines.onednn.engine`),
and ONNX Runtime (`wqa.engines.onnx.engine`), which computes exported graphs; neither that one nor
this contract needs MXNet. What a system's inputs look like is the matter of
`wqa.engines.inputs.EngineInputs`. A new engine is a subclass of `Engine` with `plan`, `_run` and
`_scores`, and a branch in `wqa.engines.choice`, which says before anything runs whether it can
compute a network in a precision. In training, an engine is attached to the network inside MXNet's
autograd graph (`wqa.engines.choice.attach_engines`).
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

import numpy as np

from wqa.config import EngineConfig
from wqa.errors import ProcessError, StorageError

#: Lock of all that MXNet computes for rankers: networks share blocks, whose tracing is not safe in
#: several threads. A thread may take it while it holds that of an engine, never the reverse.
MXNET_LOCK = threading.RLock()

Result = TypeVar("Result")

#: Set in a child that was forked from a process with an engine.
_is_forked = threading.Event()


@functools.lru_cache(maxsize=None)
def _note_forks() -> None:
    os.register_at_fork(after_in_child=_is_forked.set)


def check_process() -> None:
    """Check that engines can compute in this process.

    The threads of MXNet, OpenMP and ONNX Runtime, and what they hold, are not in a forked child.
    """
    if _is_forked.is_set():
        raise ProcessError(
            "engine",
            "the process was forked from one that had loaded an engine",
            "a process of its own",
            'start it by multiprocessing.get_context("spawn"), or fork before anything is loaded',
        )
    _note_forks()


def in_mxnet_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by MXNet: in the main thread, or in one other thread.

    MXNet keeps some megabytes for each thread that computes, also after the thread has ended. So
    all threads but the main one share a single thread.
    """
    check_process()  # a forked child does not have that thread
    if threading.current_thread() is threading.main_thread():
        return function(*arguments)
    return _mxnet_thread().submit(function, *arguments).result()


@functools.lru_cache(maxsize=None)
def _mxnet_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="wqa MXNet")


class EncodingStore:
    """Encodings of pairs between two runs, in memory up to a budget and then in a temporary file.

    Parameters
    ----------
    budget : int
        Most bytes in memory.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._blocks: Dict[int, Any] = {}  # an array, or where it is in the file
        self._positions: Dict[int, Tuple[int, int, int]] = {}  # pair: block, first row, end
        self._numbers = itertools.count()
        self._file: Any = None

    def put(self, pairs: Sequence[int], lengths: np.ndarray, rows: np.ndarray) -> None:
        """Store the encodings of a micro-batch, which become the store's.

        Shapes: `lengths` (pairs,), `rows` (sum of lengths, C).
        """
        block = next(self._numbers)
        ends = np.cumsum(lengths)
        for pair, start, end in zip(pairs, (ends - lengths).tolist(), ends.tolist()):
            self._positions[pair] = (block, start, end)
        self._blocks[block] = rows
        if rows.nbytes > self._left:
            self._blocks[block] = self._spill(rows)
        else:
            self._left -= rows.nbytes

    def take(self, pairs: Sequence[int]) -> List[np.ndarray]:
        """Encodings of pairs, which must be taken in the order in which they were put.

        Blocks before that of the first pair are freed. Shapes: the result (length, C).
        """
        rows: List[np.ndarray] = []
        positions = [self._positions[pair] for pair in pairs]
        for number in [number for number in self._blocks if number < positions[0][0]]:
            freed = self._blocks.pop(number)
            self._left += freed.nbytes if isinstance(freed, np.ndarray) else 0
        for number, group in itertools.groupby(positions, key=operator.itemgetter(0)):
            block = self._blocks[number]
            if not isinstance(block, np.ndarray):
                offset, kind, shape = block
                # It is read, not mapped: a mapped page counts as memory.
                block = np.fromfile(self._file, kind, int(np.prod(shape)), offset=offset)
                self._file.seek(0)
                block = block.reshape(shape)
            rows += [block[start:end] for _, start, end in group]
        return rows

    def _spill(self, rows: np.ndarray) -> Tuple[int, np.dtype, Tuple[int, ...]]:
        """Write a block to the file; returns its offset, element type and shape."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as the store
            offset = self._file.seek(0, os.SEEK_END)
            rows.tofile(self._file)
            self._file.seek(0)  # `numpy.fromfile` counts from here
        except OSError as error:
            raise StorageError(
                "temporary file",
                f"encodings between two exits cannot be written ({error})",
                f"room for {rows.nbytes} bytes in the folder of temporary files",
                "free space, set TMPDIR to another folder, or raise hidden_bytes",
            ) from None
        return offset, rows.dtype, rows.shape


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
    store : EncodingStore, optional
        Store that holds the encodings of the pairs; None for the first stage.
    next_store : EncodingStore, optional
        Store for the encodings after the last of the stages; None if nothing reads them.
    """

    stages: Sequence[int]
    numbers: np.ndarray
    pairs: Sequence[Any]
    store: Optional[EncodingStore] = None
    next_store: Optional[EncodingStore] = None

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

    #: Micro-batches that `_run_some` takes.
    _at_once = 1
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

    def store(self) -> EncodingStore:
        """Create an empty store for encodings between two runs."""
        return EncodingStore(self._config.hidden_bytes)

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
        remaining = iter(batches)
        while True:
            some = list(itertools.islice(remaining, self._at_once))
            if not some:
                return
            yield from self._exclusively(self._run_some, some)

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

    def _run_some(self, batches: Sequence[MicroBatch]) -> List[Readings]:
        """`run_all` of at most `_at_once` micro-batches, while no other thread uses the engine."""
        return [self._run(batch) for batch in batches]

    def _run(self, batch: MicroBatch) -> Readings:
        """`run_all` of one micro-batch, while no other thread uses the engine."""
        raise NotImplementedError

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """`scores`, while no other thread uses the engine; a column has one score a pair."""
        return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows
