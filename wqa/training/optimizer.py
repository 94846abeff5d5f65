"""Adam: sums of gradients over mini-batches, devices and workers, its state, and the state's file.

``optimizer.safetensors`` holds the two moments of every parameter that was updated, as
``NAME/mean`` and ``NAME/variance``. Its metadata holds the version of the format and, in JSON, the
counts of updates. It runs no code when it is read.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import gluon
from safetensors import SafetensorError, safe_open

from wqa.config import parse_json
from wqa.config.runs import open_file
from wqa.errors import RunDirectoryError, shorten
from wqa.io.files import storage_errors
from wqa.io.parameter_files import is_finite
from wqa.pretrained.load import write_tensors
from wqa.training.workers import Workers

#: Adam's moments, in MXNet's order.
MOMENTS = ("mean", "variance")

#: Remedy for a file that holds no state of a training.
MEND = "restore the checkpoint from the run that wrote it"

#: Greatest number of updates of a training.
MOST_UPDATES = 1 << 40

#: Name of the file in a checkpoint.
FILE = "optimizer.safetensors"

#: Changes whenever older files can no longer be read.
FORMAT = "1"


class GradientSums:
    """Sums of gradients over mini-batches, of the parameters that a loss depends on.

    ``grad_req="add"`` of MXNet would also keep old gradients of the other parameters.
    """

    def __init__(
        self, parameters: Dict[str, gluon.Parameter], devices: Sequence[mx.Context]
    ) -> None:
        self._parameters = list(itertools.product(parameters.values(), devices))
        self._sums: Dict[int, mx.nd.NDArray] = {}

    def add(self) -> None:
        """Add the gradients of the last mini-batch."""
        for index, (parameter, ctx) in enumerate(self._parameters):
            data = parameter.data(ctx)
            if data._fresh_grad:
                data._fresh_grad = False
                gradient = parameter.grad(ctx)
                if index in self._sums:
                    self._sums[index] += gradient
                else:
                    self._sums[index] = gradient.copy()

    def store(self) -> None:
        """Write the sums to the gradients that the optimizer reads."""
        for index, gradient in self._sums.items():
            parameter, ctx = self._parameters[index]
            parameter.grad(ctx)[:] = gradient
            parameter.data(ctx)._fresh_grad = True


class FreshTrainer(gluon.Trainer):
    """A Gluon trainer by Adam that sums only fresh gradients over devices and workers.

    A gradient is fresh if the loss of the update depends on its parameter. The gradients above the
    exit that an update draws are stale: `mxnet.gluon.Trainer` sums them too, and applies none.
    """

    def __init__(
        self,
        parameters: Mapping[str, gluon.Parameter],
        optimizer: Union[str, mx.optimizer.Optimizer],
        settings: Dict[str, Any],
        workers: Optional[Workers] = None,
    ) -> None:
        self._named, self._workers = parameters, workers or Workers()
        store = self._workers.store
        # A dict would be sorted by its names.
        super().__init__(
            list(parameters.values()), optimizer, settings, kvstore=store, update_on_kvstore=False
        )

    def save_states(self, path: pathlib.Path) -> None:
        """Write the state of a trainer's Adam and flush it to the disk."""
        optimizer, states = self._optimizer, self._updaters[0].states  # equal on all devices
        tensors: Dict[str, np.ndarray] = {}
        counts: Dict[str, List[int]] = {}
        for index, name in enumerate(self._named):
            if index not in states:
                continue  # no loss has depended on it
            for moment, array in zip(MOMENTS, states[index]):
                tensors[f"{name}/{moment}"] = array.asnumpy()
            counts[name] = []
            for device in self._contexts:
                counts[name].append(optimizer._all_index_update_counts[device.device_id][index])
        record = json.dumps({"updates": optimizer.num_update, "counts": counts})
        with storage_errors(path):
            metadata = {"format": FORMAT, "optimizer": "adam", "state": record}
            write_tensors(tensors, path, metadata)
            with open(path, "rb+") as file:
                os.fsync(file.fileno())

    def load_states(self, path: pathlib.Path) -> None:
        """Restore the state of a trainer's Adam."""
        updates, counts, tensors = _read(path)
        devices = self._contexts
        _check_count(path, "the number of updates", updates, MOST_UPDATES)
        for name, numbers in counts.items():
            if name not in self._named:
                raise RunDirectoryError(
                    path,
                    f"holds the parameter {shorten(name)}, which the network lacks",
                    "the state of this network's optimizer",
                    MEND,
                )
            for moment in MOMENTS:
                _check_moment(
                    path, name, moment, tensors[f"{name}/{moment}"], self._named[name].shape
                )
            if type(numbers) is not list or len(numbers) != len(devices):
                raise RunDirectoryError(
                    path,
                    f"the counts of updates of {name} are {shorten(numbers)}",
                    f"{len(devices)}, one for each device",
                    MEND,
                )
            for count in numbers:
                _check_count(path, f"the number of updates of {name}", count, updates)
        # As MXNet's load_states does, once the parameters have their values.
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()
        optimizer = self._optimizer
        optimizer.num_update = updates
        indices = {name: index for index, name in enumerate(self._named)}
        for updater, (number, device) in zip(self._updaters, enumerate(devices)):
            updater.states, updater.states_synced = {}, {}
            for name in counts:
                arrays = [tensors[f"{name}/{moment}"] for moment in MOMENTS]
                state = tuple(mx.nd.array(array, ctx=device) for array in arrays)
                updater.states[indices[name]], updater.states_synced[indices[name]] = state, True
            optimizer._all_index_update_counts[device.device_id] = {
                indices[name]: numbers[number] for name, numbers in counts.items()
            }
        # It holds the counts of one device, which have just been replaced.
        optimizer._set_current_context(devices[0].device_id)

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return  # one device
        fresh = set()
        for index, parameter in enumerate(self._params):
            if any(array._fresh_grad for array in parameter.list_data()):
                fresh.add(index)
        # A store waits for the gradient of every worker.
        for index in sorted(self._workers.union(fresh)):
            parameter = self._params[index]
            gradients = parameter.list_grad()
            for array, gradient in zip(parameter.list_data(), gradients):
                if not array._fresh_grad:  # the loss here does not depend on the parameter
                    gradient[:] = 0
                    array._fresh_grad = True
            # The priority is that of Gluon's trainer.
            self._kvstore.pushpull(index, gradients, priority=-index)


def _check_count(path: pathlib.Path, what: str, count: Any, most: int) -> None:
    if type(count) is not int or not 0 <= count <= most:
        raise RunDirectoryError(
            path, f"{what} is {shorten(count)}", f"a whole number from 0 to {most}", MEND
        )


def _check_moment(
    path: pathlib.Path, name: str, moment: str, array: np.ndarray, shape: Tuple[int, ...]
) -> None:
    problem = ""
    if array.shape != shape or array.dtype != np.float32:
        problem = f"has the shape {array.shape} and the type {array.dtype}"
    elif not is_finite(array):
        problem = "is not finite"
    elif moment == "variance" and array.size and array.min() < 0:
        problem = "has negative values"
    if problem:
        raise RunDirectoryError(
            path,
            f"the {moment} of parameter {name} {problem}",
            f"finite numbers of the shape {shape}, float32",
            MEND,
        )


def _read(path: pathlib.Path) -> Tuple[int, Dict[str, List[int]], Dict[str, np.ndarray]]:
    """Number of updates, those of each parameter on each device, and the moments."""
    try:
        open_file(path).close()  # what it refuses, the library would wait for
        with safe_open(str(path), "np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise RunDirectoryError(
            path, f"cannot be read ({error})", "the state of an optimizer", MEND
        ) from None
    if metadata.get("format") != FORMAT or metadata.get("optimizer") != "adam":
        raise RunDirectoryError(
            path,
            f"the state of an optimizer in format {shorten(metadata.get('format'))}",
            f"Adam's in format {FORMAT}",
            "resume with the version of wqa that wrote it",
        )
    try:
        record = parse_json(metadata["state"])
        updates, counts = record["updates"], dict(record["counts"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            path, f"its metadata cannot be read ({error})", "counts of updates", MEND
        ) from None
    expected = {f"{name}/{moment}" for name in counts for moment in MOMENTS}
    for name in sorted(expected ^ set(tensors)):
        problem = "is missing" if name in expected else "has no count of updates"
        raise RunDirectoryError(path, f"{shorten(name)} {problem}", "both", MEND)
    return updates, counts, tensors


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
