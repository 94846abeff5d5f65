"""Teachers of a training: their scores of the training pairs.

A teacher is a folder that `wqa score` wrote, or a ranker, which scores the training data before the
first update. This package does not import rankers: the caller of `wqa.train` hands in how
a ranker scores the data.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, List, Optional, Sequence

import numpy as np

from wqa.config import TrainingConfig
from wqa.data.digests import ranker_digest
from wqa.data.scores import CandidateScores, StoredScores, is_stored_scores
from wqa.errors import DataError, OptionError
from wqa.text import is_store
from wqa.training.pairs import Pairs
from wqa.training.task import Task

#: Scores the training data by the ranker that a path names.
ScoreTeacher = Callable[[str], CandidateScores]

#: Log-odds of a candidate that is blank to its teacher, whose score is minus infinity: its
#: probability is 0 at every temperature, in float32.
BLANK_SCORE = -1e4

_HINT = "score the training data: wqa score RUN --data FILE --out DIR"


class Teacher:
    """A teacher of a training."""

    def __init__(
        self, name: str, train_file: str, score_teacher: Optional[ScoreTeacher] = None
    ) -> None:
        self.name = name
        self._known: Callable[[], CandidateScores]
        if is_stored_scores(name):
            stored = StoredScores(name)
            self.digest, self._known = stored.digest, lambda: stored
            return
        self.digest = ranker_digest(name)
        if is_store(train_file) or score_teacher is None:
            data = "a store of tokens" if is_store(train_file) else "no way to score by it"
            raise OptionError("teachers", f"{name}, a ranker, and {data}", "its scores", _HINT)
        self._known = functools.partial(score_teacher, name)

    def scores_of(self, pairs: Pairs) -> np.ndarray:
        """Scores of the training pairs.

        Shapes: the result (N,).
        """
        known = self._known()
        assert pairs.keys is not None
        indices = known.find(pairs.keys)
        missing = int(np.count_nonzero(indices < 0))
        if missing:
            problem = f"{missing:,} of {len(pairs):,} training candidates have no score"
            raise DataError(self.name, problem, "scores of these very texts", _HINT)
        scores = known.scores[indices]
        scores[np.isneginf(scores)] = BLANK_SCORE
        wrong = scores[~np.isfinite(scores)]
        if len(wrong):
            raise DataError(self.name, f"holds the score {wrong[0]}", "numbers", _HINT)
        return scores


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
        hint = 'set teaching="sum" or teaching="round-robin"'
        if scores > 1:
            hint = f"name a teacher several times, or {hint}"
        raise OptionError(
            "teachers",
            f"{count} for {scores} score{'s' if scores > 1 else ''} of the student",
            f"{scores}, one for each score",
            hint,
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
