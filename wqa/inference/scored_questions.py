"""Scores of some questions of a corpus, with what a folder of scores and a ranking are made of."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from wqa.data import FILTERS, Question
from wqa.data.formats import read_placed_questions
from wqa.data.partitions import QuestionGroup, group_questions
from wqa.data.records import filter_rule, known_labels
from wqa.data.scores import TYPES, candidate_keys
from wqa.errors import DataError
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking, question_name
from wqa.io.files import PathLike
from wqa.text import PreparedQuestions, naming_file

#: Element types of the arrays of scored questions, by name.
ARRAYS: Dict[str, np.dtype] = {
    **TYPES,
    "order": np.dtype("<u4"),
    "exits": np.dtype("<i4"),
    "stages": np.dtype("<i4"),
}

#: Id of a question, and the ids of its candidates; None where none of them has one.
Names = Tuple[str, Optional[List[Optional[str]]]]


class ScoredQuestions(NamedTuple):
    """Scores of the candidates of consecutive questions."""

    arrays: Dict[str, np.ndarray]
    lengths: List[int]
    names: List[Names]
    counts: Dict[str, int]


def passing(data: PathLike, filter: str) -> Callable[[Question], bool]:
    """Test of a filter, whose errors name the corpus."""
    filter_rule(filter)

    def passes(question: Question) -> bool:
        if filter != "all":
            with naming_file(data):
                known_labels(question)
        return FILTERS[filter](question)

    return passes


def checked_groups(
    ranker: Ranker, data: PathLike, filter: str, limit: int
) -> Iterator[QuestionGroup]:
    """Divide a corpus, and find what cannot be read or ranked before anything is scored."""
    kept = 0
    for group in group_questions(read_placed_questions(data), passing(data, filter), limit):
        with naming_file(data):
            kept += len(_prepare(ranker, group.questions).questions)
        yield group
    if not kept:
        raise DataError(data, "no question is left to score", "at least one", "check the options")


def score_questions(
    ranker: Ranker, questions: List[Question], read: int, data: PathLike
) -> ScoredQuestions:
    """Score the questions of a group.

    The same questions give the same bits, as no other questions are beside them.
    """
    values: Dict[str, List[np.ndarray]] = {}
    for name, element in ARRAYS.items():
        values[name] = [np.zeros(0, element)]
    lengths: List[int] = []
    names: List[Names] = []
    blank = 0
    with naming_file(data):
        prepared = _prepare(ranker, questions)
        # A list gives the same groups of questions each time, and so the same bits.
        for question, ranking in zip(prepared.questions, ranker.rank_all(prepared.questions)):
            _check_count(question, ranking)
            for name, array in _arrays_of(question, ranking).items():
                values[name].append(np.asarray(array, ARRAYS[name]))
            lengths.append(len(question.candidates))
            names.append((question.id, _candidate_ids(question)))
            blank += int(np.count_nonzero(ranking.blank))
    counts = {
        "read": read,
        "questions": len(prepared.questions),
        "pairs": sum(lengths),
        "blank": blank,
        "truncated_questions": prepared.truncated,
        "skipped_questions": prepared.skipped,
    }
    arrays = {name: np.concatenate(parts) for name, parts in values.items()}
    return ScoredQuestions(arrays, lengths, names, counts)


def _arrays_of(question: Question, ranking: Ranking) -> Dict[str, np.ndarray]:
    return {
        "keys": candidate_keys(question),
        "scores": ranking.scores,
        "order": ranking.order,
        "exits": ranking.exits,
        "stages": np.count_nonzero(~np.isnan(ranking.exit_scores), axis=0),
    }


def _candidate_ids(question: Question) -> Optional[List[Optional[str]]]:
    ids = [candidate.id for candidate in question.candidates]
    return None if all(id is None for id in ids) else ids


def _check_count(question: Question, ranking: Ranking) -> None:
    if len(ranking.scores) != len(question.candidates):
        raise DataError(
            question_name(question),
            f"{len(ranking.scores)} scores",
            f"one for each of its {len(question.candidates)} candidates",
            "mend the ranker",
        )


def _prepare(ranker: Ranker, questions: List[Question]) -> PreparedQuestions:
    """Apply the rule for over-long questions, of which a group may consist."""
    if not questions:
        return PreparedQuestions([])
    try:
        return ranker.prepare(questions)
    except DataError:  # the ranker skips them all
        return PreparedQuestions([], 0, len(questions))
