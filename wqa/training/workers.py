"""The processes of one training: a single one, or several on one or more machines.

Several train by MXNet's store ``dist_sync``. A scheduler and servers run beside the workers, each
the same command with another ``DMLC_ROLE``: MXNet becomes the scheduler or a server when it is
imported. The servers sum the gradients. What else the workers share, such as losses and figures on
the development questions, are bytes that the servers sum too: each worker has rows of its own.

MXNet waits for ever for a worker that is lost, so the launcher ends all when one has ended
(`recipes/scale/launch.sh`; Slurm and Kubernetes have options for it).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import logging
import os
import sys
import threading
import traceback
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple, TypeVar

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from tqdm import tqdm

from wqa.errors import OptionError, Stopped, WorkerLost, WqaError, shorten

T = TypeVar("T")

#: Variables that the launcher sets. The counts are whole numbers.
_VARIABLES = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
)
_MEND = "start the training by recipes/scale/launch.sh, which sets the DMLC_ variables"

#: Seconds in which all processes must have started, on all machines.
MEETING = 900

#: Seconds in which an error may free the store; then the process is ended.
GRACE = 10

#: Keys in the store, beyond those of the parameters: of the texts' lengths, and of their bytes.
_LENGTHS, _BYTES = 1 << 20, (1 << 20) + 1
#: Bytes of a text that one exchange takes from each worker.
_PART = 4096
#: Exit status, that of a command's errors.
_FAILED = 2


def _end_process(error: BaseException) -> None:
    """Print an error and end the process, whatever its main thread waits for."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(error, WqaError):
            print(f"error: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
            sys.stderr.flush()
    os._exit(_FAILED)


@contextlib.contextmanager
def _ended_after(seconds: float, error: BaseException) -> Iterator[None]:
    """End the process if the ``with`` block takes longer."""
    timer = threading.Timer(seconds, _end_process, (error,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Workers:
    """The single process of a training, which is its worker 0."""

    rank = 0
    count = 1
    store: Any = "device"

    @property
    def writes(self) -> bool:
        """Whether this worker evaluates and writes."""
        return self.rank == 0

    def gather(self, value: Any) -> List[Any]:
        """Exchange values. All workers call it, in the same order."""
        return [value]

    def first(self, value: T) -> T:
        """Value of worker 0, which the others wait for; their own does not count."""
        return self.gather(value)[0]

    def union(self, numbers: Set[int]) -> Set[int]:
        """Union of the workers' sets."""
        return set().union(*self.gather(sorted(numbers)))

    def sums(self, values: Dict[str, float]) -> Dict[str, float]:
        """Sums of the workers' values, such as of their shares of a loss."""
        totals: Dict[str, float] = {}
        for share in self.gather(values):
            for name, value in share.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let worker 0 do the ``with`` block before the others."""
        if self.rank:
            self.gather(None)
        yield
        if not self.rank:
            self.gather(None)

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """This worker's part of a sequence that is as long for each."""
        length = len(parts) // self.count
        return parts[self.rank * length : (self.rank + 1) * length]

    def check_equal(self, what: str, value: Any, expected: str, mend: str) -> None:
        """Check that all workers have the value of worker 0."""
        values = self.gather(value)
        for rank, theirs in enumerate(values):
            if theirs != values[0]:
                problem = f"{shorten(theirs)} on worker {rank}, {shorten(values[0])} on worker 0"
                raise OptionError(what, problem, expected, mend)

    def check_same(self, parameters: Sequence[mx.nd.NDArray], update: int) -> None:
        """Check that all workers have the same parameters, bit for bit."""
        if self.count == 1:
            return
        digest = hashlib.sha256()
        for array in parameters:
            digest.update(array.asnumpy().tobytes())
        self.check_equal(
            "parameters",
            f"{digest.hexdigest()[:12]} after update {update}",
            "the same ones on all workers",
            "let all workers read the run from one file system, on processors of one kind",
        )

    def start(self, trainer: mx.gluon.Trainer) -> None:
        """Give all workers the parameters of worker 0, before the first update."""


class _Group(Workers):
    """One of several workers."""

    def __init__(self, kvstore: str) -> None:
        self.store = _meet(kvstore)
        self.rank, self.count = self.store.rank, self.store.num_workers
        self.store.init(_LENGTHS, mx.nd.zeros((self.count,)))
        self.store.init(_BYTES, mx.nd.zeros((self.count, _PART)))

    def gather(self, value: Any) -> List[Any]:
        text = np.frombuffer(json.dumps(value).encode("utf-8"), np.uint8)
        lengths = self._joined(_LENGTHS, np.float32(len(text)), (self.count,)).astype(int)
        texts = np.zeros((self.count, -(-max(lengths) // _PART) * _PART), np.uint8)
        for start in range(0, texts.shape[1], _PART):
            part = np.zeros(_PART, np.float32)  # servers sum no whole numbers
            own = text[start : start + _PART]
            part[: len(own)] = own
            texts[:, start : start + _PART] = self._joined(_BYTES, part, (self.count, _PART))
        return [json.loads(row[:length].tobytes()) for row, length in zip(texts, lengths)]

    def _joined(self, key: int, own: Any, shape: Tuple[int, ...]) -> np.ndarray:
        """The rows of all workers, which are the sum of arrays with one row each."""
        rows = np.zeros(shape, np.float32)
        rows[self.rank] = own
        array = mx.nd.array(rows)
        self.store.push(key, array)
        self.store.pull(key, out=array)
        return array.asnumpy()

    def start(self, trainer: mx.gluon.Trainer) -> None:
        trainer._init_kvstore()
        trainer._init_params()
        # The store holds the parameters until the first gradient replaces them. A worker must have
        # read them by then, or it would take that gradient for its parameters.
        mx.nd.waitall()
        self.store._barrier()

    def close(self) -> None:
        """Wait for all others to close, and end the scheduler and the servers."""
        mx.nd.waitall()
        _free(self.store)


def _meet(kvstore: str) -> mx.kvstore.KVStore:
    """Create the store, which waits for the other processes; MXNet itself waits for ever."""
    given = [os.environ[name] for name in _VARIABLES[1:]]
    error = WorkerLost(
        "training",
        f"not all of the processes have started in {MEETING} seconds",
        "{2} workers and {3} servers that reach the scheduler at {0}:{1}".format(*given),
        "start all of them again",
    )
    with _ended_after(MEETING, error):
        return mx.kv.create(kvstore)


def _free_without_others(store: mx.kvstore.KVStore, error: BaseException) -> None:
    """Free a store after an error.

    MXNet waits for what it has begun, such as sums of gradients that a lost worker owes, and there
    is no end to it then: the error is printed, and the process is ended.
    """
    with _ended_after(GRACE, error):
        check_call(_LIB.MXKVStoreSetBarrierBeforeExit(store.handle, ctypes.c_int(0)))
        _free(store)


def _free(store: mx.kvstore.KVStore) -> None:
    """Free a store now: at the end of the interpreter, no one may be there to do it."""
    handle, store.handle = store.handle, ctypes.c_void_p()
    check_call(_LIB.MXKVStoreFree(handle))


@contextlib.contextmanager
def open_workers(kvstore: str) -> Iterator[Workers]:
    """Meet the other workers of a training.

    A worker that fails ends without waiting for the others, and the launcher ends these. One that
    waits in vain for the others to start prints `wqa.errors.WorkerLost` and ends with status 2.
    """
    if kvstore == "device":
        yield Workers()
        return
    check_variables(os.environ)
    if not mx.runtime.Features().is_enabled("DIST_KVSTORE"):
        raise OptionError(
            "kvstore",
            f"{kvstore}, which this build of MXNet lacks",
            "a build with DIST_KVSTORE, as the wheel of PyPI is",
        )
    group = _Group(kvstore)
    try:
        with _quiet(group.rank > 0):
            yield group
    except Stopped:
        group.close()  # all workers stop after the same update
        raise
    except BaseException as error:
        _free_without_others(group.store, error)
        raise
    group.close()


@contextlib.contextmanager
def _quiet(active: bool) -> Iterator[None]:
    """Print only errors inside the ``with`` block: worker 0 prints notes and bars for all."""
    logger = logging.getLogger("wqa")
    level, initialize = logger.level, tqdm.__init__
    if active:
        logger.setLevel(logging.ERROR)
        setattr(tqdm, "__init__", functools.partialmethod(initialize, disable=True))  # noqa: B010
    try:
        yield
    finally:
        logger.setLevel(level)
        setattr(tqdm, "__init__", initialize)  # noqa: B010


def check_variables(environment: Mapping[str, str]) -> None:
    """Check the variables by which MXNet meets the other processes.

    It ends the process itself where one is missing.
    """
    for name in _VARIABLES:
        value = environment.get(name, "")
        if not value:
            raise OptionError(name, "is not set, for kvstore=dist_sync", "its value", _MEND)
        is_number = value.isdecimal() and 0 < int(value) < 1 << 16
        if name not in _VARIABLES[:2] and not is_number:
            raise OptionError(name, shorten(value), "a whole number from 1 to 65535", _MEND)
    if environment["DMLC_ROLE"] != "worker":
        # MXNet would have become a scheduler or a server when it was imported.
        raise OptionError("DMLC_ROLE", shorten(environment["DMLC_ROLE"]), "worker", _MEND)
