"""Checkpoints, written atomically.

``checkpoints/update-00000500/`` holds the parameters, the optimizer's state, the best parameters
so far, and ``state.json`` with the state of the training and the SHA-256 of the other files. It is
written under a temporary name and renamed, so that a process killed at any moment leaves the
previous checkpoint intact.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List, Optional

from mxnet.gluon import Block

from wqa.config import read_json
from wqa.data import atomic_writer, storage_errors
from wqa.data.files import sha256, sync_directory
from wqa.errors import RunDirectoryError
from wqa.pretrained.folders import write_parameters
from wqa.pretrained.parameters import load_parameters

#: Number of checkpoints on disk.
KEPT = 2


@dataclasses.dataclass
class State:
    """State of a training after ``update`` updates."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # next batch of the epoch
    loss_sums: Dict[str, float] = dataclasses.field(default_factory=dict)  # since the last log line
    loss_updates: int = 0  # number of updates in the sums
    best_figure: float = -math.inf  # on the development questions
    best_update: int = 0
    evaluations_since_best: int = 0
    finished: bool = False
    evaluation_is_due: bool = False


def save_parameters(block: Block, path: pathlib.Path) -> None:
    """Write the parameters of a block, flush them to the disk, and check the file.

    Parameters
    ----------
    block : mxnet.gluon.Block
        Block with initialised parameters.
    path : pathlib.Path
        File to write.

    Raises
    ------
    StorageError
        If the file cannot be written completely.
    """
    with storage_errors(path):
        write_parameters(block, path)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


class Checkpoints:
    """The ``checkpoints/`` folder of a run directory.

    Parameters
    ----------
    run : pathlib.Path
        Run directory.
    """

    def __init__(self, run: pathlib.Path) -> None:
        self.folder = run / "checkpoints"
        self._best: Optional[pathlib.Path] = None

    def keep_best(self, model: Block, update: int) -> None:
        """Write the best parameters so far.

        Parameters
        ----------
        model : mxnet.gluon.Block
            Network with these parameters.
        update : int
            Number of updates so far.
        """
        path = self.folder / f"best-{update:08}.params"
        temporary = path.with_suffix(".tmp")
        with storage_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                save_parameters(model, temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        self._best = path

    def save(
        self, state: State, model: Block, save_optimizer: Callable[[str], None]
    ) -> pathlib.Path:
        """Write a checkpoint, then delete all but the last two.

        Parameters
        ----------
        state : State
            State of the training.
        model : mxnet.gluon.Block
            Network in training.
        save_optimizer : callable
            Takes a path, to which it writes the optimizer's state.

        Returns
        -------
        pathlib.Path
            Folder of the checkpoint.

        Raises
        ------
        StorageError
            If the checkpoint cannot be written; earlier checkpoints remain.
        """
        target = self.folder / f"update-{state.update:08}"
        temporary = self.folder / f".{target.name}.tmp"
        with storage_errors(target):
            try:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
                save_parameters(model, temporary / "model.params")
                save_optimizer(str(temporary / "optimizer.states"))
                if self._best is not None:
                    _link(self._best, temporary / "best.params")
                files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
                with atomic_writer(temporary / "state.json") as file:
                    json.dump({"state": dataclasses.asdict(state), "sha256": files}, file, indent=2)
                shutil.rmtree(target, ignore_errors=True)
                os.rename(temporary, target)
                sync_directory(self.folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        self._prune(target)
        return target

    def _prune(self, newest: pathlib.Path) -> None:
        for old in self.all()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        if self._best is not None:
            # The newest checkpoint holds a copy, which replaces the loose file.
            self._best = newest / "best.params"
        for loose in self.folder.glob("best-*"):
            loose.unlink()

    def all(self) -> List[pathlib.Path]:
        """Folders of the checkpoints, oldest first."""
        return sorted(self.folder.glob("update-*")) if self.folder.is_dir() else []

    def load_latest(
        self, model: Block, load_optimizer: Callable[[str], None], ctx: Any
    ) -> Optional[State]:
        """Restore the newest checkpoint.

        Parameters
        ----------
        model : mxnet.gluon.Block
            Network that the parameters are loaded into.
        load_optimizer : callable
            Takes a path, from which it reads the optimizer's state.
        ctx : list of mxnet.Context
            Devices of the parameters.

        Returns
        -------
        State or None
            State of the training; None if there is no checkpoint.

        Raises
        ------
        RunDirectoryError
            If a file of the checkpoint is missing or has changed.
        """
        checkpoints = self.all()
        if not checkpoints:
            return None
        newest = checkpoints[-1]
        record = _read_record(newest)
        load_parameters(model, newest / "model.params", ctx)
        load_optimizer(str(newest / "optimizer.states"))
        best = newest / "best.params"
        self._best = best if best.exists() else None
        for loose in [*self.folder.glob("best-*"), *self.folder.glob(".update-*.tmp")]:
            shutil.rmtree(loose) if loose.is_dir() else loose.unlink()
        return _state(record["state"])

    def finish(self, model: Block, path: pathlib.Path) -> None:
        """Write the final parameters of a run and delete the checkpoints.

        Parameters
        ----------
        model : mxnet.gluon.Block
            Network whose parameters are written if `keep_best` was never called.
        path : pathlib.Path
            ``model.params`` of the run directory.
        """
        temporary = path.with_name(f".{path.name}.tmp")
        with storage_errors(path):
            try:
                if self._best is not None:
                    shutil.copyfile(self._best, temporary)
                else:
                    save_parameters(model, temporary)
                with open(temporary, "rb+") as file:
                    os.fsync(file.fileno())
                os.replace(temporary, path)
                sync_directory(path.parent)
            finally:
                temporary.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _state(values: Dict[str, Any]) -> State:
    """The state in a checkpoint, also of the previous version's format."""
    values = dict(values)
    if "best_map" in values:
        values["best_figure"] = values.pop("best_map")
        values["loss_sums"] = {"loss": values.pop("loss_sum")}
    return State(**values)


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _read_record(folder: pathlib.Path) -> Dict[str, Any]:
    mend = f"delete {folder.name} to resume from the checkpoint before it"
    try:
        record = read_json(folder / "state.json")
        names = record["sha256"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise RunDirectoryError(
            folder / "state.json", f"cannot be read ({error})", "a checkpoint's state", mend
        ) from None
    for name, expected in names:
        try:
            digest = sha256(folder / name)
        except OSError as error:
            raise RunDirectoryError(
                folder / name,
                f"cannot be read ({error.strerror})",
                "the file as it was written",
                mend,
            ) from None
        if digest != expected:
            raise RunDirectoryError(
                folder / name,
                f"SHA-256 {digest[:12]}...",
                f"{expected[:12]}..., as it was written",
                mend,
            )
    return record
