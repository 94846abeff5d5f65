"""Scored questions as arrays, which are stored, and the lines of files that are made of them."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from wqa.data import Question
from wqa.data.parts import Arrays
from wqa.data.records import Candidate
from wqa.data.scores import COUNTS, TYPES, candidate_keys
from wqa.errors import DataError, shorten
from wqa.evaluation.trec import write_run
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking, differs, question_name
from wqa.text import PreparedQuestions

#: Element types of the arrays with a value for each candidate.
_TYPES: Dict[str, np.dtype] = {
    **TYPES,
    "order": np.dtype("<u4"),
    "exits": np.dtype("<i4"),
    "stages": np.dtype("<i4"),
}


def check_trec_ids(questions: List[Question]) -> None:
    """Refuse ids that a TREC run cannot hold."""
    for question in questions:
        if re.search(r"\s", question.id):
            raise DataError(
                f"question {shorten(question.id)}",
                "the id holds white space",
                "none in a TREC run",
                "rename the question, or choose another format",
            )


def prepare(ranker: Ranker, questions: List[Question]) -> PreparedQuestions:
    """Apply the rule for over-long questions, of which a part may consist."""
    if not questions:
        return PreparedQuestions([])
    try:
        return ranker.prepare(questions)
    except DataError:  # the ranker skips them all
        return PreparedQuestions([], 0, len(questions))


def score_questions(ranker: Ranker, questions: List[Question]) -> Arrays:
    """Arrays of the rankings of some questions.

    Those of all candidates: ``keys``, ``scores``, ``order``, ``exits`` and ``stages``, the number
    of exits that have scored a candidate. ``lengths`` has the number of candidates of each
    question, ``names`` the JSON of its id and those of its candidates, and ``counts`` the values
    of `wqa.data.scores.COUNTS`.
    """
    prepared = prepare(ranker, questions)
    rows: Dict[str, List[np.ndarray]] = {name: [np.zeros(0, _TYPES[name])] for name in _TYPES}
    names: List[Tuple[str, Optional[List[Optional[str]]]]] = []
    blank = 0
    # A list gives the same groups of questions each time, and so the same bits.
    for question, ranking in zip(prepared.questions, ranker.rank_all(prepared.questions)):
        _check_count(question, ranking)
        for name, values in _arrays_of(question, ranking).items():
            rows[name].append(np.asarray(values, _TYPES[name]))
        ids = [candidate.id for candidate in question.candidates]
        names.append((question.id, None if all(id is None for id in ids) else ids))
        blank += int(np.count_nonzero(ranking.blank))
    arrays = {name: np.concatenate(values) for name, values in rows.items()}
    arrays["lengths"] = np.array([len(q.candidates) for q in prepared.questions], np.int64)
    arrays["names"] = np.frombuffer(json.dumps(names).encode("utf-8"), np.uint8)
    total = int(arrays["lengths"].sum())
    counts = [len(prepared.questions), total, blank, prepared.truncated, prepared.skipped]
    arrays["counts"] = np.array(counts, np.int64)
    return arrays


def _arrays_of(question: Question, ranking: Ranking) -> Arrays:
    return {
        "keys": candidate_keys(question),
        "scores": ranking.scores,
        "order": ranking.order,
        "exits": ranking.exits,
        "stages": np.count_nonzero(~np.isnan(ranking.exit_scores), axis=0),
    }


def _check_count(question: Question, ranking: Ranking) -> None:
    if len(ranking.scores) != len(question.candidates):
        raise DataError(
            question_name(question),
            f"{len(ranking.scores)} scores",
            f"one for each of its {len(question.candidates)} candidates",
            "correct the ranker",
        )


def add_counts(parts: Iterator[Arrays], counts: Dict[str, int]) -> Iterator[Arrays]:
    """Add the counts of parts to ``counts`` as they pass."""
    for arrays in parts:
        for name, count in zip(COUNTS, arrays["counts"].tolist()):
            counts[name] += count
        yield arrays


class _StoredRanking(NamedTuple):
    """A ranking of a stored part; the names are those of `Ranking`."""

    id: str
    document_ids: Optional[List[Optional[str]]]
    order: np.ndarray
    scores: np.ndarray
    exits: np.ndarray
    stages: np.ndarray

    @property
    def differs(self) -> np.ndarray:
        """(n - 1,) as `Ranking.differs` has it."""
        return differs(self.order, self.stages, self.exits, self.scores)

    @property
    def question(self) -> Question:
        """The question, without its texts."""
        ids = self.document_ids or [None] * len(self.scores)
        return Question(self.id, "", tuple(Candidate("", None, id) for id in ids))


def _rankings(parts: Iterator[Arrays]) -> Iterator[_StoredRanking]:
    for arrays in parts:
        start = 0
        for (id, ids), length in zip(json.loads(arrays["names"].tobytes()), arrays["lengths"]):
            values = [arrays[name][start : start + length] for name in _StoredRanking._fields[2:]]
            yield _StoredRanking(id, ids, *values)
            start += length


def ranking_lines(parts: Iterator[Arrays]) -> Iterator[str]:
    """A JSON object for each question; the score of a blank candidate is null."""
    for ranking in _rankings(parts):
        fields = [f'"id": {json.dumps(ranking.id, ensure_ascii=False)}']
        if ranking.document_ids is not None:
            ids = json.dumps(ranking.document_ids, ensure_ascii=False)
            fields.append(f'"candidates": {ids}')
        # Nine digits tell all numbers of single precision apart.
        scores = [f"{score:.9g}" for score in ranking.scores.tolist()]
        scores = ["null" if score == "-inf" else score for score in scores]
        fields.append(f'"order": {json.dumps(ranking.order.tolist())}')
        fields.append(f'"scores": [{", ".join(scores)}]')
        fields.append(f'"exits": {json.dumps(ranking.exits.tolist())}')
        yield "{" + ", ".join(fields) + "}"


def write_trec_run(path: pathlib.Path, parts: Iterator[Arrays]) -> None:
    """Write a TREC run, in one pass over the parts."""
    last: List[_StoredRanking] = []

    def questions() -> Iterator[Question]:
        for ranking in _rankings(parts):
            last[:] = [ranking]
            yield ranking.question

    write_run(path, questions(), iter(lambda: last[0], None))
