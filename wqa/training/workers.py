"""The processes of one training: a single one, or several on one or more machines.

Several train by MXNet's store ``dist_sync``. A scheduler and servers run beside the workers, each
the same command with another ``DMLC_ROLE``: MXNet becomes the scheduler or a server when it is
imported. The servers sum the gradients. What else the workers share, such as losses and figures on
the development questions, goes by `wqa.training.connections`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import socket
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, TypeVar

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from tqdm import tqdm

from wqa.errors import OptionError, Stopped, WorkerLost, WqaError, shorten
from wqa.training.connections import GRACE, Connections, Reception, address_of, ended_after, join

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

#: Key in the store, beyond those of the parameters, and greatest length of the text under it.
_INVITATION, _LONGEST = 1 << 20, 256


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
        try:
            self._connections = Connections(self.rank, self._connect())
            self._connections.name_hosts()
        except BaseException as error:
            _free_without_others(self.store, error)
            raise

    def _connect(self) -> Dict[int, socket.socket]:
        if self.rank:
            return join(_shared_text(self.store, ""), self.rank)
        own_address, interface = map(os.environ.get, ("DMLC_NODE_HOST", "DMLC_INTERFACE"))
        if interface and not own_address:  # as MXNet chooses
            own_address = address_of(interface)
        reception = Reception(os.environ["DMLC_PS_ROOT_URI"], own_address or "")
        _shared_text(self.store, reception.invitation)
        return reception.accept(self.count)

    def gather(self, value: Any) -> List[Any]:
        return self._connections.gather(value)

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
        self._connections.close()

    def fail(self, error: BaseException) -> None:
        """End the others, without waiting for them."""
        reason = str(error) if isinstance(error, WqaError) else repr(error)
        self._connections.fail(reason)
        _free_without_others(self.store, error)


def _meet(kvstore: str) -> mx.kvstore.KVStore:
    """Create the store, which waits for the other processes; MXNet itself waits for ever."""
    given = [os.environ[name] for name in _VARIABLES[1:]]
    error = WorkerLost(
        "training",
        f"not all of the processes have started in {MEETING} seconds",
        "{2} workers and {3} servers that reach the scheduler at {0}:{1}".format(*given),
        "start all of them again",
    )
    with ended_after(MEETING, error):
        return mx.kv.create(kvstore)


def _free_without_others(store: mx.kvstore.KVStore, error: BaseException) -> None:
    """Free a store after an error.

    MXNet waits for what it has begun, such as sums of gradients that a lost worker owes, and there
    is no end to it then: the error is printed, and the process is ended.
    """
    with ended_after(GRACE, error):
        check_call(_LIB.MXKVStoreSetBarrierBeforeExit(store.handle, ctypes.c_int(0)))
        _free(store)


def _free(store: mx.kvstore.KVStore) -> None:
    """Free a store now: at the end of the interpreter, no one may be there to do it."""
    handle, store.handle = store.handle, ctypes.c_void_p()
    check_call(_LIB.MXKVStoreFree(handle))


def _shared_text(store: mx.kvstore.KVStore, text: str) -> str:
    """The text of worker 0, by a key of the store."""
    codes = np.zeros(_LONGEST, dtype=np.float32)  # servers sum no whole numbers
    codes[: len(text)] = list(text.encode("ascii"))
    array = mx.nd.array(codes)
    store.init(_INVITATION, array)  # by worker 0; the others wait
    store.pull(_INVITATION, out=array)
    return bytes(array.asnumpy().astype(np.uint8)).rstrip(b"\0").decode("ascii")


@contextlib.contextmanager
def open_workers(kvstore: str) -> Iterator[Workers]:
    """Meet the other workers of a training.

    An error inside the ``with`` block ends all workers. So does the end of a process or of its
    machine: within a minute the others raise `wqa.errors.WorkerLost`, or, where MXNet waits for
    gradients that do not come, print it and end with exit status 2. A worker that waits in vain for
    the others to start ends so too.
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
        group.fail(error)
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
