"""The processes of one training: a single one, or several on one or more machines.

Several train by MXNet's store ``dist_sync``. A scheduler and servers run beside the workers, each
the same command with another ``DMLC_ROLE``: MXNet becomes the scheduler or a server when it is
imported. The servers sum the gradients. What else the workers share, such as losses and figures on
the development questions, are bytes that the servers sum too: each worker has rows of its own.

MXNet waits for ever for a worker that is lost or does not start, so the launcher ends all processes
when one has ended (`recipes/scale/launch.sh`; Slurm and Kubernetes have options for it).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import math
import os
import sys
import traceback
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.base import _LIB, check_call

from wqa.errors import OptionError, Stopped, WqaError

T = TypeVar("T")

#: Variables that the launcher sets.
VARIABLES = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
)

#: Keys in the store, beyond those of the parameters: of the texts' lengths, and of their bytes.
_LENGTHS, _BYTES = 1 << 20, (1 << 20) + 1
#: Bytes of a text that one exchange takes from each worker.
_PART = 4096


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

    def wait(self) -> None:
        """Wait until all workers have read the parameters of worker 0."""


class _Group(Workers):
    """One of several workers."""

    def __init__(self, kvstore: str) -> None:
        self.store = mx.kv.create(kvstore)  # waits for the other processes
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

    def wait(self) -> None:
        # The store holds the parameters until the first gradient replaces them. A worker must have
        # read them by then, or it would take that gradient for its parameters.
        mx.nd.waitall()
        self.store._barrier()

    def close(self) -> None:
        """Wait for all others to close, and end the scheduler and the servers."""
        mx.nd.waitall()
        # At the end of the interpreter, no one may be there to do it.
        handle, self.store.handle = self.store.handle, ctypes.c_void_p()
        check_call(_LIB.MXKVStoreFree(handle))


@contextlib.contextmanager
def open_workers(kvstore: str) -> Iterator[Workers]:
    """Meet the other workers of a training.

    A worker that fails prints its error and ends at once, with status 2; the launcher ends the
    others.
    """
    if kvstore == "device":
        yield Workers()
        return
    for name in VARIABLES:  # MXNet ends the process where one is missing
        if not os.environ.get(name):
            hint = "start the training by recipes/scale/launch.sh, which sets the DMLC_ variables"
            raise OptionError(name, f"is not set, for kvstore={kvstore}", "its value", hint)
    group = _Group(kvstore)
    try:
        if group.rank:
            logging.getLogger("wqa").setLevel(logging.ERROR)  # worker 0 prints notes for all
        yield group
    except Stopped:
        group.close()  # all workers stop after the same update
        raise
    except BaseException as error:
        # The store's destructor would wait for the other workers.
        if isinstance(error, WqaError):
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)
    group.close()


class AdamTrainer(gluon.Trainer):
    """A Gluon trainer by Adam that sums only fresh gradients, and steps on the first device alone.

    A gradient is fresh if the loss of the update depends on its parameter. The gradients above the
    exit that an update draws are stale: `mxnet.gluon.Trainer` sums them too, and applies none.

    `mxnet.gluon.Trainer` makes the same step on each device, one operator a parameter and device.
    Here the other devices copy the parameters of the first, which alone holds the moments.
    """

    def __init__(
        self,
        parameters: Mapping[str, gluon.Parameter],
        learning_rate: float,
        workers: Optional[Workers] = None,
    ) -> None:
        self.names, self._workers = list(parameters), workers or Workers()
        self._sums: Dict[Tuple[int, mx.Context], mx.nd.NDArray] = {}
        # A dict would be sorted by its names.
        super().__init__(
            list(parameters.values()),
            "adam",
            {"learning_rate": learning_rate},
            kvstore=self._workers.store,
            update_on_kvstore=False,
        )
        self._init_kvstore()
        self._init_params()
        self._workers.wait()

    def keep_gradients(self) -> None:
        """Add the fresh gradients of a mini-batch to those that were kept.

        ``grad_req="add"`` of MXNet would also keep old gradients of the other parameters.
        """
        for index, parameter in enumerate(self._params):
            for device in self.devices:
                data, key = parameter.data(device), (index, device)
                if not data._fresh_grad:
                    continue
                data._fresh_grad = False
                if key in self._sums:
                    self._sums[key] += parameter.grad(device)
                else:
                    self._sums[key] = parameter.grad(device).copy()

    def take_gradients(self) -> None:
        """Take the sums that were kept as the gradients of the next step."""
        for (index, device), gradient in self._sums.items():
            self._params[index].grad(device)[:] = gradient
            self._params[index].data(device)._fresh_grad = True
        self._sums = {}

    @property
    def devices(self) -> List[mx.Context]:
        """Devices that hold the parameters."""
        return self._contexts

    @property
    def counts(self) -> Dict[int, int]:
        """Number of updates of each parameter, by the parameter's index."""
        return self._optimizer._all_index_update_counts[self.devices[0].device_id]

    def fresh(self) -> Dict[str, gluon.Parameter]:
        """Parameters whose gradients are fresh on the first device, by name."""
        pairs = zip(self.names, self._params)
        return {name: one for name, one in pairs if one.list_data()[0]._fresh_grad}

    def restore(self, updates: int, states: Sequence[Tuple[str, int, Any]]) -> None:
        """Restore the number of updates, and name, number of updates and moments of parameters."""
        self._optimizer.num_update = updates
        updater, device = self._updaters[0], self.devices[0]
        updater.states, updater.states_synced = {}, {}
        self._optimizer._all_index_update_counts[device.device_id] = {}
        # It holds the counts of the first device, which have just been replaced.
        self._optimizer._set_current_context(device.device_id)
        for name, count, arrays in states:
            index = self.names.index(name)
            updater.states[index] = tuple(mx.nd.array(array, ctx=device) for array in arrays)
            updater.states_synced[index] = True
            self.counts[index] = count

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return  # one device
        fresh = set()
        for index, parameter in enumerate(self._params):
            if any(array._fresh_grad for array in parameter.list_data()):
                fresh.add(index)
        # A store waits for the gradient of every worker.
        for index in sorted(set().union(*self._workers.gather(sorted(fresh)))):
            parameter = self._params[index]
            gradients = parameter.list_grad()
            for array, gradient in zip(parameter.list_data(), gradients):
                if not array._fresh_grad:  # the loss here does not depend on the parameter
                    gradient[:] = 0
                    array._fresh_grad = True
            # The priority is that of Gluon's trainer. The first device alone needs the sum.
            self._kvstore.pushpull(index, gradients, out=gradients[:1], priority=-index)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        gradients: List[Tuple[int, mx.nd.NDArray, mx.nd.NDArray]] = []
        for index, parameter in enumerate(self._params):
            if parameter.list_data()[0]._fresh_grad:
                gradients.append((index, parameter.list_grad()[0], parameter.list_data()[0]))
        if gradients:
            self._updaters[0](*map(list, zip(*gradients)))
        for index, _, updated in gradients:
            for array in self._params[index].list_data():
                array._fresh_grad = False
                if array is not updated:
                    updated.copyto(array)


def clip_gradients(gradients: Sequence[mx.nd.NDArray], limit: float, workers: Workers) -> None:
    """Scale gradients so that their norm is at most a limit, by the same factor on all workers."""
    if workers.count == 1:
        gluon.utils.clip_global_norm(gradients, limit)
        return
    flat = [gradient.reshape((-1,)) for gradient in gradients]
    squares = mx.nd.add_n(*[mx.nd.dot(gradient, gradient) for gradient in flat])
    # The last bit of a norm depends on the number of threads.
    norm = workers.first(math.sqrt(squares.asscalar()))
    if norm > limit:
        for gradient in gradients:
            gradient *= limit / norm
