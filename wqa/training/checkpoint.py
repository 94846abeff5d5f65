"""Checkpoints that are either whole or not there.

``checkpoints/update-00000500/`` holds the parameters, the optimizer's state, the best parameters
so far, and ``state.json`` with where the training stands and a SHA-256 of each other file. It is
written under another name and renamed, so a kill at any moment leaves the one before it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List, Optional

from mxnet.gluon import Block

from wqa.data import atomic_writer, storage_errors
from wqa.data.files import sha256, sync_directory
from wqa.errors import RunDirectoryError
from wqa.pretrained.folders import write_parameters

#: Whole checkpoints that stay on disk.
KEPT = 2


@dataclasses.dataclass
class State:
    """Where a training stands after ``update`` updates."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # next batch of the epoch
    loss_sums: Dict[str, float] = dataclasses.field(default_factory=dict)  # not yet logged
    loss_updates: int = 0  # of which they are sums
    best_figure: float = -1.0  # on the development questions
    best_update: int = 0
    evaluations_since_best: int = 0
    finished: bool = False


def save_parameters(block: Block, path: pathlib.Path) -> None:
    """Write a block's parameters so that they are on the disk and can be read back.

    Parameters
    ----------
    block : mxnet.gluon.Block
    path : pathlib.Path

    Raises
    ------
    StorageError
        If the file is not whole.
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
        update : int
            The update that they come from.
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
        """Write a checkpoint, then delete those before the last two.

        Parameters
        ----------
        state : State
        model : mxnet.gluon.Block
        save_optimizer : callable
            Writes the optimizer's state to the path that it is given.

        Returns
        -------
        pathlib.Path
            The checkpoint's folder.

        Raises
        ------
        StorageError
            If it cannot be written; the checkpoints before it stay.
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
            # From here on the copy inside the newest checkpoint is the one that counts.
            self._best = newest / "best.params"
        for loose in self.folder.glob("best-*"):
            loose.unlink()

    def all(self) -> List[pathlib.Path]:
        """Whole checkpoints, oldest first."""
        return sorted(self.folder.glob("update-*")) if self.folder.is_dir() else []

    def load_latest(
        self, model: Block, load_optimizer: Callable[[str], None], ctx: Any
    ) -> Optional[State]:
        """Restore the newest checkpoint.

        Parameters
        ----------
        model : mxnet.gluon.Block
        load_optimizer : callable
            Reads the optimizer's state from the path that it is given.
        ctx : list of mxnet.Context

        Returns
        -------
        State or None
            None if there is no checkpoint yet.

        Raises
        ------
        RunDirectoryError
            If a file of the checkpoint is missing or not as it was written.
        """
        whole = self.all()
        if not whole:
            return None
        newest = whole[-1]
        record = _read_record(newest)
        model.load_parameters(str(newest / "model.params"), ctx=ctx)
        load_optimizer(str(newest / "optimizer.states"))
        best = newest / "best.params"
        self._best = best if best.exists() else None
        for loose in [*self.folder.glob("best-*"), *self.folder.glob(".update-*.tmp")]:
            shutil.rmtree(loose) if loose.is_dir() else loose.unlink()
        return _state(record["state"])

    def finish(self, model: Block, path: pathlib.Path) -> None:
        """Write a run's final parameters, the best ones if any were kept, and drop the checkpoints.

        Parameters
        ----------
        model : mxnet.gluon.Block
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
    """The state of a checkpoint, also of one that the version before this one wrote."""
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
    mend = f"delete {folder.name} to go on from the checkpoint before it"
    try:
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))
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
