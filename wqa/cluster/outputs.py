"""Merged scores: the folder of arrays for teachers, JSON lines, or a TREC run.

Merging of computed partitions, in their order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import shutil
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set

import numpy as np

from wqa.cluster.job import Job
from wqa.cluster.partition_files import (
    NAME,
    Manifest,
    check_manifest,
    partitions_folder,
    read_manifest,
)
from wqa.config import read_json
from wqa.data.records import Candidate, Question
from wqa.data.scores import COUNTS, FORMAT, TYPES
from wqa.errors import DataError, OptionError, Stopped, WqaError, shorten
from wqa.inference.ranking import differs
from wqa.inference.scored_questions import ScoredQuestions
from wqa.io.arrays import ArrayFolder, ArrayWriter, reusable_folder
from wqa.io.files import remove_abandoned, sha256, temporary_path, write_json
from wqa.io.lines import write_lines
from wqa.io.locks import lock_output
from wqa.io.progress import StopRequest, with_bar
from wqa.systems.scores import with_defaults

#: Writes a TREC run: a path, questions and their rankings, as `wqa.evaluation.write_run` does.
RunWriter = Callable[[pathlib.Path, Iterable[Question], Iterable[Any]], None]

#: Files of the outputs that are one file.
FILES = {"jsonl": "scores.jsonl", "trec": "run.trec"}

_MEND = "delete the folder, or choose another one"


class StoredRanking(NamedTuple):
    """What the file of a partition holds of a ranking; the names are those of `Ranking`."""

    order: np.ndarray
    scores: np.ndarray
    exits: np.ndarray
    stages: np.ndarray

    @property
    def differs(self) -> np.ndarray:
        """(n - 1,) as `Ranking.differs` has it."""
        return differs(self.order, self.stages, self.exits, self.scores)


def finished(
    out: pathlib.Path, output: str, made_with: Mapping[str, Any]
) -> Optional[Dict[str, Any]]:
    """``meta.json`` of scores that are merged."""
    if out.is_file():
        raise OptionError("out", f"{out}, a file", "the path of a folder to make")
    if not out.exists():
        return None
    if not (out / "meta.json").is_file():
        _refuse_other_files(out, output)
        return None
    if output == "logits":
        folder = ArrayFolder(out, FORMAT, "folder of scores", "choose another folder", COUNTS)
        folder.check_made_with(with_defaults(made_with), _MEND)
        return folder.meta
    meta = _read_meta(out, output)
    for name, expected in with_defaults(made_with).items():
        if meta.get(name) != expected:
            problem = f"made with {name} {shorten(meta.get(name), 70)}"
            raise DataError(out, problem, shorten(expected, 70), _MEND)
    return meta


def _read_meta(out: pathlib.Path, output: str) -> Dict[str, Any]:
    path = out / FILES[output]
    try:
        meta = read_json(out / "meta.json")
        if meta.get("output") != output:
            raise OptionError("out", f"{out}, a folder with other files", f"a folder of {output}")
        size = path.stat().st_size
    except (OSError, ValueError, AttributeError) as error:
        problem = f"cannot be read ({error})"
        raise DataError(out, problem, f"a whole folder of {output}", _MEND) from None
    if size != meta.get("bytes"):
        raise DataError(path, f"{size} bytes", f"{shorten(meta.get('bytes'))} bytes", _MEND)
    return meta


def _refuse_other_files(out: pathlib.Path, output: str) -> None:
    """Refuse a folder with files that no merge leaves that was stopped."""
    merges = (partitions_folder(out) / NAME).is_file()
    for entry in out.iterdir():
        is_left = merges and entry.name == FILES.get(output) or entry.suffix == ".tmp"
        if output == "logits":
            is_left = entry.suffix == ".bin" or entry.name == "journal.json"
        if not is_left:
            found = f"{out}, a folder with other files"
            raise OptionError("out", found, "the path of a folder to make")


def write_arrays(
    out: pathlib.Path,
    made_with: Mapping[str, Any],
    parts: Iterable[ScoredQuestions],
    facts: Mapping[str, Any],
) -> None:
    """Write the folder of arrays that `wqa.systems.scores.write_scores` would write."""
    if reusable_folder(out, FORMAT, "folder of scores", made_with) is not None:
        return
    counts = dict.fromkeys(COUNTS, 0)
    with ArrayWriter(out, FORMAT, TYPES, made_with) as writer:
        writer.restart()  # what a scoring in one process has left
        for part in parts:
            for name in TYPES:
                writer.append(name, part.arrays[name])
            _add(counts, part)
        writer.finish({**counts, **facts})


def write_file(
    out: pathlib.Path,
    output: str,
    made_with: Mapping[str, Any],
    parts: Iterable[ScoredQuestions],
    facts: Mapping[str, Any],
    run_writer: Optional[RunWriter] = None,
) -> None:
    """Write JSON lines or a TREC run, and ``meta.json`` beside it."""
    counts = dict.fromkeys(COUNTS, 0)
    path = out / FILES[output]
    counted = _counted(parts, counts)
    if output == "jsonl":
        write_lines(path, _lines(counted))
    elif run_writer is not None:
        _write_run(path, counted, run_writer)
    meta = {
        "format": FORMAT,
        "output": output,
        **made_with,
        **counts,
        **facts,
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
    }
    write_json(out / "meta.json", meta)


def _counted(parts: Iterable[ScoredQuestions], counts: Dict[str, int]) -> Iterator[ScoredQuestions]:
    for part in parts:
        _add(counts, part)
        yield part


def _add(counts: Dict[str, int], part: ScoredQuestions) -> None:
    for name in counts:
        counts[name] += part.counts[name]


def _rankings(part: ScoredQuestions) -> Iterator[StoredRanking]:
    """The ranking of each question of a partition."""
    start = 0
    for length in part.lengths:
        values = {}
        for name in StoredRanking._fields:
            values[name] = part.arrays[name][start : start + length]
        yield StoredRanking(**values)
        start += length


def _lines(parts: Iterable[ScoredQuestions]) -> Iterator[str]:
    """A JSON object for each question; the score of a blank candidate is null."""
    for part in parts:
        for (id, document_ids), ranking in zip(part.names, _rankings(part)):
            fields = [f'"id": {json.dumps(id, ensure_ascii=False)}']
            if document_ids is not None:
                fields.append(f'"candidates": {json.dumps(document_ids, ensure_ascii=False)}')
            # Nine digits tell all numbers of single precision apart.
            scores = [f"{score:.9g}" for score in ranking.scores.tolist()]
            scores = ["null" if score == "-inf" else score for score in scores]
            fields.append(f'"order": {json.dumps(ranking.order.tolist())}')
            fields.append(f'"scores": [{", ".join(scores)}]')
            fields.append(f'"exits": {json.dumps(ranking.exits.tolist())}')
            yield "{" + ", ".join(fields) + "}"


def _write_run(path: pathlib.Path, parts: Iterable[ScoredQuestions], run_writer: RunWriter) -> None:
    waiting: List[StoredRanking] = []

    def questions() -> Iterator[Question]:
        for part in parts:
            for (id, ids), ranking in zip(part.names, _rankings(part)):
                waiting.append(ranking)
                document_ids = ids or [None] * len(ranking.scores)
                candidates = tuple(Candidate("", None, document) for document in document_ids)
                yield Question(id, "", candidates)

    def rankings() -> Iterator[StoredRanking]:
        while waiting:
            yield waiting.pop()

    run_writer(path, questions(), rankings())


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
