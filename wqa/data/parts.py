"""Work on a large file in parts, which one process computes, or several that share a folder.

`run_parts` computes the parts of one shard; a single process is shard 1 of 1. The parts of ``OUT``
wait in ``OUT.partitions``: a manifest, which divides the file and names what the results depend on,
and one ``.npz`` file a part, which appears under its name when it is whole. So a command that was
stopped does not compute a part again. Whoever computes the last part merges all of them, in order,
and removes the folder. The parts depend on the manifest alone, so that the merged bytes do not
depend on who computed them.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import logging
import os
import pathlib
import re
import time
import zipfile
import zlib
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from wqa.config import read_json
from wqa.data.partitions import Partition
from wqa.errors import DataError, OptionError, OutputLocked, Stopped, printable, shorten
from wqa.io.arrays import Output, check_made_with, reusable_folder
from wqa.io.files import atomic_writer, lock_output
from wqa.io.progress import StopRequest, progress_bar, with_bar

LOGGER = logging.getLogger(__name__)

#: Changes whenever older manifests, or files of parts, can no longer be read.
FORMAT = 5
MANIFEST = "manifest.json"
#: Pattern of the names of parts.
PARTS = "[0-9]*.npz"
#: Greatest size of a manifest in bytes.
LARGEST_MANIFEST = 1 << 30
#: Seconds between two looks at a manifest that another process writes.
PAUSE = 0.5

Arrays = Dict[str, np.ndarray]


class PartTask(abc.ABC):
    """Work on a file that can be done in parts.

    Attributes
    ----------
    data : str
        File that is divided.
    out : str
        Folder to make of the results.
    settings : dict
        Digests and options that the results depend on, in values of JSON. No model is loaded for
        them.
    verb, unit : str
        What is done, such as "score", and what a part is counted in, such as "candidate".
    """

    data: str
    out: str
    settings: Any
    verb: ClassVar[str]
    unit: ClassVar[str]

    def loaded_settings(self) -> Dict[str, Any]:
        """Further settings, which only the loaded model tells."""
        return {}

    def machine_settings(self) -> Dict[str, Any]:
        """What the last bits of the results depend on, such as the number of threads."""
        return {}

    def on_device(self, device: str) -> PartTask:
        """The same work on another device, such as ``gpu:1``."""
        raise NotImplementedError

    @abc.abstractmethod
    def divide(self) -> Iterator[Partition]:
        """Divide the file. An unreadable record is an error now, not hours later."""

    @abc.abstractmethod
    def compute(self, partition: Partition) -> Arrays:
        """Compute a part."""

    @abc.abstractmethod
    def destination(self) -> Output:
        """The folder of the merged results."""

    def finished(self, settings: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        """``meta.json`` of the merged results; None where there are none yet.

        Raises
        ------
        WqaError
            If ``out`` holds results of other settings, or other files.
        """
        stored = reusable_folder(self.destination(), settings)
        return None if stored is None else stored.meta

    @abc.abstractmethod
    def merge(self, settings: Mapping[str, Any], parts: Iterator[Arrays]) -> None:
        """Write the results of all parts, which come in order, to `destination`."""


class PartsReport(NamedTuple):
    """What a command has done.

    Attributes
    ----------
    meta : dict or None
        ``meta.json`` of the merged results; None where parts are missing, or another process
        merges them.
    partitions : int
        Number of parts; 0 where the results were merged before.
    computed : int
        Number of parts that this command has computed.
    missing : int
        Number of parts that are not computed yet.
    seconds : float
        Time that this command has spent on computing parts.
    """

    meta: Optional[Dict[str, Any]]
    partitions: int = 0
    computed: int = 0
    missing: int = 0
    seconds: float = 0.0


def parse_shard(text: str) -> Tuple[int, int]:
    """Parse the name of a shard.

    Parameters
    ----------
    text : str
        ``I/N``: the I-th of N shards, from 1.

    Returns
    -------
    tuple of int
        I and N.

    Raises
    ------
    OptionError
        If it is no such text, or I is not from 1 to N.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise OptionError("shard", shorten(text), "I/N with I from 1 to N, such as 1/8")
    return int(match[1]), int(match[2])


def run_parts(
    task: PartTask,
    shard: Tuple[int, int] = (1, 1),
    progress: bool = False,
    stop: Optional[StopRequest] = None,
) -> PartsReport:
    """Compute the parts of a shard that are missing, and merge all parts once they are there.

    Parameters
    ----------
    task : PartTask
        The work.
    shard : tuple of int
        I and N: this process computes the parts p with p mod N = I - 1.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the work ends after the current part.

    Returns
    -------
    PartsReport

    Raises
    ------
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        If the data cannot be read or computed, the parts are those of other work, or a file cannot
        be written.
    """
    stop = stop or StopRequest()
    with contextlib.ExitStack() as stack:
        if shard == (1, 1) and task.finished(task.settings) is None:
            stack.enter_context(lock_output(_folder(task)))
            begun = read_parts(task)
            if begun is not None and len(begun.missing()) == len(begun.partitions):
                remove_parts(begun.folder)  # of a command that failed, perhaps with other settings
        parts = open_parts(task)
        if parts is None:
            return PartsReport(task.finished(task.settings))
        computed, seconds = _compute(parts, shard, progress, stop)
    report = merge_if_whole(parts, progress, stop)
    return report._replace(computed=computed, seconds=round(seconds, 3))


def run_whole(
    task: PartTask, progress: bool = False, stop: Optional[StopRequest] = None
) -> Dict[str, Any]:
    """Compute all parts in this process, and merge them; returns their ``meta.json``."""
    meta = run_parts(task, progress=progress, stop=stop).meta
    if meta is None:
        raise OutputLocked(task.out, str(_folder(task)))
    return meta


def _compute(
    parts: Parts, shard: Tuple[int, int], progress: bool, stop: StopRequest
) -> Tuple[int, float]:
    """Compute what is missing of a shard; returns the number of parts and their time."""
    task, partitions = parts.task, parts.partitions
    mine = range(shard[0] - 1, len(partitions), shard[1])
    left = [index for index in mine if not parts.path(index).is_file()]
    total = sum(partitions[index].texts for index in mine)
    done = total - sum(partitions[index].texts for index in left)
    start = time.perf_counter()
    with progress_bar(total, task.verb, task.unit, progress, initial=done) as bar:
        for count, index in enumerate(left):
            if stop.signal:
                where = f"{parts.folder}, {count} of {len(left)} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            parts.compute(index)
            bar.update(partitions[index].texts)
    return len(left), time.perf_counter() - start


def merge_if_whole(parts: Parts, progress: bool, stop: StopRequest) -> PartsReport:
    """Merge the parts if none is missing, and no other process merges them."""
    task, count, missing = parts.task, len(parts.partitions), parts.missing()
    # All are missing where another process has merged and removed them.
    if missing and task.finished(parts.settings) is None:
        return PartsReport(None, count, 0, len(missing))
    try:
        with lock_output(task.out):
            if task.finished(parts.settings) is None:
                task.merge(parts.settings, parts.read_all(progress, stop))
            remove_parts(parts.folder)
    except OutputLocked as locked:
        LOGGER.info(printable(f"the partitions are not merged: {locked.where} is {locked.found}"))
        return PartsReport(None, count)
    return PartsReport(task.finished(parts.settings), count)


def open_parts(task: PartTask) -> Optional[Parts]:
    """Read the manifest of some work, or write it if nobody has; None where all is merged.

    One process divides the file, and others wait meanwhile.
    """
    path = _folder(task) / MANIFEST
    while True:
        if task.finished(task.settings) is not None:
            remove_parts(path.parent)  # those that a killed merge has left
            return None
        parts = read_parts(task)
        if parts is not None:
            parts.check({**task.settings, **task.loaded_settings()}, task.machine_settings())
            return parts
        try:
            with lock_output(path):
                if not path.is_file() and task.finished(task.settings) is None:
                    _write_manifest(task, path)
        except OutputLocked:
            time.sleep(PAUSE)


def _folder(task: PartTask) -> pathlib.Path:
    """Folder of the manifest and the parts."""
    return pathlib.Path(f"{os.path.realpath(task.out)}.partitions")


def _write_manifest(task: PartTask, path: pathlib.Path) -> None:
    for part in path.parent.glob(PARTS):  # without a manifest, what a killed process has left
        part.unlink()
    manifest = {
        "format": FORMAT,
        "settings": {**task.settings, **task.loaded_settings()},
        "machine": task.machine_settings(),
        "partitions": list(task.divide()),
    }
    with atomic_writer(path) as file:
        json.dump(manifest, file)


def read_parts(task: PartTask) -> Optional[Parts]:
    """Read the manifest of some work; None where there is none."""
    path = _folder(task) / MANIFEST
    try:
        manifest = read_json(path, LARGEST_MANIFEST)
        if manifest["format"] != FORMAT:
            raise ValueError(f"format {shorten(manifest['format'])}, not {FORMAT}")
        return Parts(task, manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = f"delete {path.parent}, then run the command again"
        raise DataError(path, f"cannot be read ({error})", "a manifest", hint) from None


def remove_parts(folder: pathlib.Path) -> None:
    """Remove a folder of parts; where it holds files of others, these stay."""
    with contextlib.suppress(OSError):  # the results are there: nothing is in the way
        for pattern in (PARTS, ".*.tmp", ".*.lock", MANIFEST):  # the manifest last
            for path in folder.glob(pattern):
                path.unlink()
        folder.rmdir()


class Parts:
    """The parts of some work, by its manifest.

    Parameters
    ----------
    task : PartTask
        The work.
    manifest : dict
        Content of its manifest.

    Attributes
    ----------
    settings : dict
        What the results depend on.
    partitions : list of Partition
        How the file is divided.
    folder : pathlib.Path
        Folder of the manifest and the parts.
    """

    def __init__(self, task: PartTask, manifest: Mapping[str, Any]) -> None:
        self.task = task
        self.settings: Dict[str, Any] = dict(manifest["settings"])
        self._machine: Dict[str, Any] = dict(manifest["machine"])
        self.partitions = [Partition(*row) for row in manifest["partitions"]]
        self.folder = _folder(task)
        content = json.dumps(manifest, sort_keys=True).encode("utf-8")
        self._digest = hashlib.sha256(content).hexdigest()

    def check(self, settings: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
        """Check that the parts are those of a command with these settings.

        A setting that only one side has counts as None on the other.
        """
        stored = {**self.settings, **self._machine}
        expected = {**dict.fromkeys(stored), **settings, **machine}
        hint = f"repeat the command that began it, or delete {self.folder}"
        check_made_with(self.folder / MANIFEST, stored, expected, hint)

    def path(self, index: int) -> pathlib.Path:
        """File of a part."""
        return self.folder / f"{index:06d}.npz"

    def missing(self) -> List[int]:
        """Indices of the parts that are not computed yet, ascending."""
        # Each file is looked up, as network file systems may list a folder as it was a while ago.
        indices = range(len(self.partitions))
        return [index for index in indices if not self.path(index).is_file()]

    def compute(self, index: int) -> None:
        """Compute a part and write its file."""
        arrays = self.task.compute(self.partitions[index])
        if not (self.folder / MANIFEST).is_file():
            hint = "run the command again, if another has not merged them"
            raise DataError(self.folder, "the manifest is gone", "that of the partitions", hint)
        with atomic_writer(self.path(index), "wb") as file:
            np.savez(file, manifest=np.array(self._digest), **arrays)

    def read_all(self, progress: bool, stop: StopRequest) -> Iterator[Arrays]:
        """Read all parts in order, one at a time."""
        count = len(self.partitions)
        for index in with_bar(range(count), count, "merge", progress, "partition"):
            if stop.signal:
                where = f"{self.task.out}, {index} of {count} partitions merged"
                raise Stopped(stop.signal, where, f"they stay in {self.folder}")
            path = self.path(index)
            try:
                # NumPy checks the CRC-32 of each array.
                with np.load(path, allow_pickle=False) as file:
                    arrays = dict(file)
                if str(arrays.pop("manifest")) != self._digest:
                    raise ValueError("a part of another manifest")
            except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
                problem, hint = f"cannot be read ({error})", "delete it, then run its shard again"
                raise DataError(path, problem, "a whole partition", hint) from None
            yield arrays
