"""Merging of computed partitions, in their order."""

from __future__ import annotations

import contextlib
import logging
import shutil
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Set

from wqa.cluster.job import Job
from wqa.cluster.manifest import NAME, Manifest, check_manifest, read_manifest
from wqa.errors import Stopped, WqaError
from wqa.io.locks import lock_output
from wqa.io.progress import with_bar
from wqa.io.stopping import StopRequest
from wqa.io.temporary import remove_abandoned, temporary_path

LOGGER = logging.getLogger(__name__)


class Merged(NamedTuple):
    """What a merge has written."""

    meta: Dict[str, Any]
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def merge_partitions(
    job: Job, manifest: Manifest, progress: bool = False, stop: Optional[StopRequest] = None
) -> Merged:
    """Merge the partitions of a job, and remove them.

    Results that are merged already are kept as they are.

    Parameters
    ----------
    job : Job
        The job.
    manifest : Manifest
        Its manifest.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the merge ends after the current partition.

    Returns
    -------
    Merged

    Raises
    ------
    Stopped
        If a signal has stopped the merge; the partitions stay.
    DataError, OutputLocked, StorageError
        As `Job.merge` raises them; the partitions stay.
    """
    parts = _Parts(job, manifest, progress, stop or StopRequest())
    with lock_output(job.folder):
        meta = None
        if not (job.folder / NAME).is_file():  # another process has merged them
            meta = job.finished(manifest.made_with)
        if meta is None:
            meta = job.merge(manifest, parts)
            _remove_partitions(job)
    if len(parts.instruction_sets) > 1:
        LOGGER.warning(
            f"the partitions were {job.wording.participle} on processors with different "
            f"instruction sets, whose {job.wording.results} agree to rounding: "
            + "; ".join(sorted(parts.instruction_sets))
        )
    return Merged(meta, round(parts.seconds, 3), round(parts.cpu_seconds, 3))


def remove_merged(job: Job, made_with: Mapping[str, Any]) -> None:
    """Remove partitions that are merged, which a process has left that was killed.

    What is not of this job, or in use by another process, stays.
    """
    remove_abandoned(job.folder)
    if not (job.folder / NAME).is_file():
        return
    # The results are there: whatever stands in the way is no error of this command.
    with contextlib.suppress(WqaError), lock_output(job.folder):
        manifest = read_manifest(job.folder)
        if manifest is not None:
            check_manifest(manifest, job.folder, made_with, job.optional_settings)
            _remove_partitions(job)


def _remove_partitions(job: Job) -> None:
    """Remove the folder of the partitions, at once for those who look for its manifest."""
    remove_abandoned(job.folder)
    leftover = temporary_path(job.folder)
    try:
        job.folder.rename(leftover)
    except OSError:  # the folder above may be read-only
        leftover = job.folder
    # The results are there; what another process holds open may stay.
    shutil.rmtree(leftover, ignore_errors=True)


class _Parts:
    """Results of the partitions in order, of which two at most are in memory at a time."""

    def __init__(self, job: Job, manifest: Manifest, progress: bool, stop: StopRequest) -> None:
        self._job, self._manifest, self._progress, self._stop = job, manifest, progress, stop
        self.seconds = self.cpu_seconds = 0.0
        self.instruction_sets: Set[str] = set()

    def __iter__(self) -> Iterator[Any]:
        files, partitions = self._job.files(self._manifest), self._manifest.partitions
        indices = range(len(partitions))
        for index in with_bar(indices, len(partitions), "merging", self._progress, "partition"):
            if self._stop.signal:
                where = f"{self._job.out}, {index} of {len(partitions)} partitions merged"
                raise Stopped(self._stop.signal, where, f"they stay in {self._job.folder}")
            stored = files.read(index)
            try:
                part = self._job.unpack(stored.content, partitions[index])
            except ValueError as error:
                raise files.damaged(index, str(error)) from None
            self.seconds += stored.facts["seconds"]
            self.cpu_seconds += stored.facts["cpu_seconds"]
            self.instruction_sets.add(stored.facts["instruction_sets"])
            yield part
