"""Runs of a job: its partitions in this process, as one of many shards, or by Ray; their merge."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from wqa.cluster.job import Job, PartitionRunner
from wqa.cluster.partition_files import NAME, Manifest, check_manifest, is_own, read_manifest
from wqa.cluster.ray_cluster import compute_on_ray
from wqa.errors import DataError, OptionError, OutputLocked, Stopped, WqaError, printable, shorten
from wqa.io.files import remove_abandoned, temporary_path
from wqa.io.locks import lock_output
from wqa.io.progress import StopRequest, progress_bar, with_bar

LOGGER = logging.getLogger(__name__)


class JobReport(NamedTuple):
    """What a command has done.

    Attributes
    ----------
    meta : dict or None
        Figures of the merged results: of scores ``meta.json``, with ``questions``, ``pairs``,
        ``blank`` and more; of encodings the fields of `wqa.systems.encode.CacheReport`.
        None where partitions are missing, or could not be merged as another process holds a lock.
    partitions : int
        Number of partitions; 0 where the results were merged before.
    computed : int
        Number of those that this command has computed.
    missing : int
        Number of those that are not computed yet.
    seconds, cpu_seconds : float
        Time that all partitions took, added up, by the clock and of the processors; 0 where they
        are not merged now.
    """

    meta: Optional[Dict[str, Any]]
    partitions: int = 0
    computed: int = 0
    missing: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


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
    if match is None:
        raise OptionError("shard", shorten(text), "I/N, such as 1/8")
    index, count = int(match[1]), int(match[2])
    if not 1 <= index <= count:
        raise OptionError(
            "shard",
            shorten(text),
            f"I/{count} with I from 1 to {count}" if count else "N from 1",
            "an index that begins with 0 needs 1 added to it",
        )
    return index, count


def shard_partitions(partitions: int, shard: Tuple[int, int]) -> List[int]:
    """Partitions of a shard: p belongs to shard I of N if p mod N is I - 1.

    Parameters
    ----------
    partitions : int
        Number of partitions.
    shard : tuple of int
        I and N.

    Returns
    -------
    list of int
        Their indices, ascending.
    """
    index, count = shard
    return list(range(index - 1, partitions, count))


def run_partitions(
    job: Job,
    shard: Tuple[int, int] = (1, 1),
    progress: bool = False,
    stop: Optional[StopRequest] = None,
) -> JobReport:
    """Compute the partitions of a shard in this process; whoever computes the last one merges all.

    A command that was stopped is continued: what is computed is not computed again.

    Parameters
    ----------
    job : Job
        The job.
    shard : tuple of int
        I and N, the I-th of N shards, from 1; by default all partitions.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the work, or the merge, ends after the current partition.

    Returns
    -------
    JobReport

    Raises
    ------
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        If the run or the data cannot be read, a record cannot be computed, the partitions are those
        of another job, or a file cannot be written.
    """
    with job.load() as runner:
        report = _merged_before(job, runner.made_with)
        if report is not None:
            return report
        manifest = runner.open_manifest()
        if manifest is None:
            return JobReport(job.finished(runner.made_with))
        mine = shard_partitions(len(manifest.partitions), shard)
        if not mine:
            LOGGER.warning(
                f"shard {shard[0]}/{shard[1]} has nothing to {job.wording.verb}: there are "
                f"{len(manifest.partitions)} partitions; a smaller partition_tokens=N gives more"
            )
        computed = _compute(runner, manifest, mine, progress, stop or StopRequest())
    return _merge_if_whole(job, manifest, computed, progress, stop)


def _compute(
    runner: PartitionRunner,
    manifest: Manifest,
    indices: Sequence[int],
    progress: bool,
    stop: StopRequest,
) -> int:
    """Compute what is not computed of some partitions; the number of those that were."""
    job, partitions = runner.job, manifest.partitions
    files = job.files(manifest)
    left = [index for index in indices if not files.has(index)]
    total = sum(partitions[index].texts for index in indices)
    done = total - sum(partitions[index].texts for index in left)
    wording = job.wording
    with progress_bar(total, wording.gerund, wording.unit, progress, initial=done) as bar:
        for count, index in enumerate(left):
            if stop.signal:
                where = f"{job.folder}, {count} of {len(left)} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            runner.compute(manifest, index)
            bar.update(partitions[index].texts)
    return len(left)


def merge_shards(job: Job, progress: bool = False, stop: Optional[StopRequest] = None) -> JobReport:
    """Merge what shards have computed. Where their partitions are there, no run is loaded.

    Parameters
    ----------
    job, progress, stop
        As `run_partitions` takes them.

    Returns
    -------
    JobReport

    Raises
    ------
    Stopped
        If a signal has stopped the merge. The partitions stay.
    DataError
        If partitions are missing or damaged, or those of another job.
    OutputLocked
        If another process merges them, or writes to ``out``.
    WqaError
        As `merge_partitions` raises it.
    """
    words = job.wording
    settings = job.settings()
    report = _merged_before(job, settings)
    if report is not None:
        return report
    manifest = read_manifest(job.folder)
    if manifest is None:
        expected = "those of shards"
        raise DataError(job.folder, "holds no partitions", expected, f"{words.verb} them first")
    check_manifest(manifest, job.folder, settings, job.optional_settings)
    missing = job.files(manifest).missing()
    if missing:
        raise DataError(
            job.folder,
            f"partition {missing[0]} is missing, of {len(missing)} that are",
            f"{len(manifest.partitions)} partitions",
            "run the shards that have not ended",
        )
    return merge_partitions(job, manifest, progress, stop)


def run_on_cluster(
    job: Job,
    cluster: str,
    progress: bool = False,
    stop: Optional[StopRequest] = None,
) -> JobReport:
    """Compute the partitions of a job by the workers of a Ray cluster, and merge them.

    Every worker is a process that loads the run by itself. A worker that dies is replaced. A
    partition that fails three times is left out, and the rest goes on.

    Parameters
    ----------
    job : Job
        The job. Workers on other machines have the same files at the same paths.
    cluster : str
        ``local`` or ``local:N``, N workers on this machine; or ``ray://HOST[:PORT]``.
    progress, stop
        As `run_partitions` takes them.

    Returns
    -------
    JobReport

    Raises
    ------
    ClusterError
        If the cluster does not answer, no worker can begin, or partitions have failed; those that
        are computed stay.
    MissingDependency
        If Ray is not installed.
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        As `run_partitions` raises it.
    """
    manifest, computed = compute_on_ray(job, cluster, progress, stop)
    if manifest is None:
        return _merged_before(job, job.settings()) or JobReport(None)
    return _merge_if_whole(job, manifest, computed, progress, stop)


def _merge_if_whole(
    job: Job, manifest: Manifest, computed: int, progress: bool, stop: Optional[StopRequest]
) -> JobReport:
    """Merge the partitions if all are computed and nobody else merges them."""
    count = len(manifest.partitions)
    missing = job.files(manifest).missing()
    # Where all are missing, another process may have merged and removed them.
    if missing and job.finished(manifest.made_with) is None:
        return JobReport(None, count, computed, len(missing))
    try:
        return merge_partitions(job, manifest, progress, stop)._replace(computed=computed)
    except OutputLocked as locked:
        LOGGER.info(
            printable(f"the partitions are not merged yet: {locked.where} is {locked.found}")
        )
        return JobReport(None, count, computed)


def merge_partitions(
    job: Job, manifest: Manifest, progress: bool = False, stop: Optional[StopRequest] = None
) -> JobReport:
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
    JobReport

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
    count, seconds = len(manifest.partitions), round(parts.seconds, 3)
    return JobReport(meta, count, 0, 0, seconds, round(parts.cpu_seconds, 3))


def _merged_before(job: Job, made_with: Dict[str, Any]) -> Optional[JobReport]:
    """Report of results that are merged already; None where they are not.

    Partitions of this job that a killed process has left are removed, unless another one uses them.
    """
    meta = job.finished(made_with)
    if meta is None:
        return None
    remove_abandoned(job.folder)
    if (job.folder / NAME).is_file():
        # The results are there: whatever stands in the way is no error of this command.
        with contextlib.suppress(WqaError), lock_output(job.folder):
            manifest = read_manifest(job.folder)
            if manifest is not None:
                check_manifest(manifest, job.folder, made_with, job.optional_settings)
                _remove_partitions(job)
    return JobReport(meta)


def _remove_partitions(job: Job) -> None:
    """Remove the folder of the partitions, at once for those who look for its manifest.

    Where somebody has put other files into it, these stay.
    """
    remove_abandoned(job.folder)
    entries = list(job.folder.rglob("*"))
    own = [entry for entry in entries if is_own(entry, job.folder)]
    if len(own) == len(entries):
        leftover = temporary_path(job.folder)
        try:
            job.folder.rename(leftover)
        except OSError:  # the folder above may be read-only
            leftover = job.folder
        # The results are there; what another process holds open may stay.
        shutil.rmtree(leftover, ignore_errors=True)
        return
    files = [entry for entry in own if not entry.is_dir()]
    for path in sorted(files, key=lambda path: path.name != NAME):
        with contextlib.suppress(OSError):
            path.unlink()


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
