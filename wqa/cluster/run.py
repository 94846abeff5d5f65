"""Runs of a job: its partitions in this process, as one of many shards, or by Ray."""

from __future__ import annotations

import logging
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from wqa.cluster.job import Job, PartitionRunner
from wqa.cluster.outputs import Merged, merge_partitions, remove_merged
from wqa.cluster.partition_files import Manifest, check_manifest, read_manifest
from wqa.cluster.ray_cluster import compute_on_ray
from wqa.errors import DataError, OptionError, OutputLocked, Stopped, printable, shorten
from wqa.io.progress import StopRequest, progress_bar

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
        meta = job.finished(runner.made_with)
        if meta is not None:
            remove_merged(job, runner.made_with)
            return JobReport(meta)
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
    with progress_bar(total, job.wording.gerund, job.wording.unit, progress, done) as bar:
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
    meta = job.finished(settings)
    if meta is not None:
        remove_merged(job, settings)
        return JobReport(meta)
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
    return _report(merge_partitions(job, manifest, progress, stop), manifest, 0)


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
        settings = job.settings()
        meta = job.finished(settings)
        if meta is not None:
            remove_merged(job, settings)
        return JobReport(meta)
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
        merged = merge_partitions(job, manifest, progress, stop)
    except OutputLocked as locked:
        LOGGER.info(
            printable(f"the partitions are not merged yet: {locked.where} is {locked.found}")
        )
        return JobReport(None, count, computed)
    return _report(merged, manifest, computed)


def _report(merged: Merged, manifest: Manifest, computed: int) -> JobReport:
    count = len(manifest.partitions)
    return JobReport(merged.meta, count, computed, 0, merged.seconds, merged.cpu_seconds)
