"""Scores partitions in this process: each is read, ranked by itself, and written as a whole file.

A partition depends on the manifest alone, so that it may be scored twice, anywhere: the second file
replaces the first and holds the same scores.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import re
import time
from typing import Any, Dict, List, Optional

from wqa.cluster.manifest import (
    Manifest,
    check_manifest,
    partitions_folder,
    read_manifest,
    write_manifest,
)
from wqa.cluster.outputs import finished
from wqa.cluster.partition_files import write_partition
from wqa.config.machine import processor
from wqa.data.filters import filter_rule
from wqa.data.ir_names import is_ir_name
from wqa.data.locks import lock_output
from wqa.data.partitions import (
    PARTITION_TOKENS,
    Partition,
    PartitionReader,
    QuestionGroup,
    partitions_of,
)
from wqa.data.records import Question
from wqa.errors import DataError, OptionError, OutputLocked, check_choice, printable, shorten
from wqa.inference.load import load_ranker
from wqa.inference.scored_questions import checked_groups, passing, score_questions
from wqa.inference.scoring_runs import (
    check_partition_tokens,
    machine_settings,
    score_settings,
)

LOGGER = logging.getLogger(__name__)

#: Forms of merged scores.
OUTPUTS = ("logits", "jsonl", "trec")
#: Seconds between two looks at a manifest that another process writes.
PAUSE = 0.5


@dataclasses.dataclass(frozen=True)
class ScoringJob:
    """What a scoring needs to know, in every process that takes part in it.

    Parameters
    ----------
    run : str
        Ranker, as `wqa.inference.load_ranker` takes it.
    data : str
        Questions with their candidates, canonical JSONL, plain or ``.gz``.
    out : str
        Folder to make of the scores. The partitions lie in ``OUT.partitions`` until they are
        merged.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    output : {"logits", "jsonl", "trec"}
        Form of the merged scores: a folder of arrays for teachers, as `wqa.inference.write_scores`
        writes it; ``scores.jsonl``; or ``run.trec``.
    partition_tokens : int
        Most estimated tokens of a partition.
    options : dict
        Keywords of `wqa.inference.load_ranker`, in values of JSON.

    Raises
    ------
    OptionError
        If a value is out of range, or ``data`` is a dataset of `ir_datasets`.
    """

    run: str
    data: str
    out: str
    filter: str = "all"
    output: str = "logits"
    partition_tokens: int = PARTITION_TOKENS
    options: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        filter_rule(self.filter)
        check_choice("output", self.output, OUTPUTS)
        check_partition_tokens(self.partition_tokens)
        if is_ir_name(self.data):
            raise OptionError(
                "data",
                f"{self.data}, which has no lines to divide",
                "a file of questions",
                "write one: wqa.data.write_questions(FILE, wqa.data.read_questions(NAME))",
            )

    @property
    def folder(self) -> pathlib.Path:
        """Folder of the manifest and the partitions."""
        return partitions_folder(pathlib.Path(self.out))

    def corpus_settings(self) -> Dict[str, Any]:
        """What the scores depend on, but for the ranker's system: digests and options."""
        return score_settings(self.run, self.data, self.filter, self.partition_tokens, self.options)


class PartitionScorer:
    """Scores partitions of a job by a ranker, which it loads.

    It is a context manager, which closes the file of questions.

    Parameters
    ----------
    job : ScoringJob
        The job.

    Attributes
    ----------
    made_with : dict
        Settings that the scores depend on.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read.
    """

    def __init__(self, job: ScoringJob) -> None:
        self.job = job
        self._ranker = load_ranker(job.run, **job.options)
        self.made_with = {**job.corpus_settings(), "system": self._ranker.capabilities.system}
        self._computed_by = machine_settings(job.options)
        self._passes = passing(job.data, job.filter)
        self._reader = PartitionReader(job.data)
        self._facts = {"instruction_sets": _instruction_sets()}

    def __enter__(self) -> PartitionScorer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._reader.__exit__()

    def finished(self) -> Optional[Dict[str, Any]]:
        """``meta.json`` of the merged scores; None where they are not there yet.

        Returns
        -------
        dict or None

        Raises
        ------
        WqaError
            If ``out`` holds other scores or other files.
        """
        return finished(pathlib.Path(self.job.out), self.job.output, self.made_with)

    def open_manifest(self) -> Manifest:
        """Read the manifest and check it, or write it if nobody has.

        The corpus is read once by whoever writes it; others wait meanwhile.

        Returns
        -------
        Manifest

        Raises
        ------
        DataError
            If there is a manifest of another ranker, other questions or other options, or it is
            damaged.
        WqaError
            If a question cannot be read or ranked, or the manifest cannot be written.
        """
        folder = self.job.folder
        waits = False
        while True:
            manifest = read_manifest(folder)
            if manifest is not None:
                check_manifest(manifest, folder, {**self.made_with, **self._computed_by})
                return manifest
            try:
                with lock_output(folder):
                    if read_manifest(folder) is None:
                        partitions = self._divide()
                        write_manifest(folder, self.made_with, self._computed_by, partitions)
            except OutputLocked as locked:
                if not waits:
                    LOGGER.info(printable(f"waiting for the manifest: {locked.found}"))
                waits = True
                time.sleep(PAUSE)

    def _divide(self) -> List[Partition]:
        job = self.job
        groups = checked_groups(self._ranker, job.data, job.filter, job.partition_tokens)
        if job.output == "trec":
            groups = map(_without_spaces, groups)
        return list(partitions_of(groups))

    def score(self, manifest: Manifest, index: int) -> None:
        """Score a partition and write its file.

        Parameters
        ----------
        manifest : Manifest
            The manifest.
        index : int
            Index of the partition.

        Raises
        ------
        DataError
            If the corpus is not that of the manifest any more.
        WqaError
            If a question cannot be read or ranked, or the file cannot be written.
        """
        partition = manifest.partitions[index]
        start, cpu_start = time.perf_counter(), time.process_time()
        read = self._reader.read(partition)
        questions: List[Question] = list(filter(self._passes, read))
        self._check_counts(partition, len(read), questions)
        scored = score_questions(self._ranker, questions, partition.read, self.job.data)
        facts = {
            "seconds": round(time.perf_counter() - start, 4),
            "cpu_seconds": round(time.process_time() - cpu_start, 4),
            **self._facts,
        }
        write_partition(self.job.folder, manifest, index, scored, facts)

    def _check_counts(self, partition: Partition, read: int, questions: List[Question]) -> None:
        candidates = sum(len(question.candidates) for question in questions)
        counted = (read, len(questions), candidates)
        expected = (partition.read, partition.questions, partition.candidates)
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


def _instruction_sets() -> str:
    """Instruction sets of this processor, as far as the bits of scores may depend on them."""
    described = processor()
    limits = [f"{name}={value}" for name, value in described["caps"].items()]
    return " ".join([described["machine"], *described["instruction_sets"], *limits])
