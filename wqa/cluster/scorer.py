"""Scoring of a corpus as divided work: each partition is read and ranked by itself."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from typing import Any, ClassVar, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from wqa.cluster.job import Job, PartitionRunner, Wording
from wqa.cluster.outputs import RunWriter, finished, write_arrays, write_file
from wqa.cluster.partition_files import Content, Layout, Manifest
from wqa.data.ir_names import is_ir_name
from wqa.data.partitions import Partition, PartitionReader, QuestionGroup, partitions_of
from wqa.data.records import Question, filter_rule
from wqa.data.scores import COUNTS
from wqa.errors import DataError, OptionError, check_choice, shorten
from wqa.inference.scored_questions import (
    ARRAYS,
    ScoredQuestions,
    checked_groups,
    passing,
    score_questions,
)
from wqa.io.locks import lock_output
from wqa.systems.load import load_ranker
from wqa.systems.scores import OPTIONAL_SETTINGS, machine_settings, score_settings

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
        if is_ir_name(self.data):
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
        return finished(pathlib.Path(self.out), self.output, made_with)

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
        out = pathlib.Path(self.out)
        with lock_output(out):
            meta = finished(out, self.output, manifest.made_with)
            if meta is None:
                facts = {"run": self.run}
                if self.output == "logits":
                    write_arrays(out, manifest.made_with, parts, facts)
                else:
                    write_file(out, self.output, manifest.made_with, parts, facts, self.run_writer)
                meta = finished(out, self.output, manifest.made_with)
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
        super().__init__(job, made_with, machine_settings(job.options))
        self._passes = passing(job.data, job.filter)
        self._reader = PartitionReader(job.data)

    def close(self) -> None:
        """Close the file of questions."""
        self._reader.__exit__()

    def divide(self) -> Iterator[Partition]:
        """Divide the corpus into groups of questions that can be ranked."""
        job = self.job
        groups = checked_groups(self._ranker, job.data, job.filter, job.partition_tokens)
        if job.output == "trec":
            groups = map(_without_spaces, groups)
        return partitions_of(groups)

    def content(self, partition: Partition) -> Content:
        """Score a partition."""
        read = self._reader.read(partition)
        questions: List[Question] = list(filter(self._passes, read))
        self._check_counts(partition, len(read), questions)
        scored = score_questions(self._ranker, questions, partition.read, self.job.data)
        names = json.dumps(scored.names, ensure_ascii=False).encode("utf-8")
        arrays = {
            **scored.arrays,
            "lengths": np.array(scored.lengths, _TYPES["lengths"]),
            "names": np.frombuffer(names, _TYPES["names"]),
        }
        return Content(arrays, scored.counts)

    def _check_counts(self, partition: Partition, read: int, questions: List[Question]) -> None:
        candidates = sum(len(question.candidates) for question in questions)
        counted = (read, len(questions), candidates)
        expected = (partition.read, partition.records, partition.texts)
        if counted != expected:
            counts = "{} lines, {} questions to score and {} candidates"
            raise DataError(
                f"{self.job.data}, from line {partition.line}",
                counts.format(*counted),
                counts.format(*expected) + ", as when the manifest was written",
                f"restore the file, or delete {self.job.folder}",
            )


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
