"""Training of the span reader (Devlin et al. 2019, sections 4.2 and 4.3).

Windows without an answer have position 0 as their target, so that the scores of spans in different
documents compare: a reader that sees answers alone learns nothing about documents that hold none
(Clark and Gardner 2018, section 3).

Windows of the candidates of training questions, with and without an answer.

Labels are distant: a candidate with label 1 that contains an answer, as whole words, is an example
of the question, and the first occurrence of an answer in it is the span. A title counts last.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from tqdm import tqdm

from wqa.config.encoders import check_length
from wqa.data import Candidate, Question, filter_questions, read_questions
from wqa.data.formats import data_digest
from wqa.data.records import known_labels
from wqa.errors import DataError, QuestionTooLong, check_choice, printable, shorten
from wqa.evaluation import reading_evaluator
from wqa.models import Network
from wqa.systems.reader.inputs import WindowInputs, occurrences, tokens_of
from wqa.systems.reader.reader import Reader
from wqa.text import (
    PairInputs,
    TextInput,
    bucketed,
    is_store,
    naming_file,
    note_long_questions,
    pad_pairs,
    plan_batches,
    plan_by_question,
)
from wqa.training.losses import span_cross_entropy
from wqa.training.pairs import SHUFFLES
from wqa.training.task import Setup, Task

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
        windows: WindowInputs,
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

    def pair(self, index: int) -> TextInput:
        """Assemble the pair of an example."""
        example = self.examples[index]
        question_ids = self._question_ids[example.question]
        return self._windows.inputs.assemble(question_ids, example.token_ids)

    def lengths(self) -> np.ndarray:
        """(N,) number of tokens of each pair."""
        specials = self._windows.inputs.form.specials
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
            if self._windows.inputs.long_questions != "skip":
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
        [document] = self._windows.inputs.tokenizer.locate([candidate.text])
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
        [document] = self._windows.inputs.tokenizer.locate([candidate.text])
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


class ReaderTask(Task):
    """Windows with the span of an answer, and cross-entropy of its start and its end."""

    metric = "em"

    def __init__(
        self,
        network: Network,
        inputs: PairInputs,
        examples: SpanExamples,
        shuffle: str = "pair",
        digest: str = "",
    ) -> None:
        check_choice("shuffle", shuffle, SHUFFLES)
        self.network, self.inputs, self.examples = network, inputs, examples
        self.max_length, self.digest = inputs.max_length, digest
        self._shuffle = shuffle
        self._lengths = examples.lengths()
        self._questions = np.array([example.question for example in examples.examples])

    @classmethod
    def create(cls, setup: Setup) -> ReaderTask:
        train_file, config, own_config = setup.train_file, setup.config, setup.own_config
        if is_store(train_file):
            raise DataError(
                train_file, "a store, which has no answers", "canonical JSONL with answers"
            )
        tokenizer = setup.start.tokenizer()
        network = setup.network()
        check_length(setup.max_length, network.max_positions)
        inputs = PairInputs(tokenizer, setup.max_length, config.long_questions)
        windows = WindowInputs(inputs, own_config.stride)
        questions = filter_questions(read_questions(train_file), config.train_filter)
        bar = tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr)
        with naming_file(train_file):
            examples = SpanExamples(bar, windows, own_config.negatives, own_config.positives)
        examples.counts.note(train_file)
        return cls(network, inputs, examples, config.shuffle, data_digest(train_file))

    def size(self) -> Dict[str, int]:
        counts = self.examples.counts
        return {"questions": counts.questions, "windows": len(self.examples.examples)}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        if self._shuffle == "question":
            return plan_by_question(self._lengths, self._questions, tokens, rng)
        return plan_batches(self._lengths, tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        pairs = [self.examples.pair(index) for index in key]
        length = bucketed(int(self._lengths[key].max()), self.max_length)
        inputs = self.inputs
        padded = pad_pairs(pairs, length, inputs.tokenizer.padding_id, inputs.form.typed)
        # The softmax chooses among what can be read: the document's tokens, and position 0 for no
        # answer. BERT's code lets it choose the question and the padding too.
        allowed = np.zeros((len(pairs), length), dtype=np.float32)
        targets = np.zeros((len(pairs), 2), dtype=np.float32)
        for row, (index, pair) in enumerate(zip(key, pairs)):
            allowed[row, 0] = 1
            allowed[row, pair.boundary : len(pair.token_ids) - 1] = 1
            span = self.examples.examples[index].span
            if span is not None:
                targets[row] = pair.boundary + np.array(span)
        names = ("token_ids", "token_types", "valid_length")
        return {**dict(zip(names, padded)), "allowed": allowed, "targets": targets}

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        arrays = (batch["token_ids"], batch["token_types"], batch["valid_length"])
        logits = self.network(*arrays)  # (B, L, 2)
        return {"loss": span_cross_entropy(logits, batch["allowed"], batch["targets"])}


def evaluate_answers(dev: Any) -> Any:
    """Factory of evaluators of answers; ``dev`` is a `wqa.systems.development.Development`."""
    return dev.of_questions(_of_spans)


def _of_spans(dev: Any, inputs: Any, questions: List[Question]) -> Any:
    """Evaluator of answers."""
    engine = dev.engine

    def build(network: Any) -> Any:
        return Reader(network, inputs, engine)

    read = getattr(dev.own_config, "read", 0)  # where the system has this option
    return reading_evaluator(questions, build, engine.engine == "mxnet", read)
