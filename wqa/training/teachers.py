"""Teachers of a training: their scores of the training pairs.

A teacher is a folder that `wqa score` wrote, or a ranker, which scores the training data before the
first update. This package does not import rankers: the caller of `wqa.train` hands in how
a ranker scores the data.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NoReturn, Optional, Sequence

import numpy as np

from wqa.config import TrainingConfig
from wqa.data import read_questions
from wqa.data.digests import ranker_digest
from wqa.data.scores import CandidateScores, StoredScores, candidate_keys, is_stored_scores
from wqa.errors import DataError, OptionError, shorten
from wqa.text import is_store
from wqa.training.pairs import Pairs
from wqa.training.task import Task

#: Scores the training data by the ranker that a path names.
ScoreTeacher = Callable[[str], CandidateScores]

#: Log-odds of a candidate that is blank to its teacher, whose score is minus infinity: its
#: probability is 0 at every temperature, in float32.
BLANK_SCORE = -1e4

_MEND = "score the training data: wqa score RUN --data FILE --out DIR"


class Teacher:
    """A teacher of a training."""

    def __init__(
        self, name: str, train_file: str, score_teacher: Optional[ScoreTeacher] = None
    ) -> None:
        self.name = name
        self._train_file = train_file
        self._score_teacher = score_teacher
        self._stored: Optional[StoredScores] = None
        if is_stored_scores(name):
            self._stored = StoredScores(name)
            self.digest = self._stored.digest
            return
        self.digest = ranker_digest(name)
        if is_store(train_file) or score_teacher is None:
            data = "a store of tokens" if is_store(train_file) else "no way to score by it"
            raise OptionError("teachers", f"{name}, a ranker, and {data}", "its scores", _MEND)

    def scores_of(self, pairs: Pairs) -> np.ndarray:
        """Scores of the training pairs.

        Shapes: the result (N,).
        """
        known: CandidateScores
        if self._stored is not None:
            known = self._stored
        else:
            assert self._score_teacher is not None
            known = self._score_teacher(self.name)
        keys = pairs.keys
        assert keys is not None
        indices = known.find(keys)
        missing = np.flatnonzero(indices < 0)
        if len(missing):
            count = f"{len(missing):,} of {len(pairs):,} training candidates have no score"
            self._raise(f"{count}, the first is", pairs, missing[0], "scores of these very texts")
        scores = known.scores[indices]
        scores[np.isneginf(scores)] = BLANK_SCORE
        wrong = np.flatnonzero(~np.isfinite(scores))
        if len(wrong):
            problem = f"the score {scores[wrong[0]]} of"
            self._raise(problem, pairs, wrong[0], "a number")
        return scores

    def _raise(self, problem: str, pairs: Pairs, row: int, expected: str) -> NoReturn:
        name = _name_of(pairs, row, self._train_file)
        raise DataError(f"teacher {self.name}", f"{problem} {name}", expected, _MEND)


def _name_of(pairs: Pairs, row: int, train_file: str) -> str:
    """Name of a pair: its question's id and its candidate's number, which a store lacks."""
    keys = pairs.keys
    assert keys is not None
    if not is_store(train_file):
        for question in read_questions(train_file):
            matching = np.flatnonzero(candidate_keys(question) == keys[row])
            if len(matching):
                return f"question {shorten(question.id)}, candidate {matching[0] + 1}"
    question_index = pairs.questions[row]
    first = np.searchsorted(pairs.questions, question_index)
    return f"question {question_index + 1} of the store, pair {row - first + 1}"


def open_teachers(
    task: Task,
    config: TrainingConfig,
    train_file: str,
    score_teacher: Optional[ScoreTeacher] = None,
) -> List[Teacher]:
    """Open the teachers of a training; nothing is scored yet."""
    if not config.teachers:
        return []
    scores = task.taught_scores
    count = len(config.teachers)
    if not scores:
        raise OptionError(
            "teachers",
            f"{count} for {type(task).__name__}, which cannot learn from teachers",
            "none, or a system that learns from them",
        )
    if config.teaching == "each" and count != scores:
        mend = 'set teaching="sum" or teaching="round-robin"'
        if scores > 1:
            mend = f"name a teacher several times, or {mend}"
        raise OptionError(
            "teachers",
            f"{count} for {scores} score{'s' if scores > 1 else ''} of the student",
            f"{scores}, one for each score",
            mend,
        )
    return [Teacher(name, train_file, score_teacher) for name in config.teachers]


def scores_of_teachers(teachers: Sequence[Teacher], pairs: Pairs, train_file: str) -> np.ndarray:
    """Scores of the training pairs by all teachers.

    Shapes: the result (N, T).
    """
    if pairs.keys is None:
        raise DataError(
            train_file,
            "has no keys of its candidates, by which teachers' scores are looked up",
            "a store of this version",
            "delete the folder, then make it again with `wqa tokenize`",
        )
    scores = np.zeros((len(pairs), len(teachers)), np.float32)
    columns: Dict[str, int] = {}
    for index, teacher in enumerate(teachers):
        if teacher.name not in columns:
            columns[teacher.name] = index
            scores[:, index] = teacher.scores_of(pairs)
        scores[:, index] = scores[:, columns[teacher.name]]
    return scores
