"""Teachers of a training: their scores of the training pairs, in folders that `wqa score` wrote."""

from __future__ import annotations

from typing import List, Sequence

import numpy as np

from wqa.config import TrainingConfig
from wqa.data.scores import StoredScores
from wqa.errors import DataError, OptionError
from wqa.training.pairs import TrainingPairs
from wqa.training.task import Task

#: Log-odds of a candidate that is blank to its teacher, whose score is minus infinity: its
#: probability is 0 at every temperature, in float32.
BLANK_SCORE = -1e4

_HINT = "score the training data: wqa score RUN --data FILE --out DIR"


def open_teachers(task: Task, config: TrainingConfig) -> List[StoredScores]:
    """Open the teachers of a training; their pairs are not looked up yet."""
    if not config.teachers:
        return []
    scores, count = task.taught_scores, len(config.teachers)
    if not scores:
        problem = f"{count} for {type(task).__name__}, which cannot learn from teachers"
        raise OptionError("teachers", problem, "none, or a system that learns from them")
    if config.teaching == "each" and count != scores:
        problem = f"{count} for {scores} score{'s' if scores > 1 else ''} of the student"
        hint = 'name a teacher several times, or set teaching="sum" or teaching="round-robin"'
        raise OptionError("teachers", problem, f"{scores}, one for each score", hint)
    opened = {name: StoredScores(name) for name in dict.fromkeys(config.teachers)}
    return [opened[name] for name in config.teachers]


def scores_of_teachers(
    teachers: Sequence[StoredScores], pairs: TrainingPairs, train_file: str
) -> np.ndarray:
    """Scores of the training pairs by all teachers.

    Shapes: the result (N, T).
    """
    if pairs.keys is None:
        problem, hint = "has no keys of its candidates", "make it again with `wqa tokenize`"
        raise DataError(train_file, problem, "a store of this version", hint)
    columns = {teacher.path: _scores_of(teacher, pairs) for teacher in dict.fromkeys(teachers)}
    return np.stack([columns[teacher.path] for teacher in teachers], axis=1)


def _scores_of(teacher: StoredScores, pairs: TrainingPairs) -> np.ndarray:
    """Scores of the training pairs by a teacher, (N,)."""
    assert pairs.keys is not None
    indices = teacher.find(pairs.keys)
    missing = int(np.count_nonzero(indices < 0))
    if missing:
        problem = f"{missing:,} of {len(pairs):,} training candidates have no score"
        raise DataError(teacher.path, problem, "scores of these very texts", _HINT)
    scores = teacher.scores[indices]
    scores[np.isneginf(scores)] = BLANK_SCORE
    wrong = scores[~np.isfinite(scores)]
    if len(wrong):
        raise DataError(teacher.path, f"holds the score {wrong[0]}", "numbers", _HINT)
    return scores
