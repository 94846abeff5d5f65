"""Scoring of a corpus in partitions: in this process, as one of many shards, or by Ray."""

from __future__ import annotations

import logging
import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from wqa.cluster.manifest import Manifest, check_manifest, read_manifest
from wqa.cluster.merge import Merged, merge_partitions, missing_partitions
from wqa.cluster.outputs import RunWriter, finished
from wqa.cluster.partition_files import is_scored
from wqa.cluster.ray_cluster import score_on_ray
from wqa.cluster.scorer import PartitionScorer, ScoringJob
from wqa.data.progress import progress_bar
from wqa.data.stopping import StopRequest
from wqa.errors import DataError, OptionError, OutputLocked, Stopped, printable, shorten

LOGGER = logging.getLogger(__name__)


class ScoreReport(NamedTuple):
    """What a command has done.

    Attributes
    ----------
    meta : dict or None
        ``meta.json`` of the merged scores: ``questions``, ``pairs``, ``blank`` and more. None where
        partitions are missing, or another process merges them.
    partitions : int
        Number of partitions; 0 where the scores were merged before.
    scored : int
        Number of those that this command has scored.
    missing : int
        Number of those that are not scored yet.
    seconds, cpu_seconds : float
        Time that all partitions took, added up, by the clock and of the processors; 0 where they
        are not merged now.
    """

    meta: Optional[Dict[str, Any]]
    partitions: int = 0
    scored: int = 0
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


def score_partitions(
    job: ScoringJob,
    shard: Tuple[int, int] = (1, 1),
    progress: bool = False,
    stop: Optional[StopRequest] = None,
    run_writer: Optional[RunWriter] = None,
) -> ScoreReport:
    """Score the partitions of a shard in this process; whoever scores the last one merges all.

    A command that was stopped is continued: what is scored is not scored again.

    Parameters
    ----------
    job : ScoringJob
        The job.
    shard : tuple of int
        I and N, the I-th of N shards, from 1; by default all partitions.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the work ends after the current partition.
    run_writer : callable, optional
        Writes a TREC run, as `wqa.evaluation.write_run` does; needed for that output.

    Returns
    -------
    ScoreReport

    Raises
    ------
    Stopped
        If a signal has stopped the work. What is scored stays.
    WqaError
        If the ranker or the questions cannot be read, a question cannot be ranked, the partitions
        are those of another job, or a file cannot be written.
    """
    _check_writer(job, run_writer)
    with PartitionScorer(job) as scorer:
        meta = scorer.finished()
        if meta is not None:
            return ScoreReport(meta)
        manifest = scorer.open_manifest()
        mine = shard_partitions(len(manifest.partitions), shard)
        if not mine:
            LOGGER.warning(
                f"shard {shard[0]}/{shard[1]} has nothing to score: there are "
                f"{len(manifest.partitions)} partitions; a smaller partition_tokens=N gives more"
            )
        scored = _score(scorer, manifest, mine, progress, stop or StopRequest())
    return _merge_if_whole(job, manifest, scored, progress, run_writer)


def _score(
    scorer: PartitionScorer,
    manifest: Manifest,
    indices: Sequence[int],
    progress: bool,
    stop: StopRequest,
) -> int:
    """Score what is not scored of some partitions; the number of those that were."""
    folder = scorer.job.folder
    left = [index for index in indices if not is_scored(folder, manifest, index)]
    total = sum(manifest.partitions[index].candidates for index in indices)
    done = total - sum(manifest.partitions[index].candidates for index in left)
    with progress_bar(total, "scoring", "candidate", progress, done) as bar:
        for count, index in enumerate(left):
            if stop.signal:
                where = f"{folder}, {count} of {len(left)} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            scorer.score(manifest, index)
            bar.update(manifest.partitions[index].candidates)
    return len(left)


def merge_shards(
    job: ScoringJob, progress: bool = False, run_writer: Optional[RunWriter] = None
) -> ScoreReport:
    """Merge what shards have scored, without a ranker.

    Parameters
    ----------
    job, progress, run_writer
        As `score_partitions` takes them.

    Returns
    -------
    ScoreReport

    Raises
    ------
    DataError
        If partitions are missing or damaged, or those of another job.
    WqaError
        As `merge_partitions` raises it.
    """
    _check_writer(job, run_writer)
    settings = job.corpus_settings()
    meta = finished(pathlib.Path(job.out), job.output, settings)
    if meta is not None:
        return ScoreReport(meta)
    manifest = read_manifest(job.folder)
    if manifest is None:
        raise DataError(job.folder, "holds no partitions", "those of shards", "score them first")
    check_manifest(manifest, job.folder, settings)
    missing = missing_partitions(job.folder, manifest)
    if missing:
        raise DataError(
            job.folder,
            f"partition {missing[0]} is missing, of {len(missing)} that are",
            f"{len(manifest.partitions)} partitions",
            "run the shards that have not ended",
        )
    return _merge_if_whole(job, manifest, 0, progress, run_writer)


def score_on_cluster(
    job: ScoringJob,
    cluster: str,
    progress: bool = False,
    stop: Optional[StopRequest] = None,
    run_writer: Optional[RunWriter] = None,
) -> ScoreReport:
    """Score the partitions of a job by the workers of a Ray cluster, and merge them.

    Every worker is a process with a ranker of its own. A worker that dies is replaced. A partition
    that fails three times is left out, and the rest goes on.

    Parameters
    ----------
    job : ScoringJob
        The job. Workers on other machines have the same files at the same paths.
    cluster : str
        ``local`` or ``local:N``, N workers on this machine; or ``ray://HOST[:PORT]``.
    progress, stop, run_writer
        As `score_partitions` takes them.

    Returns
    -------
    ScoreReport

    Raises
    ------
    ClusterError
        If the cluster does not answer, no worker can begin, or partitions have failed; those that
        are scored stay.
    MissingDependency
        If Ray is not installed.
    Stopped
        If a signal has stopped the work. What is scored stays.
    WqaError
        As `score_partitions` raises it.
    """
    _check_writer(job, run_writer)
    manifest, scored = score_on_ray(job, cluster, progress, stop)
    if manifest is None:
        settings = job.corpus_settings()
        return ScoreReport(finished(pathlib.Path(job.out), job.output, settings))
    return _merge_if_whole(job, manifest, scored, progress, run_writer)


def _check_writer(job: ScoringJob, run_writer: Optional[RunWriter]) -> None:
    if job.output == "trec" and run_writer is None:
        raise OptionError("run_writer", None, "wqa.evaluation.write_run, for a TREC run")


def _merge_if_whole(
    job: ScoringJob,
    manifest: Manifest,
    scored: int,
    progress: bool,
    run_writer: Optional[RunWriter],
) -> ScoreReport:
    """Merge the partitions if all are scored and nobody else merges them."""
    count = len(manifest.partitions)
    missing = missing_partitions(job.folder, manifest)
    # Where all are missing, another process may have merged and removed them.
    if missing and finished(pathlib.Path(job.out), job.output, manifest.made_with) is None:
        return ScoreReport(None, count, scored, len(missing))
    try:
        merged: Merged = merge_partitions(job, manifest, progress, run_writer)
    except OutputLocked as locked:
        LOGGER.info(printable(f"another process merges the partitions: {locked.found}"))
        return ScoreReport(None, count, scored)
    return ScoreReport(merged.meta, count, scored, 0, merged.seconds, merged.cpu_seconds)
