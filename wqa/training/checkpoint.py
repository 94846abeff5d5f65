"""Checkpoints, written atomically.

``checkpoints/update-00000500/`` holds the parameters, the optimizer's state, the best parameters
so far, and ``state.json`` with the state of the training and the SHA-256 of the other files. It is
written under a temporary name and renamed, so that a process killed at any moment leaves the
previous checkpoint intact. The lock of the run keeps other processes away; temporary files in the
folder are those of dead ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
from typing import Any, Callable, Dict, Iterator, List, Optional

from mxnet.gluon import Block

from wqa.config import from_dict, read_json
from wqa.errors import RunDirectoryError, shorten
from wqa.io.files import (
    atomic_writer,
    remove,
    remove_abandoned,
    sha256,
    storage_errors,
    sync_directory,
    temporary_path,
)
from wqa.pretrained.load import load_parameters, write_parameters
from wqa.training.optimizer import FILE as OPTIMIZER

#: Number of checkpoints on disk.
KEPT = 2
#: Changes whenever older versions of the package cannot resume. Format 1 has no number.
FORMAT = 2

#: Takes the path of a file, and writes or reads the optimizer's state.
OptimizerFile = Callable[[pathlib.Path], None]

_NAME = re.compile(r"update-(\d{8,12})")
# Earlier versions left files that end in ``.tmp``.
_BEST = re.compile(r"best-\d{8,12}\.(params|tmp)")


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


def save_parameters(block: Block, path: pathlib.Path) -> None:
    """Write the parameters of a block, flush them to the disk, and check the file."""
    with storage_errors(path):
        write_parameters(block, path)
        _flush(path)


class Checkpoints:
    """The ``checkpoints/`` folder of a run directory."""

    def __init__(self, run: pathlib.Path) -> None:
        self.folder = run / "checkpoints"
        self._best: Optional[pathlib.Path] = None

    def keep_best(self, model: Block, update: int) -> None:
        """Write the best parameters so far."""
        path = self.folder / f"best-{update:08}.params"
        with _replacing(path) as temporary:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_parameters(model, temporary)
        self._best = path

    def save(self, state: State, model: Block, save_optimizer: OptimizerFile) -> pathlib.Path:
        """Write a checkpoint, then delete all but the last two."""
        target = self.folder / f"update-{state.update:08}"
        temporary = temporary_path(target)
        with storage_errors(target):
            try:
                remove(temporary)
                temporary.mkdir(parents=True)
                save_parameters(model, temporary / "model.params")
                save_optimizer(temporary / OPTIMIZER)
                if self._best is not None:
                    _link(self._best, temporary / "best.params")
                files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
                record = {"format": FORMAT, "state": dataclasses.asdict(state), "sha256": files}
                with atomic_writer(temporary / "state.json") as file:
                    json.dump(record, file, indent=2)
                remove(target)
                os.rename(temporary, target)
                sync_directory(self.folder)
            finally:
                remove(temporary)
        self._prune(target)
        return target

    def _prune(self, newest: pathlib.Path) -> None:
        for old in self.all()[:-KEPT]:
            remove(old)
        if self._best is not None:
            # The newest checkpoint holds a copy, which replaces the loose file.
            self._best = newest / "best.params"
        for loose in self._loose():
            remove(loose)

    def all(self) -> List[pathlib.Path]:
        """Folders of the checkpoints, oldest first."""
        folders = [path for path in self.folder.glob("update-*") if _number(path) >= 0]
        return sorted(folders, key=_number)

    def load_latest(self, model: Block, load_optimizer: OptimizerFile, ctx: Any) -> Optional[State]:
        """Restore the newest checkpoint, and delete what dead processes left beside it."""
        for loose in self._loose():
            remove(loose)
        checkpoints = self.all()
        if not checkpoints:
            return None
        newest = checkpoints[-1]
        record = _read_record(newest)
        load_parameters(model, newest / "model.params", ctx)
        load_optimizer(newest / OPTIMIZER)
        self._best = newest / "best.params" if "best.params" in record.sha256 else None
        return record.state

    def check_fits(self, state: State, total: int, accumulate: int) -> None:
        """Check that a state belongs to a training of these settings."""
        if state.update > total or state.batch > state.update * accumulate:
            raise RunDirectoryError(
                self.folder,
                f"a checkpoint of update {state.update} at mini-batch {state.batch}",
                f"one of a training of {total} updates",
                "restore the checkpoints from the run that wrote them",
            )

    def finish(self, model: Block, path: pathlib.Path) -> None:
        """Write the final parameters of a run and delete the checkpoints."""
        with _replacing(path) as temporary:
            remove_abandoned(path)
            if self._best is None:
                save_parameters(model, temporary)
            else:
                shutil.copyfile(self._best, temporary)
                _flush(temporary)
        with storage_errors(path):
            sync_directory(path.parent)
        self.remove()

    def remove(self) -> None:
        """Remove the checkpoints, and their folder if nothing else is in it."""
        for path in [*self.all(), *self._loose()]:
            remove(path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _loose(self) -> List[pathlib.Path]:
        """Parameters beside the checkpoints, and what dead processes left."""
        best = [path for path in self.folder.glob("best-*") if _BEST.fullmatch(path.name)]
        return [*best, *self.folder.glob(".*.tmp")]


@contextlib.contextmanager
def _replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary name, whose file gets the final name at the end of the block."""
    temporary = temporary_path(path)
    with storage_errors(path):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _flush(path: pathlib.Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


@dataclasses.dataclass
class _Record:
    """Content of a checkpoint's ``state.json``."""

    state: State
    sha256: Dict[str, str]
    format: int = 1


def _number(folder: pathlib.Path) -> int:
    """The update in the name of a checkpoint; -1 for a folder that no training writes."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else -1


def _read_record(folder: pathlib.Path) -> _Record:
    """Read a checkpoint's ``state.json``, and check the other files by it."""
    path = folder / "state.json"
    mend = f"delete {folder.name} to resume from the checkpoint before it"
    try:
        record = _parse(read_json(path), path)
        problem = _contradiction(record, folder)
    except RunDirectoryError as error:
        raise RunDirectoryError(error.where, error.found, error.expected, mend) from None
    except (OSError, ValueError, OverflowError) as error:
        problem = f"cannot be read ({error})"
    if problem:
        raise RunDirectoryError(path, problem, "a checkpoint's state", mend)
    for name, expected in record.sha256.items():
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
                f"{shorten(expected[:12])}..., as it was written",
                mend,
            )
    return record


def _parse(values: Any, path: pathlib.Path) -> _Record:
    """The record in a ``state.json``."""
    if isinstance(values, dict) and "format" in values and isinstance(values.get("state"), dict):
        for field in dataclasses.fields(State):
            if field.name not in values["state"]:
                raise ValueError(f"the field {field.name} is missing")
    return from_dict(_Record, values, str(path))


def _contradiction(record: _Record, folder: pathlib.Path) -> str:
    """What is inconsistent in ``state.json``; empty if nothing is."""
    state = record.state
    if record.format != FORMAT:
        return f"is of format {record.format}"
    if state.update != _number(folder):
        return f"is that of update {state.update}"
    for name in ("epoch", "batch", "loss_updates", "best_update", "evaluations_since_best"):
        value = getattr(state, name)
        # An evaluation needs an update, and so does the end of an epoch.
        if value < 0 or (name != "batch" and value > state.update):
            return f"the field {name} is {value} after {state.update} updates"
    needed = {"model.params", OPTIMIZER}
    if state.best_update:
        needed.add("best.params")
    if set(record.sha256) != needed:
        named = ", ".join(sorted(record.sha256)) or "nothing"
        return f"holds the SHA-256 of {shorten(named)}, not of " + ", ".join(sorted(needed))
    return ""
