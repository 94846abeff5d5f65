"""Scoring of a corpus as divided work: each partition is read and ranked by itself, then merged.

Merged scores are the folder of arrays for teachers, JSON lines, or a TREC run.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

import numpy as np

from wqa.cluster.job import Job, PartitionRunner, Wording
from wqa.cluster.partition_files import Content, Layout, Manifest
from wqa.config import read_json
from wqa.data.formats import has_lines
from wqa.data.partitions import Partition, PartitionReader, QuestionGroup, partitions_of
from wqa.data.records import Candidate, Question, filter_rule
from wqa.data.scores import COUNTS, FORMAT, KIND, TYPES, scores_output
from wqa.errors import DataError, OptionError, check_choice, shorten
from wqa.inference.ranking import differs
from wqa.io.arrays import ArrayFolder, ArrayWriter, reusable_folder
from wqa.io.files import sha256
from wqa.io.lines import write_lines
from wqa.io.locks import lock_output
from wqa.io.outputs import Output
from wqa.systems.load import load_ranker
from wqa.systems.scores import (
    ARRAYS,
    OPTIONAL_SETTINGS,
    ScoredQuestions,
    checked_groups,
    machine_settings,
    passing,
    score_questions,
    score_settings,
    with_defaults,
)

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


def _output_of(job: ScoringJob) -> Output:
    """The folder of the merged scores."""
    if job.output == "logits":
        return scores_output(job.out)
    keys = ("format", "output", "ranker_sha256", "bytes")
    return Output(job.out, f"folder of {job.output}", FORMAT, [FILES[job.output]], keys)


def _write_arrays(
    job: ScoringJob, made_with: Mapping[str, Any], parts: Iterable[ScoredQuestions]
) -> None:
    """Write the folder of arrays that `wqa.systems.scores.write_scores` would write."""
    output = scores_output(job.out)
    if reusable_folder(output, made_with) is not None:
        return
    counts = dict.fromkeys(COUNTS, 0)
    with ArrayWriter(output, TYPES, made_with) as writer:
        writer.restart()  # what a scoring in one process has left
        for part in _counted(parts, counts):
            for name in TYPES:
                writer.append(name, part.arrays[name])
        writer.finish({**counts, "run": job.run})


def _write_file(
    job: ScoringJob, made_with: Mapping[str, Any], parts: Iterable[ScoredQuestions]
) -> None:
    """Write JSON lines or a TREC run, and ``meta.json`` beside it."""
    counts = dict.fromkeys(COUNTS, 0)
    output = _output_of(job)
    output.check()
    output.mend()
    path = output.begin() / FILES[job.output]
    counted = _counted(parts, counts)
    if job.output == "jsonl":
        write_lines(path, _lines(counted))
    elif job.run_writer is not None:
        _write_run(path, counted, job.run_writer)
    meta = {
        "format": FORMAT,
        "output": job.output,
        **made_with,
        **counts,
        "run": job.run,
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
    }
    output.finish(meta)


def _counted(parts: Iterable[ScoredQuestions], counts: Dict[str, int]) -> Iterator[ScoredQuestions]:
    for part in parts:
        for name in counts:
            counts[name] += part.counts[name]
        yield part


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


#: Forms of merged scores.
OUTPUTS = ("logits", "jsonl", "trec")

_TYPES: Dict[str, np.dtype] = {
    **ARRAYS,
    "lengths": np.dtype("<u4"),
    "names": np.dtype("u1"),  # JSON
}


@dataclasses.dataclass(frozen=True)
class ScoringJob(Job):
    """Scores of a ranker for the candidates of a corpus.

    Parameters
    ----------
    run : str
        Ranker, as `wqa.load_ranker` takes it.
    data : str
        Questions with their candidates, canonical JSONL, plain or ``.gz``.
    out, partition_tokens
        As `Job` takes them.
    options : dict
        Keywords of `wqa.load_ranker`, in values of JSON.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    output : {"logits", "jsonl", "trec"}
        Form of the merged scores: a folder of arrays for teachers, as `write_scores`
        writes it; ``scores.jsonl``; or ``run.trec``.
    run_writer : callable, optional
        Writes a TREC run, as `wqa.evaluation.write_run` does; needed for that output.

    Raises
    ------
    OptionError
        If a value is out of range, ``data`` is a dataset of `ir_datasets`, or a TREC run has no
        writer.
    """

    filter: str = "all"
    output: str = "logits"
    run_writer: Optional[RunWriter] = None

    wording: ClassVar[Wording] = Wording("score", "scoring", "scored", "candidate", "scores")
    layout: ClassVar[Layout] = Layout(_TYPES, ("read", *COUNTS))
    optional_settings: ClassVar[Tuple[str, ...]] = OPTIONAL_SETTINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        filter_rule(self.filter)
        check_choice("output", self.output, OUTPUTS)
        if self.output == "trec" and self.run_writer is None:
            raise OptionError("run_writer", None, "wqa.evaluation.write_run, for a TREC run")
        if not has_lines(self.data):
            raise OptionError(
                "data",
                f"{self.data}, which has no lines to divide",
                "a file of questions",
                "write one: wqa.data.write_questions(FILE, wqa.data.read_questions(NAME))",
            )

    @property
    def paths(self) -> List[str]:
        """Files and folders that every process sees, the document cache among them."""
        cache = self.options.get("cache")
        return super().paths + ([] if cache is None else [str(cache)])

    def settings(self) -> Dict[str, Any]:
        """What the scores depend on, but for the ranker's system: digests and options."""
        return score_settings(self.run, self.data, self.filter, self.partition_tokens, self.options)

    def load(self) -> PartitionScorer:
        """Load the ranker."""
        return PartitionScorer(self)

    def finished(self, made_with: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """``meta.json`` of the merged scores; None where they are not there yet."""
        out = pathlib.Path(self.out)
        if _output_of(self).meta() is None:
            return None
        if self.output == "logits":
            folder = ArrayFolder(out, FORMAT, KIND, "choose another folder", COUNTS)
            folder.check_made_with(with_defaults(made_with), _MEND)
            return folder.meta
        meta = _read_meta(out, self.output)
        for name, expected in with_defaults(made_with).items():
            if meta.get(name) != expected:
                problem = f"made with {name} {shorten(meta.get(name), 70)}"
                raise DataError(out, problem, shorten(expected, 70), _MEND)
        return meta

    def unpack(self, content: Content, partition: Partition) -> ScoredQuestions:
        """Take the scores of a partition from the content of its file."""
        arrays, counts = dict(content.arrays), content.counts
        lengths: List[int] = arrays.pop("lengths").tolist()
        names = [tuple(pair) for pair in json.loads(arrays.pop("names").tobytes())]
        counted = (counts["read"], counts["questions"], counts["pairs"])
        if counted != (partition.read, len(lengths), sum(lengths)):
            raise ValueError("counts other questions")
        if len(names) != len(lengths) or any(len(a) != sum(lengths) for a in arrays.values()):
            raise ValueError("has arrays of other lengths")
        return ScoredQuestions(arrays, lengths, names, counts)

    def merge(self, manifest: Manifest, parts: Iterable[ScoredQuestions]) -> Dict[str, Any]:
        """Write the scores in their form, unless they are there; ``meta.json`` of them."""
        with lock_output(self.out):
            meta = self.finished(manifest.made_with)
            if meta is None:
                write = _write_arrays if self.output == "logits" else _write_file
                write(self, manifest.made_with, parts)
                meta = self.finished(manifest.made_with)
        assert meta is not None
        return meta


class PartitionScorer(PartitionRunner):
    """Scores partitions of a job by a ranker, which it loads.

    Parameters
    ----------
    job : ScoringJob
        The job.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read.
    """

    job: ScoringJob

    def __init__(self, job: ScoringJob) -> None:
        self._ranker = load_ranker(job.run, **job.options)
        made_with = {**job.settings(), "system": self._ranker.capabilities.system}
        reader = PartitionReader(job.data)
        super().__init__(job, made_with, machine_settings(job.options), reader)
        self._passes = passing(job.data, job.filter)

    def divide(self) -> Iterator[Partition]:
        """Divide the corpus into groups of questions that can be ranked."""
        job = self.job
        groups = checked_groups(self._ranker, job.data, job.filter, job.partition_tokens)
        if job.output == "trec":
            groups = map(_without_spaces, groups)
        return partitions_of(groups)

    def content(self, partition: Partition) -> Content:
        """Score a partition."""
        read = self.reader.read(partition)
        questions: List[Question] = list(filter(self._passes, read))
        candidates = sum(len(question.candidates) for question in questions)
        counted = (len(read), len(questions), candidates)
        expected = (partition.read, partition.records, partition.texts)
        if counted != expected:
            counts = "{} lines, {} questions to score and {} candidates"
            self.refuse(partition, counts.format(*counted), counts.format(*expected))
        scored = score_questions(self._ranker, questions, partition.read, self.job.data)
        names = json.dumps(scored.names, ensure_ascii=False).encode("utf-8")
        arrays = {
            **scored.arrays,
            "lengths": np.array(scored.lengths, _TYPES["lengths"]),
            "names": np.frombuffer(names, _TYPES["names"]),
        }
        return Content(arrays, scored.counts)


def _without_spaces(group: QuestionGroup) -> QuestionGroup:
    """Refuse ids that a TREC run cannot hold before anything is scored."""
    for question in group.questions:
        if re.search(r"\s", question.id):
            raise DataError(
                f"question {shorten(question.id)}",
                "the id holds white space",
                "none in a TREC run",
                "rename the question, or take another format",
            )
    return group
