"""Questions whose tokens leave no room for a candidate: an error, truncated, or left out.

`wqa.text.PairInputs.fit_question` holds the rule for one question. Here it is applied to all
questions of a corpus before they are ranked.
"""

from __future__ import annotations

import contextlib
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set

from wqa.data import Question
from wqa.errors import DataError, InputError, QuestionTooLong
from wqa.io.files import PathLike
from wqa.io.progress import note_counts
from wqa.text.inputs import PairInputs

#: Questions that are tokenized at once.
_CHUNK = 1024


class PreparedQuestions(NamedTuple):
    """Questions that can be ranked.

    Attributes
    ----------
    questions : list of Question
        The questions in their order, without those that were skipped. Their texts are whole:
        `PairInputs` truncates the token ids.
    truncated : int
        Number of over-long questions among them, whose token ids are truncated.
    skipped : int
        Number of over-long questions that were left out.
    """

    questions: List[Question]
    truncated: int = 0
    skipped: int = 0

    @property
    def counts(self) -> Dict[str, int]:
        """``truncated_questions`` and ``skipped_questions``, for the rows of an evaluation."""
        return {"truncated_questions": self.truncated, "skipped_questions": self.skipped}


def prepare_questions(
    questions: Iterable[Question], all_inputs: Sequence[PairInputs]
) -> PreparedQuestions:
    """Apply the rule for over-long questions of all inputs before a corpus is ranked.

    Parameters
    ----------
    questions : iterable of Question
        Questions with their candidates; only the texts of the questions are tokenized.
    all_inputs : sequence of PairInputs
        Inputs of all rankers that rank the questions. A question that is too long for one of
        them is too long.

    Returns
    -------
    PreparedQuestions
        The questions to rank, and the number of those that are truncated and skipped.

    Raises
    ------
    InputError
        If a question has no token.
    QuestionTooLong
        If a question leaves too few tokens for its candidates, and its inputs neither truncate
        nor skip it.
    DataError
        If all questions are skipped.
    """
    prepared = list(questions)
    truncated: Set[int] = set()
    skipped: Set[int] = set()
    for inputs in all_inputs:
        indices = _over_long(prepared, inputs)
        if inputs.long_questions == "skip":
            skipped.update(indices)
        else:
            truncated.update(indices)
    kept = [question for index, question in enumerate(prepared) if index not in skipped]
    if skipped and not kept:
        expected = "at least one that leaves room for its candidates"
        hint = 'set long_questions="truncate"'
        problem = f"all {len(skipped)} are over-long, and skipped"
        raise DataError("the questions", problem, expected, hint)
    return PreparedQuestions(kept, len(truncated - skipped), len(skipped))


def _over_long(questions: Sequence[Question], inputs: PairInputs) -> Iterator[int]:
    """Indices of the questions that are to be truncated or skipped."""
    for start in range(0, len(questions), _CHUNK):
        chunk = questions[start : start + _CHUNK]
        texts = [question.question for question in chunk]
        all_ids = inputs.tokenizer.encode(texts, inputs.needed)
        for index, (question, ids) in enumerate(zip(chunk, all_ids), start):
            try:
                is_long = len(inputs.fit_question(ids, question.id or question.question)) < len(ids)
            except QuestionTooLong:
                if inputs.long_questions != "skip":
                    raise
                is_long = True
            if is_long:
                yield index


@contextlib.contextmanager
def naming_file(path: PathLike) -> Iterator[None]:
    """Add the name of a corpus to errors about its questions.

    Parameters
    ----------
    path : str or path-like
        The file that the questions were read from.

    Raises
    ------
    DataError, InputError
        The error of the ``with`` block, of the same type; its ``where`` begins with the file.
    """
    try:
        yield
    except (DataError, InputError) as error:
        if f"{error.where},".startswith(f"{path},"):
            raise
        where = f"{path}, {error.where}"
        raise type(error)(where, error.found, error.expected, error.hint) from None


def note_long_questions(truncated: int, skipped: int, where: PathLike = "") -> None:
    """Print on standard error how many questions were truncated or skipped, if any.

    Parameters
    ----------
    truncated : int
        Number of questions that lost tokens.
    skipped : int
        Number of questions that were left out with their candidates.
    where : str or path-like
        The corpus; empty where the output names it.
    """
    name = "over-long question"
    cut = (truncated, name, "truncated")
    note_counts(where, (cut, (skipped, name, "skipped with all candidates")))
