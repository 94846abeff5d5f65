"""Scores of a ranker for all candidates of a corpus: to teach others, or for evaluation elsewhere.

The questions are ranked in parts that depend on the corpus alone (`wqa.data.parts`), in one process
or many. Memory holds one part. The merged scores are a folder of arrays for teachers, JSON lines,
or a TREC run.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from wqa.config.environment import installed_version, library_versions, openmp_threads
from wqa.data import FILTERS, Question
from wqa.data.digests import ranker_digest
from wqa.data.formats import data_digest, read_questions
from wqa.data.partitions import (
    PARTITION_TOKENS,
    Partition,
    PartitionReader,
    partitions_of,
    question_size,
)
from wqa.data.parts import Arrays, PartTask, run_whole
from wqa.data.records import filter_rule, known_labels
from wqa.data.scores import COUNTS, FORMAT, TYPES, candidate_keys, scores_output
from wqa.errors import DataError, check_choice, check_range
from wqa.evaluation.trec import check_run_ids, run_lines
from wqa.inference.document_cache import cache_digest
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.io.arrays import Output, write_arrays
from wqa.io.files import PathLike
from wqa.io.progress import StopRequest
from wqa.systems.load import load_ranker
from wqa.text import PreparedQuestions, naming_file

#: Forms of merged scores.
OUTPUTS = ("logits", "jsonl", "trec")
#: File of the lines of each form.
FILES = {"jsonl": "scores.jsonl", "trec": "run.trec"}

#: Options that scores do not depend on, but for their last bits.
_MACHINE_OPTIONS = ("engine", "threads", "ctx", "batch_tokens", "calibrated")
#: Options that scores depend on where they are not these defaults.
_DEFAULTS = {
    "drop_ratio": None,
    "keep": None,
    "drop_below": None,
    "long_candidates": "truncate",
    "pool": "question",
    "pool_size": 128,
}


def machine_settings(options: Mapping[str, Any]) -> Dict[str, Any]:
    """What the last bits of scores depend on beside `score_settings`.

    Products on other numbers of threads are rounded differently.
    """
    given = {name: options.get(name) for name in _MACHINE_OPTIONS}
    settings = {name: value for name, value in given.items() if value is not None}
    settings["engine"] = options.get("engine", "auto")
    settings["ctx"] = str(options.get("ctx", "cpu")).partition(":")[0]
    settings["onednn"] = installed_version("onednn-cpu-gomp") is not None
    # `wqa.models` sets the variable where it is not set.
    available = len(os.sched_getaffinity(0))
    threads = int(openmp_threads(os.environ.get("OMP_NUM_THREADS", ""), available))
    settings["threads"] = options.get("threads") or threads
    settings.update(library_versions())
    return json.loads(json.dumps(settings))


@dataclasses.dataclass
class ScoringTask(PartTask):
    """Scores of a ranker for the candidates of a corpus.

    Parameters
    ----------
    run : str
        Ranker, as `wqa.load_ranker` takes it.
    data : str
        Questions with their candidates, as `wqa.data.read_questions` takes them.
    out : str
        Folder to make.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    output : {"logits", "jsonl", "trec"}
        Form of the merged scores: a folder of arrays for teachers, ``scores.jsonl`` or
        ``run.trec``.
    partition_tokens : int
        Most estimated tokens of the questions of a part.
    options : dict
        Keywords of `wqa.load_ranker`.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    run: str
    data: str
    out: str
    filter: str = "all"
    output: str = "logits"
    partition_tokens: int = PARTITION_TOKENS
    options: Dict[str, Any] = dataclasses.field(default_factory=dict)

    verb: ClassVar[str] = "score"
    unit: ClassVar[str] = "candidate"

    def __post_init__(self) -> None:
        check_range("partition_tokens", self.partition_tokens, 1)
        filter_rule(self.filter)
        check_choice("output", self.output, OUTPUTS)

    @functools.cached_property
    def ranker(self) -> Ranker:
        """The ranker, which is loaded when it is first used."""
        return load_ranker(self.run, **self.options)

    @functools.cached_property
    def _reader(self) -> PartitionReader:
        return PartitionReader(self.data)

    @functools.cached_property
    def settings(self) -> Dict[str, Any]:
        """What the scores depend on, but for the machine; None for defaults."""
        options, tokens = self.options, self.partition_tokens
        precision, cache = options.get("precision", "float32"), options.get("cache")
        settings = {
            "output": None if self.output == "logits" else self.output,
            "data_sha256": data_digest(self.data),
            "filter": self.filter,
            "long_questions": options.get("long_questions", "error"),
            "precision": precision,
            "ranker_sha256": ranker_digest(self.run, precision, self._drop_files()),
            "document_cache": None if cache is None else cache_digest(cache),
            "partition_tokens": None if tokens == PARTITION_TOKENS else tokens,
        }
        for name, default in _DEFAULTS.items():
            value = options.get(name, default)
            settings[name] = None if value == default else value
        decided = {*settings, "cache", *_MACHINE_OPTIONS}
        settings.update({name: options[name] for name in options if name not in decided})
        return json.loads(json.dumps(settings, default=str))

    def _drop_files(self) -> List[str]:
        """Files of a run that decide which candidates are dropped."""
        files = ["tuned.json"] if self.options.get("drop_ratio") == "tuned" else []
        return files if self.options.get("drop_below") is None else [*files, "calibration.json"]

    def loaded_settings(self) -> Dict[str, Any]:
        """The system of the ranker."""
        return {"system": self.ranker.capabilities.system}

    def machine_settings(self) -> Dict[str, Any]:
        """Engine, threads and versions of libraries."""
        return machine_settings(self.options)

    def on_device(self, device: str) -> ScoringTask:
        """The same work on another device."""
        return dataclasses.replace(self, options={**self.options, "ctx": device})

    def divide(self) -> Iterator[Partition]:
        """Divide the corpus. A question that cannot be ranked is an error before any is scored."""
        read = read_questions(self.data)
        remaining = 0
        for partition, questions in partitions_of(read, self._size, self.partition_tokens):
            with naming_file(self.data):
                remaining += len(_prepare(self.ranker, questions).questions)
            if self.output == "trec":
                for question in questions:
                    check_run_ids(question)
            yield partition
        if not remaining:
            expected, hint = "at least one", "check the options"
            raise DataError(self.data, "no question is left to score", expected, hint)

    def _size(self, question: Question) -> Optional[Tuple[int, int]]:
        return question_size(question) if self._passes(question) else None

    def _passes(self, question: Question) -> bool:
        if self.filter != "all":
            with naming_file(self.data):
                known_labels(question)
        return FILTERS[self.filter](question)

    def compute(self, partition: Partition) -> Arrays:
        """Score a part. The same questions give the same bits, as none are ranked beside them."""
        questions: List[Question] = list(filter(self._passes, self._reader.read(partition)))
        with naming_file(self.data):
            prepared = _prepare(self.ranker, questions)
            # A list gives the same groups of questions each time, and so the same bits.
            rankings = list(self.ranker.rank_all(prepared.questions))
        keys, scores = [np.zeros(0, TYPES["keys"])], [np.zeros(0, TYPES["scores"])]
        blank, lines = 0, [""]
        for question, ranking in zip(prepared.questions, rankings):
            keys.append(candidate_keys(question))
            scores.append(ranking.scores.astype(TYPES["scores"]))
            blank += int(np.count_nonzero(ranking.blank))
            if self.output == "trec":
                lines += [f"{line}\n" for line in run_lines(question, ranking)]
            elif self.output == "jsonl":
                lines.append(json_line(question, ranking))
        total = sum(map(len, scores))
        counts = [len(prepared.questions), total, blank, prepared.truncated, prepared.skipped]
        arrays = {
            "keys": np.concatenate(keys),
            "scores": np.concatenate(scores),
            "counts": np.array(counts, np.int64),
        }
        if self.output != "logits":
            text = "".join(lines).encode("utf-8")
            arrays[FILES[self.output]] = np.frombuffer(text, np.uint8)
        return arrays

    def destination(self) -> Output:
        """The folder of the scores in their form."""
        if self.output == "logits":
            return scores_output(self.out)
        return Output(self.out, FORMAT, f"folder of {self.output}", self._types())

    def _types(self) -> Dict[str, np.dtype]:
        return TYPES if self.output == "logits" else {FILES[self.output]: np.dtype("u1")}

    def merge(self, settings: Mapping[str, Any], parts: Iterator[Arrays]) -> None:
        """Write the scores in their form, and ``meta.json``."""
        totals = np.zeros(len(COUNTS), np.int64)
        types = self._types()
        given = {name: value for name, value in settings.items() if value is not None}
        with write_arrays(self.destination(), types, given) as writer:
            for arrays in parts:
                totals += arrays["counts"]
                for name in types:
                    writer.append(name, arrays[name])
            writer.finish({**dict(zip(COUNTS, totals.tolist())), "run": self.run})


def json_line(question: Question, ranking: Ranking) -> str:
    """The line of a ranked question; the score of a blank candidate is null."""
    line: Dict[str, Any] = {"id": question.id}
    ids = [candidate.id for candidate in question.candidates]
    if any(id is not None for id in ids):
        line["candidates"] = ids
    # Nine digits tell all numbers of single precision apart.
    scores = [float(f"{score:.9g}") for score in ranking.scores.tolist()]
    line["order"] = ranking.order.tolist()
    line["scores"] = [None if score == -math.inf else score for score in scores]
    line["exits"] = ranking.exits.tolist()
    return json.dumps(line, ensure_ascii=False) + "\n"


def _prepare(ranker: Ranker, questions: List[Question]) -> PreparedQuestions:
    """Apply the rule for over-long questions, of which a part may consist."""
    if not questions:
        return PreparedQuestions([])
    try:
        return ranker.prepare(questions)
    except DataError:  # the ranker skips them all
        return PreparedQuestions([], 0, len(questions))


def write_scores(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    out: PathLike,
    filter: str = "all",
    progress: bool = False,
    partition_tokens: int = PARTITION_TOKENS,
    output: str = "logits",
    stop: Optional[StopRequest] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Score the candidates of a corpus, and write the scores to a folder.

    A command that was stopped is continued.

    Parameters
    ----------
    run : str or path-like
        Ranker, as `wqa.load_ranker` takes it.
    data : str or path-like
        Questions with their candidates, as `wqa.data.read_questions` takes them. Labels are read by
        the filter alone.
    out : str or path-like
        Folder to make. A whole folder of the same ranker, questions and options is kept as it is;
        any other content is refused.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    progress : bool
        Show a bar on standard error.
    partition_tokens : int
        Most estimated tokens of the questions that are ranked together.
    output : {"logits", "jsonl", "trec"}
        Form of the scores: arrays for teachers, JSON lines, or a TREC run.
    stop : StopRequest, optional
        Once it holds a signal, the work ends after the current part.
    **options
        Keywords of `wqa.load_ranker`, such as ``precision`` and ``long_questions``.

    Returns
    -------
    dict
        ``meta.json`` of the folder: ``questions``, ``pairs``, ``blank``, ``truncated_questions``,
        ``skipped_questions``, ``ranker_sha256``, and more.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read, a question cannot be ranked, or ``out`` is a
        folder of other scores, cannot be written, or another process writes it.
    """
    task = ScoringTask(str(run), str(data), str(out), filter, output, partition_tokens, options)
    return run_whole(task, progress, stop)
