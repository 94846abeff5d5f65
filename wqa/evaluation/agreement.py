"""Agreement of a student with its teachers (Matsubara et al. 2022, section 5.4 and Figure 4).

The paper divides "the number of correct candidates each head and teacher agree on by the total
number of correct answers for each head". Each of them answers a question by its top candidate:

    agreement(i, j) = |{q: i and j have the same top candidate of q, and it is correct}|
                      / |{q: the top candidate of i for q is correct}|

So it is 1 where the teacher finds every answer that the head finds, and it grows with the number of
the teacher's correct answers. Questions without an answer do not change it.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from wqa.data import DEFAULT_FILTER, Question
from wqa.errors import DataError, OptionError, shorten
from wqa.evaluation.comparison import NamedRanker, prepared_alike
from wqa.evaluation.rankers import Row, questions_that_count, rank_questions
from wqa.evaluation.report import align
from wqa.evaluation.trec import break_ties


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Correct top candidates that members of a student share with teachers.

    Attributes
    ----------
    members : tuple of str
        Names of the student's members.
    teachers : tuple of str
        Names of the teachers.
    questions : int
        Number of questions.
    members_correct : tuple of int
        Number of questions whose top candidate is correct, by member.
    teachers_correct : tuple of int
        The same by teacher.
    agreed : tuple of tuple of int
        Number of questions with the same correct top candidate, by member and teacher.
    truncated_questions, skipped_questions : int
        Number of over-long questions that were truncated, and that were left out.
    """

    members: Tuple[str, ...]
    teachers: Tuple[str, ...]
    questions: int
    members_correct: Tuple[int, ...]
    teachers_correct: Tuple[int, ...]
    agreed: Tuple[Tuple[int, ...], ...]
    truncated_questions: int = 0
    skipped_questions: int = 0

    @property
    def shares(self) -> List[List[Optional[float]]]:
        """Agreement of each member with each teacher, None for one without a correct answer."""
        shares: List[List[Optional[float]]] = []
        for correct, agreed in zip(self.members_correct, self.agreed):
            if correct:
                shares.append([count / correct for count in agreed])
            else:
                shares.append([None] * len(agreed))
        return shares

    def rows(self) -> List[Row]:
        """A row for each member and teacher.

        Returns
        -------
        list of dict
            ``member``, ``teacher``, ``agreed``, ``member_correct``, ``teacher_correct`` and
            ``agreement``, which is None for a member without a correct answer.
        """
        rows = []
        shares = self.shares
        for member, name in enumerate(self.members):
            for teacher, teacher_name in enumerate(self.teachers):
                row: Row = {
                    "member": name,
                    "teacher": teacher_name,
                    "agreed": self.agreed[member][teacher],
                    "member_correct": self.members_correct[member],
                    "teacher_correct": self.teachers_correct[teacher],
                    "agreement": shares[member][teacher],
                }
                rows.append(row)
        return rows

    def table(self) -> str:
        """A row for each member, a column for each teacher, as in the figure.

        Returns
        -------
        str
            The table, with the numbers of correct top candidates.
        """
        lines = [["", "correct", *self.teachers]]
        for name, correct, shares in zip(self.members, self.members_correct, self.shares):
            lines.append([name, str(correct), *map(_cell, shares)])
        lines.append(["correct of the teacher", "", *map(str, self.teachers_correct)])
        return align(lines, left=1)


def _cell(share: Optional[float]) -> str:
    return "-" if share is None else f"{share:.3f}"


def correct_answers(rankings: Sequence[Any], questions: Sequence[Question]) -> List[Optional[int]]:
    """Top candidates that are correct.

    Parameters
    ----------
    rankings : sequence of Ranking, or of sequences of int
        One a question, in the same order.
    questions : sequence of Question
        Labelled questions.

    Returns
    -------
    list of int or None
        Index of each question's top candidate; None where that is not correct. Candidates with
        equal scores are ordered by trec_eval's rule.

    Raises
    ------
    DataError
        If there is not one ranking of all candidates for each question.
    """
    if len(rankings) != len(questions):
        raise DataError(
            "rankings", f"{len(rankings)}", f"one for each of {len(questions)} questions"
        )
    answers: List[Optional[int]] = []
    for ranking, question in zip(rankings, questions):
        order = break_ties(ranking, question)
        count = len(question.candidates)
        if len(order) != count:
            where = f"question {shorten(question.id)}"
            raise DataError(where, f"a ranking of {len(order)} candidates", f"its {count}")
        is_correct = (question.labels[order[0]] or 0) > 0
        answers.append(order[0] if is_correct else None)
    return answers


def measure_agreement(
    members: Iterable[NamedRanker],
    teachers: Iterable[NamedRanker],
    questions: Iterable[Question],
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
) -> Agreement:
    """Rank questions by a student's members and by teachers, and count where they agree.

    Parameters
    ----------
    members : iterable of NamedRanker
        Members of the student, as `wqa.inference.Ranker.members` names them.
    teachers : iterable of NamedRanker
        Teachers. They run one after another, so an iterator may load each when it is needed.
    questions : iterable of Question
        Labelled questions.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count; the others are not ranked.
    progress : bool
        Show a bar on standard error while ranking.

    Returns
    -------
    Agreement
        The counts, and the agreement of each member with each teacher.

    Raises
    ------
    OptionError
        If there is no member or no teacher, or the filter is unknown.
    DataError
        If a candidate has no label, or the rankers do not rank the same questions.
    """
    heads = list(members)
    if not heads:
        raise OptionError("members", "none", "at least one")
    kept = questions_that_count(questions, filter)
    names: List[str] = []
    answers: List[List[Optional[int]]] = []
    truncated = skipped = 0
    for entry, prepared in prepared_alike(itertools.chain(heads, teachers), kept):
        rankings = rank_questions(entry.ranker, prepared.questions, entry.title, progress)
        names.append(entry.title)
        answers.append(correct_answers(rankings, prepared.questions))
        truncated, skipped = max(truncated, prepared.truncated), prepared.skipped
    count = len(heads)
    if len(names) == count:
        raise OptionError("teachers", "none", "at least one")
    correct = [sum(answer is not None for answer in of_ranker) for of_ranker in answers]
    return Agreement(
        members=tuple(names[:count]),
        teachers=tuple(names[count:]),
        questions=len(answers[0]),
        members_correct=tuple(correct[:count]),
        teachers_correct=tuple(correct[count:]),
        agreed=tuple(_agreed(of_member, answers[count:]) for of_member in answers[:count]),
        truncated_questions=truncated,
        skipped_questions=skipped,
    )


def _agreed(
    of_member: Sequence[Optional[int]], of_teachers: Sequence[Sequence[Optional[int]]]
) -> Tuple[int, ...]:
    """Number of correct answers that a member shares with each teacher."""
    counts = []
    for of_teacher in of_teachers:
        pairs = zip(of_member, of_teacher)
        counts.append(sum(answer is not None and answer == taught for answer, taught in pairs))
    return tuple(counts)
