"""Merging of scored partitions, in their order, into one folder."""

from __future__ import annotations

import logging
import pathlib
import shutil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

from wqa.cluster.manifest import Manifest
from wqa.cluster.outputs import RunWriter, finished, write_arrays, write_file
from wqa.cluster.partition_files import partition_path, read_scored
from wqa.cluster.scorer import ScoringJob
from wqa.data.locks import lock_output
from wqa.data.progress import with_bar
from wqa.inference.scored_questions import ScoredQuestions

LOGGER = logging.getLogger(__name__)


class Merged(NamedTuple):
    """What a merge has written.

    Attributes
    ----------
    meta : dict
        ``meta.json`` of the merged scores.
    seconds, cpu_seconds : float
        Time that all partitions took, on the clock of whoever scored them and of all its threads; 0
        where they were merged before.
    """

    meta: Dict[str, Any]
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def missing_partitions(folder: pathlib.Path, manifest: Manifest) -> List[int]:
    """Partitions that have no file yet.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the partitions.
    manifest : Manifest
        Their manifest.

    Returns
    -------
    list of int
        Indices, ascending.
    """
    # Asked for one by one: network file systems may list a folder as it was a while ago.
    indices = range(len(manifest.partitions))
    return [index for index in indices if not partition_path(folder, index).is_file()]


def merge_partitions(
    job: ScoringJob,
    manifest: Manifest,
    progress: bool = False,
    run_writer: Optional[RunWriter] = None,
) -> Merged:
    """Merge the partitions of a job, and remove them.

    Scores that are merged already are kept as they are.

    Parameters
    ----------
    job : ScoringJob
        The job.
    manifest : Manifest
        Its manifest.
    progress : bool
        Show a bar on standard error.
    run_writer : callable, optional
        Writes a TREC run, as `wqa.evaluation.write_run` does; needed for that output.

    Returns
    -------
    Merged

    Raises
    ------
    DataError
        If a partition is missing or damaged, or ``out`` holds other scores.
    OutputLocked
        If another process merges them.
    StorageError
        If the scores cannot be written; the partitions stay.
    """
    out = pathlib.Path(job.out)
    with lock_output(out):
        meta = finished(out, job.output, manifest.made_with)
        parts = _Parts(job.folder, manifest, progress)
        if meta is None:
            facts = {"run": job.run}
            if job.output == "logits":
                write_arrays(out, manifest.made_with, parts, facts)
            else:
                write_file(out, job.output, manifest.made_with, parts, facts, run_writer)
            meta = finished(out, job.output, manifest.made_with)
        if len(parts.instruction_sets) > 1:
            LOGGER.warning(
                "the partitions were scored on processors with different instruction sets, whose "
                "scores agree to rounding: " + "; ".join(sorted(parts.instruction_sets))
            )
        # The scores are there; what another process holds open may stay.
        shutil.rmtree(job.folder, ignore_errors=True)
    assert meta is not None
    return Merged(meta, round(parts.seconds, 3), round(parts.cpu_seconds, 3))


class _Parts:
    """The scored partitions in order, of which one is in memory at a time."""

    def __init__(self, folder: pathlib.Path, manifest: Manifest, progress: bool) -> None:
        self._folder, self._manifest, self._progress = folder, manifest, progress
        self.seconds = self.cpu_seconds = 0.0
        self.instruction_sets: Set[str] = set()

    def __iter__(self) -> Iterator[ScoredQuestions]:
        count = len(self._manifest.partitions)
        indices = with_bar(range(count), count, "merging", self._progress, "partition")
        for index in indices:
            stored = read_scored(self._folder, self._manifest, index)
            self.seconds += stored.facts["seconds"]
            self.cpu_seconds += stored.facts["cpu_seconds"]
            self.instruction_sets.add(stored.facts["instruction_sets"])
            yield stored.scored
