"""The state of Adam: the two moments of each parameter's gradient, and counts of updates."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon

from wqa.errors import RunDirectoryError, shorten
from wqa.io.parameter_files import is_finite

#: Adam's moments, in MXNet's order.
MOMENTS = ("mean", "variance")

#: Remedy for a file that holds no state of a training.
MEND = "restore the checkpoint from the run that wrote it"

#: Greatest number of updates of a training.
MOST_UPDATES = 1 << 40


class Moments(NamedTuple):
    """State of Adam for a parameter."""

    arrays: Tuple[np.ndarray, ...]
    counts: List[int]


class OptimizerState(NamedTuple):
    """State of Adam."""

    updates: int
    moments: Dict[str, Moments]


def state_of(trainer: gluon.Trainer, parameters: Mapping[str, gluon.Parameter]) -> OptimizerState:
    """Copy the state of a trainer's Adam. The moments are equal on all devices."""
    optimizer, states = trainer._optimizer, trainer._updaters[0].states
    moments = {}
    for index, name in enumerate(parameters):
        if index not in states:
            continue  # no loss has depended on it
        counts = []
        for device in trainer._contexts:
            counts.append(optimizer._all_index_update_counts[device.device_id][index])
        moments[name] = Moments(tuple(array.asnumpy() for array in states[index]), counts)
    return OptimizerState(optimizer.num_update, moments)


def set_state(
    path: pathlib.Path,
    state: OptimizerState,
    trainer: gluon.Trainer,
    parameters: Mapping[str, gluon.Parameter],
) -> None:
    """Give a trainer's Adam a state."""
    _check(path, state, parameters, len(trainer._contexts))
    # As MXNet's load_states does, once the parameters have their values.
    if not trainer._kv_initialized:
        trainer._init_kvstore()
    if trainer._params_to_init:
        trainer._init_params()
    optimizer = trainer._optimizer
    optimizer.num_update = state.updates
    indices = {name: index for index, name in enumerate(parameters)}
    for number, device in enumerate(trainer._contexts):
        updater, counts = trainer._updaters[number], {}
        updater.states, updater.states_synced = {}, {}
        for name, moments in state.moments.items():
            index = indices[name]
            arrays = [mx.nd.array(array, ctx=device) for array in moments.arrays]
            updater.states[index], updater.states_synced[index] = tuple(arrays), True
            counts[index] = moments.counts[number]
        optimizer._all_index_update_counts[device.device_id] = counts
    # It holds the counts of one device, which have just been replaced.
    optimizer._set_current_context(trainer._contexts[0].device_id)


def _check(
    path: pathlib.Path,
    state: OptimizerState,
    parameters: Mapping[str, gluon.Parameter],
    devices: int,
) -> None:
    """Check a state before a trainer takes it."""
    _check_count(path, "the number of updates", state.updates, MOST_UPDATES)
    for name, moments in state.moments.items():
        if name not in parameters:
            raise RunDirectoryError(
                path,
                f"holds the parameter {shorten(name)}, which the network lacks",
                "the state of this network's optimizer",
                MEND,
            )
        _check_arrays(path, name, moments.arrays, parameters[name].shape)
        if type(moments.counts) is not list or len(moments.counts) != devices:
            raise RunDirectoryError(
                path,
                f"the counts of updates of {name} are {shorten(moments.counts)}",
                f"{devices}, one for each device",
                MEND,
            )
        for count in moments.counts:
            _check_count(path, f"the number of updates of {name}", count, state.updates)


def _check_count(path: pathlib.Path, what: str, count: Any, most: int) -> None:
    if type(count) is not int or not 0 <= count <= most:
        raise RunDirectoryError(
            path, f"{what} is {shorten(count)}", f"a whole number from 0 to {most}", MEND
        )


def _check_arrays(
    path: pathlib.Path, name: str, arrays: Tuple[np.ndarray, ...], shape: Tuple[int, ...]
) -> None:
    for moment, array in zip(MOMENTS, arrays):
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
