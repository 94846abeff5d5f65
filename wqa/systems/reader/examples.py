"""Windows of the candidates of training questions, with and without an answer.

Labels are distant: a candidate with label 1 that contains an answer, as whole words, is an example
of the question, and the first occurrence of an answer in it is the span. A title counts last.
"""

from __future__ import annotations

import logging
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Candidate, Question
from wqa.data.filters import known_labels
from wqa.errors import DataError, QuestionTooLong, printable, shorten
from wqa.systems.reader.inputs import WindowEncoder, occurrences, tokens_of
from wqa.text import Encoded, note_long_questions

LOGGER = logging.getLogger(__name__)


class Example(NamedTuple):
    """A question, tokens of a document, and the answer among them."""

    question: int
    token_ids: np.ndarray
    span: Optional[Tuple[int, int]]


class Counts:
    """What the training questions lack."""

    def __init__(self) -> None:
        self.questions = self.unanswered = self.without_span = self.cut_off = 0
        self.truncated_questions = self.skipped_questions = 0

    def note(self, path: str) -> None:
        """Print the numbers on standard error, if there are any."""
        note_long_questions(self.truncated_questions, self.skipped_questions, path)
        parts = []
        if self.unanswered:
            parts.append(
                f"no candidate of {self.unanswered:,} of {self.questions:,} questions contains "
                "an answer"
            )
        if self.without_span:
            parts.append(f"candidates with label 1 that contain none: {self.without_span:,}")
        if self.cut_off:
            parts.append(f"answers that do not fit into a window: {self.cut_off:,}")
        if parts:
            LOGGER.warning(printable(f"{path}: {'; '.join(parts)}"))


class SpanExamples:
    """Windows of the candidates of training questions, with and without an answer."""

    def __init__(
        self,
        questions: Iterable[Question],
        windows: WindowEncoder,
        negatives: float = 1.0,
        positives: int = 0,
    ) -> None:
        self._windows, self._negatives, self._positives = windows, negatives, positives
        self._question_ids: List[Sequence[int]] = []
        self.examples: List[Example] = []
        self.counts = Counts()
        self._positive_windows = self._negative_windows = 0
        for question in questions:
            self._add(question)
        if not self._positive_windows:
            raise DataError(
                "training questions",
                "no candidate with label 1 contains an answer",
                "at least one, with the characters of the answer",
                "check the answers and the labels",
            )

    def pair(self, index: int) -> Encoded:
        """Assemble the pair of an example."""
        example = self.examples[index]
        question_ids = self._question_ids[example.question]
        return self._windows.encoder.assemble(question_ids, example.token_ids)

    def lengths(self) -> np.ndarray:
        """(N,) number of tokens of each pair."""
        specials = self._windows.encoder.form.specials
        lengths = []
        for example in self.examples:
            question_ids = self._question_ids[example.question]
            lengths.append(specials + len(question_ids) + len(example.token_ids))
        return np.array(lengths)

    def _add(self, question: Question) -> None:
        counts = self.counts
        if not question.answers:
            raise DataError(
                f"question {shorten(question.id)}",
                "no answers",
                "the texts of its answers, on each training question of a reader",
            )
        labels = known_labels(question)
        try:
            question_ids, truncated = self._windows.question(question.question, question.id)
        except QuestionTooLong:
            if self._windows.encoder.long_questions != "skip":
                raise
            counts.skipped_questions += 1
            return
        counts.truncated_questions += truncated
        counts.questions += 1
        self._question_ids.append(question_ids)
        spans = []
        for text, label in zip(question.texts, labels):
            spans.append(_spans(text, question.answers, label))
        counts.unanswered += not any(spans)
        positive: List[int] = []
        for index, (label, occurring) in enumerate(zip(labels, spans)):
            counts.without_span += bool(label and not occurring)
            if label and occurring:
                positive.append(index)
        if self._positives:
            positive = positive[: self._positives]
        for index in positive:
            self._add_positive(question_ids, question.candidates[index], spans[index][0])
        for index, (label, occurring) in enumerate(zip(labels, spans)):
            # What label and text disagree about is no example of either kind.
            if bool(label) == bool(occurring):
                self._add_negatives(question_ids, question.candidates[index], occurring)

    def _add_positive(
        self, question_ids: List[int], candidate: Candidate, span: Tuple[int, int]
    ) -> None:
        """Add the window of a candidate in which an answer has the most context."""
        [document] = self._windows.encoder.tokenizer.locate([candidate.text])
        first, last = tokens_of(document, *span)
        best: Optional[Tuple[int, int]] = None
        context = -1
        for start, end in self._windows.bounds(question_ids, len(document.token_ids)):
            least = min(first - start, end - 1 - last)
            if least > context:
                best, context = (start, end), least
        if best is None:
            self.counts.cut_off += 1
            return
        start, end = best
        self._append(document.token_ids[start:end], (first - start, last - start))
        self._positive_windows += 1

    def _add_negatives(
        self, question_ids: List[int], candidate: Candidate, spans: Sequence[Tuple[int, int]]
    ) -> None:
        """Add windows without an answer, while the corpus has too few of them."""
        if self._negative_windows + 1 > self._negatives * self._positive_windows:
            return
        [document] = self._windows.encoder.tokenizer.locate([candidate.text])
        answers = [tokens_of(document, *span) for span in spans]
        for start, end in self._windows.bounds(question_ids, len(document.token_ids)):
            if any(first < end and last >= start for first, last in answers):
                continue
            if self._negative_windows + 1 > self._negatives * self._positive_windows:
                return
            self._append(document.token_ids[start:end], None)
            self._negative_windows += 1

    def _append(self, token_ids: np.ndarray, span: Optional[Tuple[int, int]]) -> None:
        question = len(self._question_ids) - 1
        self.examples.append(Example(question, token_ids, span))


def _spans(text: str, answers: Sequence[str], label: int) -> List[Tuple[int, int]]:
    """Occurrences of answers in a candidate.

    The first line of several is a document's title, which all paragraphs of an article share: an
    answer there counts only in a candidate with label 1 that has none below it.
    """
    spans = list(occurrences(text, answers))
    body_start = text.find("\n") + 1
    in_body = [span for span in spans if span[0] >= body_start]
    if in_body or not label:
        return in_body
    return spans
