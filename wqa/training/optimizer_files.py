"""Files of the optimizer's state in a checkpoint, which run no code when they are read.

``optimizer.safetensors`` holds the two moments of every parameter that was updated, as
``NAME/mean`` and ``NAME/variance``. Its metadata holds the version of the format and, in JSON, the
counts of updates.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Mapping

from mxnet import gluon
from safetensors import SafetensorError, safe_open

from wqa.config import parse_json
from wqa.config.reading import open_file
from wqa.errors import RunDirectoryError, shorten
from wqa.io.files import storage_errors
from wqa.pretrained.parameters import write_tensors
from wqa.training.optimizer import MEND, MOMENTS, Moments, OptimizerState, set_state, state_of

#: Name of the file in a checkpoint.
FILE = "optimizer.safetensors"

#: Changes whenever older files can no longer be read.
FORMAT = "1"


def save_optimizer(
    trainer: gluon.Trainer, parameters: Mapping[str, gluon.Parameter], path: pathlib.Path
) -> None:
    """Write the state of a trainer's Adam and flush it to the disk."""
    state = state_of(trainer, parameters)
    tensors = {}
    for name, moments in state.moments.items():
        for moment, array in zip(MOMENTS, moments.arrays):
            tensors[f"{name}/{moment}"] = array
    counts = {name: moments.counts for name, moments in state.moments.items()}
    record = json.dumps({"updates": state.updates, "counts": counts})
    with storage_errors(path):
        metadata = {"format": FORMAT, "optimizer": "adam", "state": record}
        write_tensors(tensors, path, metadata)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


def load_optimizer(
    trainer: gluon.Trainer, parameters: Mapping[str, gluon.Parameter], path: pathlib.Path
) -> None:
    """Restore the state of a trainer's Adam."""
    set_state(path, _read(path), trainer, parameters)


def _read(path: pathlib.Path) -> OptimizerState:
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
    moments = {}
    for name, numbers in counts.items():
        arrays = tuple(tensors[f"{name}/{moment}"] for moment in MOMENTS)
        moments[name] = Moments(arrays, numbers)
    return OptimizerState(updates, moments)
