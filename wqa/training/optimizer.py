"""The optimizer's state in a checkpoint, as arrays and numbers that run no code when read.

``optimizer.safetensors`` holds Adam's two moments of every parameter that was updated, named
``NAME/mean`` and ``NAME/variance`` after the parameter. Its metadata holds the version of the
format and, in JSON, how often each parameter was updated on each device: Adam corrects the bias of
its moments by these counts.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from wqa.config import parse_json
from wqa.data import storage_errors
from wqa.data.parameter_files import is_finite
from wqa.errors import RunDirectoryError, shorten

#: Name of the file in a checkpoint.
FILE = "optimizer.safetensors"
#: Changes whenever older files can no longer be read.
FORMAT = "1"
#: Adam's moments, in MXNet's order.
MOMENTS = ("mean", "variance")

_MEND = "restore the checkpoint from the run that wrote it"


class Moments(NamedTuple):
    """State of a parameter in Adam.

    Parameters
    ----------
    arrays : tuple of numpy.ndarray
        Mean and variance of its gradient, of the parameter's shape.
    counts : list of int
        Number of its updates on each device.
    """

    arrays: Tuple[np.ndarray, ...]
    counts: List[int]


class OptimizerState(NamedTuple):
    """State of Adam.

    Parameters
    ----------
    updates : int
        Number of updates.
    moments : dict of str to Moments
        State of each parameter that was updated, by the name of the parameter.
    """

    updates: int
    moments: Dict[str, Moments]


def save_optimizer(
    path: pathlib.Path, trainer: gluon.Trainer, parameters: Mapping[str, gluon.Parameter]
) -> None:
    """Write the state of a trainer's Adam.

    The devices have the same moments; those of the first are written.

    Parameters
    ----------
    path : pathlib.Path
        File to write.
    trainer : mxnet.gluon.Trainer
        Trainer of the parameters by Adam, with ``update_on_kvstore=False``.
    parameters : dict of str to mxnet.gluon.Parameter
        The trainer's parameters by name, in its order.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    optimizer, states = trainer._optimizer, trainer._updaters[0].states
    tensors: Dict[str, np.ndarray] = {}
    counts: Dict[str, List[int]] = {}
    for index, name in enumerate(parameters):
        if index not in states:
            continue  # no loss has depended on it
        for moment, array in zip(MOMENTS, states[index]):
            tensors[f"{name}/{moment}"] = array.asnumpy()
        counts[name] = [
            optimizer._all_index_update_counts[device.device_id][index]
            for device in trainer._contexts
        ]
    record = {"updates": optimizer.num_update, "counts": counts}
    metadata = {"format": FORMAT, "optimizer": "adam", "state": json.dumps(record)}
    with storage_errors(path):
        try:
            save_file(tensors, str(path), metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from None
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


def load_optimizer(
    path: pathlib.Path, trainer: gluon.Trainer, parameters: Mapping[str, gluon.Parameter]
) -> None:
    """Restore the state of a trainer's Adam.

    Parameters
    ----------
    path : pathlib.Path
        File that `save_optimizer` wrote.
    trainer : mxnet.gluon.Trainer
        New trainer of the parameters by Adam, with ``update_on_kvstore=False``.
    parameters : dict of str to mxnet.gluon.Parameter
        The trainer's initialised parameters by name, in its order.

    Raises
    ------
    RunDirectoryError
        If the file is damaged, or belongs to other parameters. The trainer is unchanged then.
    """
    set_state(path, read_state(path), trainer, parameters)


def read_state(path: pathlib.Path) -> OptimizerState:
    """Read the state of an Adam from a file that `save_optimizer` wrote.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    OptimizerState

    Raises
    ------
    RunDirectoryError
        If the file is damaged or of another version.
    """
    try:
        with safe_open(str(path), "np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise RunDirectoryError(
            path, f"cannot be read ({error})", "an optimizer's state", _MEND
        ) from None
    if metadata.get("format") != FORMAT or metadata.get("optimizer") != "adam":
        raise RunDirectoryError(
            path,
            f"an optimizer's state of format {shorten(metadata.get('format'))}",
            f"Adam's of format {FORMAT}",
            "resume with the version of wqa that wrote it",
        )
    try:
        record = parse_json(metadata["state"])
        updates, counts = record["updates"], dict(record["counts"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            path, f"its metadata cannot be read ({error})", "counts of updates", _MEND
        ) from None
    names = {f"{name}/{moment}" for name in counts for moment in MOMENTS}
    for name in sorted(names ^ set(tensors)):
        problem = "is missing" if name in names else "has no count of updates"
        raise RunDirectoryError(path, f"{shorten(name)} {problem}", "both", _MEND)
    moments = {}
    for name, numbers in counts.items():
        arrays = tuple(tensors[f"{name}/{moment}"] for moment in MOMENTS)
        moments[name] = Moments(arrays, numbers)
    return OptimizerState(updates, moments)


def set_state(
    path: pathlib.Path,
    state: OptimizerState,
    trainer: gluon.Trainer,
    parameters: Mapping[str, gluon.Parameter],
) -> None:
    """Give a state to a trainer's Adam.

    Parameters
    ----------
    path : pathlib.Path
        File of the state, for errors.
    state : OptimizerState
        The state, which is checked.
    trainer : mxnet.gluon.Trainer
        As `load_optimizer` takes it.
    parameters : dict of str to mxnet.gluon.Parameter
        As `load_optimizer` takes it.

    Raises
    ------
    RunDirectoryError
        If the state belongs to other parameters, or has values that no training has. The trainer
        is unchanged then.
    """
    devices, optimizer = trainer._contexts, trainer._optimizer
    _check_count(path, "the number of updates", state.updates, 1 << 40)
    for name, moments in state.moments.items():
        if name not in parameters:
            raise RunDirectoryError(
                path,
                f"holds a parameter {shorten(name)}, which the network lacks",
                "the state of this network's optimizer",
                _MEND,
            )
        _check_moments(path, name, moments, parameters[name].shape)
        if not isinstance(moments.counts, list) or len(moments.counts) != len(devices):
            raise RunDirectoryError(
                path,
                f"counts of updates of {name} are {shorten(moments.counts)}",
                f"one for each of {len(devices)} devices",
                _MEND,
            )
        for count in moments.counts:
            _check_count(path, f"the number of updates of {name}", count, state.updates)
    # As MXNet's own load_states does, once the parameters have their values.
    if not trainer._kv_initialized:
        trainer._init_kvstore()
    if trainer._params_to_init:
        trainer._init_params()
    optimizer.num_update = state.updates
    indices = {name: index for index, name in enumerate(parameters)}
    for number, device in enumerate(devices):
        updater, counts = trainer._updaters[number], {}
        updater.states, updater.states_synced = {}, {}
        for name, moments in state.moments.items():
            index = indices[name]
            arrays = [mx.nd.array(array, ctx=device) for array in moments.arrays]
            updater.states[index], updater.states_synced[index] = tuple(arrays), True
            counts[index] = moments.counts[number]
        optimizer._all_index_update_counts[device.device_id] = counts
    optimizer._set_current_context(devices[0].device_id)


def _check_count(path: pathlib.Path, what: str, count: Any, most: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= most:
        raise RunDirectoryError(
            path, f"{what} is {shorten(count)}", f"a whole number from 0 to {most}", _MEND
        )


def _check_moments(
    path: pathlib.Path, name: str, moments: Moments, shape: Tuple[int, ...]
) -> None:
    for moment, array in zip(MOMENTS, moments.arrays):
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
                _MEND,
            )
