"""The contract of engines, which compute encodings and scores in ranking.

An engine plans micro-batches, runs consecutive stages on them, and stores the encodings of pairs
between stages. The ranker decides which pairs are dropped (`wqa.inference.exit_ranker`). An engine
keeps no results: `Engine.run_all` returns the input of the heads, and `Engine.scores` the scores.
Both hold the engine's lock, so that several threads may rank at once. Neither reads results of a
call before it, which an exception may have interrupted.

A new engine is a subclass of `Engine` with `plan`, `store`, `_run` and `_scores`, and a branch in
`wqa.engines.choice`, which says before anything runs whether it can compute a network in a
precision. MXNet's engine (`wqa.engines.mxnet`), oneDNN's (`wqa.engines.onednn.engine`) and sparse
products (`wqa.engines.sparse`) are examples. In training, an engine is attached to the network
inside MXNet's autograd graph (`wqa.engines.choice.attach_engines`). ONNX Runtime's engine
(`wqa.engines.onnx.engine`) computes exported graphs in place of a network; neither it nor this
contract needs MXNet.

The locks of engines, and MXNet's thread, survive a fork.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Sequence, TypeVar

import numpy as np

from wqa.config import EngineConfig

#: Lock of all that MXNet computes for rankers: networks share blocks, whose tracing is not safe in
#: several threads. A thread may take it while it holds that of an engine, never the reverse.
MXNET_LOCK = threading.RLock()

Result = TypeVar("Result")

_numbers = itertools.count()
_locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: Locks that the fork in progress holds.
_held: List[Any] = []


def engine_lock(shared: bool) -> Any:
    """Make the lock of an engine, which the thread that computes holds.

    A fork waits until no other thread holds such a lock. So the child's copies of buffers and
    caches are whole, and its copy of the lock is free.
    """
    _register()
    if shared:
        return MXNET_LOCK
    lock = threading.RLock()
    _locks[next(_numbers)] = lock
    return lock


def in_mxnet_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by MXNet: in the main thread, or in one other thread.

    MXNet keeps some megabytes for each thread that computes, also after the thread has ended. So
    all threads but the main one share a single thread.
    """
    if threading.current_thread() is threading.main_thread():
        return function(*arguments)
    return _mxnet_thread().submit(function, *arguments).result()


@functools.lru_cache(maxsize=None)
def _mxnet_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="wqa MXNet")


@functools.lru_cache(maxsize=None)
def _register() -> None:
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
    os.register_at_fork(after_in_child=_mxnet_thread.cache_clear)


def _acquire() -> None:
    # Always in one order, so that two threads may fork at once; that of MXNet is the last.
    references = sorted(_locks.valuerefs(), key=lambda reference: reference.key)
    for lock in [*(reference() for reference in references), MXNET_LOCK]:
        if lock is not None:
            lock.acquire()
            _held.append(lock)


def _release() -> None:
    while _held:
        _held.pop().release()


class Work(NamedTuple):
    """Stages to run on a micro-batch.

    Attributes
    ----------
    stages : sequence of int
        Indices of consecutive stages.
    numbers : numpy.ndarray
        (pairs,) numbers of the pairs in the stores.
    pairs : sequence of TextInput
        Pairs of the micro-batch; the engine of a system may take others.
    store : optional
        Store that holds the encodings of the pairs; None for the first stage.
    following : optional
        Store for the encodings after the last of the stages; None if nothing reads them.
    """

    stages: Sequence[int]
    numbers: np.ndarray
    pairs: Sequence[Any]
    store: Any = None
    following: Any = None


class Readings(NamedTuple):
    """Result of running stages on a micro-batch."""

    #: (pairs,) positions of each pair, padding included.
    positions: np.ndarray
    #: Input of `Engine.scores` for each stage, pairs first.
    rows: List[np.ndarray]


class EngineTypes(NamedTuple):
    """Full names of the types of a ranker's engines, which are imported when one is built."""

    mxnet: str = "wqa.engines.mxnet.HybridEngine"
    onednn: str = "wqa.engines.onednn.engine.PackedEngine"
    onnxruntime: str = "wqa.engines.onnx.engine.OnnxEngine"


class LockedEngine:
    """Base class of what computes for one thread at a time."""

    #: Whether all engines of the type have one lock.
    _shares_lock = False

    def __init__(self) -> None:
        self._lock = engine_lock(self._shares_lock)

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function while no other thread uses the engine."""
        with self._lock:
            return function(*arguments)


class Engine(LockedEngine):
    """Base class of engines.

    Parameters
    ----------
    config : EngineConfig
        Device, precision, threads and sizes.
    """

    #: Micro-batches that `_run_some` takes.
    _at_once = 1

    def __init__(self, config: EngineConfig) -> None:
        super().__init__()
        self._config = config

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

    def store(self) -> Any:
        """Create an empty store for encodings between two runs."""
        raise NotImplementedError

    def run_all(self, works: Iterable[Work]) -> Iterator[Readings]:
        """Run consecutive stages on micro-batches, of which an engine may compute several at once.

        Parameters
        ----------
        works : iterable of Work
            The stages, and the micro-batches in the order of the plan.

        Yields
        ------
        Readings
            Those of each micro-batch, in order.
        """
        remaining = iter(works)
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
            Input of the stage's head, as `run` returned it, concatenated over micro-batches.

        Returns
        -------
        numpy.ndarray
            (pairs,) log-odds.
        """
        return self._exclusively(self._scores, stage, rows)

    def _run_some(self, works: Sequence[Work]) -> List[Readings]:
        """`run_all` of at most `_at_once` micro-batches, while no other thread uses the engine."""
        return [self._run(work) for work in works]

    def _run(self, work: Work) -> Readings:
        """`run_all` of one micro-batch, while no other thread uses the engine."""
        raise NotImplementedError

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """`scores`, while no other thread uses the engine."""
        raise NotImplementedError
