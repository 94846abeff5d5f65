"""Figures of a training while it runs, and checkpoints, written atomically.

``metrics.jsonl`` has one JSON object a line.

``checkpoints/update-00000500/`` holds the parameters, the optimizer's state, the best parameters
so far, and ``state.json`` with the state of the training and the SHA-256 of the other files. It is
written under a temporary name and renamed, so that a process killed at any moment leaves the
previous checkpoint intact. The lock of the run keeps other processes away; temporary files in the
folder are those of dead ones.

``optimizer.safetensors`` holds the two moments of every parameter that was updated, as
``NAME/mean`` and ``NAME/variance``. Its metadata holds, in JSON, the counts of updates.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any, Dict, List, Optional

import numpy as np
from mxnet.gluon import Block
from safetensors import safe_open

from wqa.config import from_dict, parse_json, read_json
from wqa.errors import RunDirectoryError
from wqa.io.files import atomic_writer, remove, replacing, sha256, storage_errors, write_json
from wqa.pretrained.load import load_parameters, write_parameters, write_tensors
from wqa.training.workers import AdamTrainer

#: Number of checkpoints on disk.
KEPT = 2
#: Changes whenever older versions of the package cannot resume. Format 1 has no number.
FORMAT = 2

#: Names of the optimizer's state and of the best parameters in a checkpoint.
OPTIMIZER, BEST = "optimizer.safetensors", "best.params"

#: Adam's moments, in MXNet's order.
MOMENTS = ("mean", "variance")


@dataclasses.dataclass
class State:
    """State of a training after ``update`` updates."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # next batch of the epoch
    loss_sums: Dict[str, float] = dataclasses.field(default_factory=dict)  # since the last log line
    loss_updates: int = 0  # number of updates in the sums
    best_figure: Optional[float] = None  # on the development questions
    best_update: int = 0
    evaluations_since_best: int = 0
    finished: bool = False
    evaluation_is_due: bool = False


class Checkpoints:
    """The ``checkpoints/`` folder of a run directory."""

    def __init__(self, run: pathlib.Path) -> None:
        self.folder = run / "checkpoints"
        self._best: Optional[pathlib.Path] = None

    def keep_best(self, model: Block, update: int) -> None:
        """Write the best parameters so far."""
        path = self.folder / f"best-{update:08}.params"
        with replacing(path) as temporary:
            write_parameters(model, temporary)
        self._best = path

    def save(self, state: State, model: Block, optimizer: AdamTrainer) -> None:
        """Write a checkpoint, then delete all but the last two."""
        target = self.folder / f"update-{state.update:08}"
        with replacing(target) as folder:
            folder.mkdir()
            write_parameters(model, folder / "model.params")
            save_optimizer(optimizer, folder / OPTIMIZER)
            if self._best is not None:
                try:
                    os.link(self._best, folder / BEST)
                except OSError:  # a file system without hard links
                    shutil.copyfile(self._best, folder / BEST)
            files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
            record = {"format": FORMAT, "state": dataclasses.asdict(state), "sha256": files}
            write_json(folder / "state.json", record)
        for old in self.all()[:-KEPT]:
            remove(old)
        if self._best is not None:
            # The newest checkpoint holds a copy, which replaces the loose file.
            self._best = target / BEST
        self.remove_loose()

    def all(self) -> List[pathlib.Path]:
        """Folders of the checkpoints, oldest first."""
        return sorted(self.folder.glob("update-" + 8 * "[0-9]"))

    def load_latest(self, model: Block, optimizer: AdamTrainer) -> State:
        """Restore the newest checkpoint; the state before the first update without one."""
        checkpoints = self.all()
        if not checkpoints:
            return State()
        newest = checkpoints[-1]
        record = _read_record(newest)
        load_parameters(model, newest / "model.params", optimizer.devices)
        load_optimizer(optimizer, newest / OPTIMIZER)
        self._best = newest / BEST if BEST in record.sha256 else None
        return record.state

    def finish(self, model: Block, path: pathlib.Path) -> None:
        """Write the final parameters of a run and delete the checkpoints."""
        with replacing(path) as temporary:
            if self._best is None:
                write_parameters(model, temporary)
            else:
                shutil.copyfile(self._best, temporary)
        self.remove()

    def remove(self) -> None:
        """Remove the checkpoints, and their folder if nothing else is in it."""
        self.remove_loose()
        for path in self.all():
            remove(path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def remove_loose(self) -> None:
        """Remove parameters beside the checkpoints, and what dead processes left."""
        for pattern in ("best-*.params", ".*.tmp"):
            for path in self.folder.glob(pattern):
                remove(path)


@dataclasses.dataclass
class _Record:
    """Content of a checkpoint's ``state.json``."""

    state: State
    sha256: Dict[str, str]
    format: int = 1


def _read_record(folder: pathlib.Path) -> _Record:
    """Read a checkpoint's ``state.json``, and compare the other files with its digests."""
    path = folder / "state.json"
    hint = f"delete {folder.name} to resume from the checkpoint before it"
    try:
        record = from_dict(_Record, read_json(path), str(path))
        if record.format != FORMAT:
            raise ValueError(f"format {record.format}")
        for name in {"model.params", OPTIMIZER, *record.sha256}:
            path = folder / name
            digest = sha256(path)
            if digest != record.sha256.get(name):
                raise ValueError(f"SHA-256 {digest[:12]}... is not that of state.json")
    except RunDirectoryError as error:
        raise RunDirectoryError(error.where, error.found, error.expected, hint) from None
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({error})"
        raise RunDirectoryError(path, problem, "the file as it was written", hint) from None
    return record


def save_optimizer(optimizer: AdamTrainer, path: pathlib.Path) -> None:
    """Write the state of Adam."""
    tensors: Dict[str, np.ndarray] = {}
    counts: Dict[str, List[int]] = {}
    # Parameters that no loss has depended on have none.
    for index, moments in sorted(optimizer._updaters[0].states.items()):
        name = optimizer.names[index]
        for moment, array in zip(MOMENTS, moments):
            tensors[f"{name}/{moment}"] = array.asnumpy()
        counts[name] = [optimizer.counts[index]]
    record = {"updates": optimizer._optimizer.num_update, "counts": counts}
    metadata = {"format": "1", "optimizer": "adam", "state": json.dumps(record)}
    write_tensors(tensors, path, metadata)


def load_optimizer(optimizer: AdamTrainer, path: pathlib.Path) -> None:
    """Restore the state of Adam from a file whose digest was compared."""
    with safe_open(str(path), "np") as file:
        record = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    states = []
    for name, [count, *_] in record["counts"].items():  # runs of 0.2 have a count for each device
        moments = [tensors[f"{name}/{moment}"] for moment in MOMENTS]
        states.append((name, count, moments))
    optimizer.restore(record["updates"], states)


def _has_update(line: Any) -> bool:
    return isinstance(line, dict) and isinstance(line.get("update"), int)


class MetricsFile:
    """The file ``metrics.jsonl`` of a run directory: one JSON object a line."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def lines(self) -> List[Dict[str, Any]]:
        """Lines of the file, without those that were not written completely."""
        lines = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with contextlib.suppress(ValueError):
                lines.append(parse_json(line))
        return [line for line in lines if _has_update(line)]

    def append(self, line: Dict[str, Any]) -> None:
        """Append a line."""
        with storage_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def keep_until(self, update: int) -> None:
        """Delete the lines after an update, and those that were not written completely."""
        if self.path.exists():
            kept = [line for line in self.lines() if line["update"] <= update]
            with atomic_writer(self.path) as file:
                file.writelines(json.dumps(line) + "\n" for line in kept)
