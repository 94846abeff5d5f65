"""Training of the span reader (Devlin et al. 2019, sections 4.2 and 4.3).

Windows without an answer have position 0 as their target, so that the scores of spans in different
documents compare: a reader that sees answers alone learns nothing about documents that hold none
(Clark and Gardner 2018, section 3).

Windows of the candidates of training questions, with and without an answer.

Labels are distant: a candidate with label 1 that contains an answer, as whole words, is an example
of the question, and the first occurrence of an answer in it is the span. A title counts last.
"""

from __future__ import annotations

import collections
import sys
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from wqa.data import Question, filter_questions, read_questions
from wqa.data.formats import data_digest
from wqa.data.records import known_labels
from wqa.errors import DataError, QuestionTooLong, shorten
from wqa.evaluation import reading_evaluator
from wqa.io.progress import note_counts
from wqa.models import Network
from wqa.systems.reader.reader import Window, occurrences, tokens_of, windows_of
from wqa.text import (
    Located,
    PairInputs,
    TextInput,
    is_store,
    naming_file,
    note_long_questions,
    plan_batches,
    plan_by_question,
)
from wqa.training.losses import span_cross_entropy
from wqa.training.task import Arrays, Setup, Task


class Example(NamedTuple):
    """A question with a window of a document, and the answer among the window's tokens."""

    question: int
    pair: TextInput
    span: Optional[Tuple[int, int]]


class SpanExamples:
    """Windows of the candidates of training questions, with and without an answer."""

    def __init__(
        self,
        questions: Iterable[Question],
        inputs: PairInputs,
        stride: int = 0,
        negatives: float = 1.0,
    ) -> None:
        self._inputs, self._stride, self._negatives = inputs, stride, negatives
        self.examples: List[Example] = []
        #: What the questions lack.
        self.counts: collections.Counter = collections.Counter()
        for question in questions:
            self._add(question)
        if not self.counts["positive"]:
            problem = "no candidate with label 1 contains an answer"
            raise DataError("training questions", problem, "at least one", "check the labels")

    def _add(self, question: Question) -> None:
        if not question.answers:
            where, expected = f"question {shorten(question.id)}", "the texts of its answers"
            raise DataError(where, "no answers", expected)
        labels, inputs, counts = known_labels(question), self._inputs, self.counts
        try:
            segments = inputs.segments(question.question, [""], question.id)
        except QuestionTooLong:
            if inputs.long_questions != "skip":
                raise
            counts["skipped"] += 1
            return
        counts["truncated"] += segments.question_truncated
        counts["questions"] += 1
        spans = []
        for text, label in zip(question.texts, labels):
            of_text = _spans(text, question.answers, label)
            spans.append(of_text)
            if label and of_text:
                self._add_positive(segments.question, text, of_text[0])
            counts["without span"] += bool(label and not of_text)
        for text, label, of_text in zip(question.texts, labels, spans):
            # What label and text disagree about is no example of either kind.
            if bool(label) == bool(of_text):
                self._add_negatives(segments.question, text, of_text)

    def _add_positive(self, question_ids: List[int], text: str, span: Tuple[int, int]) -> None:
        """Add the window of a candidate in which an answer has the most context."""
        document, windows = self._windows(question_ids, text)
        first, last = tokens_of(document, *span)
        contexts = [min(first - window.start, window.end - 1 - last) for window in windows]
        if max(contexts, default=-1) < 0:  # an answer that is too long for a window
            return
        window = windows[contexts.index(max(contexts))]
        self._append("positive", window.pair, (first - window.start, last - window.start))

    def _add_negatives(
        self, question_ids: List[int], text: str, spans: Sequence[Tuple[int, int]]
    ) -> None:
        """Add windows without an answer, while the corpus has too few of them."""
        if not self._lacks_negatives():
            return
        document, windows = self._windows(question_ids, text)
        answers = [tokens_of(document, *span) for span in spans]
        for window in windows:
            if any(first < window.end and last >= window.start for first, last in answers):
                continue
            if self._lacks_negatives():
                self._append("negative", window.pair, None)

    def _windows(self, question_ids: List[int], text: str) -> Tuple[Located, List[Window]]:
        """Tokens of a candidate, and its windows."""
        documents = self._inputs.tokenizer.locate([text])
        return documents[0], windows_of(self._inputs, question_ids, documents, self._stride)

    def _lacks_negatives(self) -> bool:
        return self.counts["negative"] + 1 <= self._negatives * self.counts["positive"]

    def _append(self, kind: str, pair: TextInput, span: Optional[Tuple[int, int]]) -> None:
        self.counts[kind] += 1
        self.examples.append(Example(self.counts["questions"] - 1, pair, span))


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
        self.network, self.inputs, self.examples = network, inputs, examples
        self.max_length, self.digest = inputs.max_length, digest
        self._shuffle = shuffle
        self._lengths = np.array([example.pair.length for example in examples.examples])
        self._questions = np.array([example.question for example in examples.examples])

    @classmethod
    def create(cls, setup: Setup) -> ReaderTask:
        train_file, config, own_config = setup.train_file, setup.config, setup.own_config
        if is_store(train_file):
            expected = "canonical JSONL with answers"
            raise DataError(train_file, "a store, which has no answers", expected)
        tokenizer = setup.start.tokenizer()
        network = setup.network()
        inputs = network.text_inputs(tokenizer, setup.max_length, config.long_questions)
        with naming_file(train_file):
            questions = filter_questions(read_questions(train_file), config.train_filter)
            bar = tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr)
            examples = SpanExamples(bar, inputs, own_config.stride, own_config.negatives)
        counts = examples.counts
        note_long_questions(counts["truncated"], counts["skipped"], train_file)
        lacking = (counts["without span"], "candidate", "with label 1 that contains no answer")
        note_counts(train_file, [lacking])
        return cls(network, inputs, examples, config.shuffle, data_digest(train_file))

    def size(self) -> Dict[str, int]:
        examples = self.examples
        return {"questions": examples.counts["questions"], "windows": len(examples.examples)}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        if self._shuffle == "question":
            return plan_by_question(self._lengths, self._questions, tokens, rng)
        return plan_batches(self._lengths, tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        examples = [self.examples.examples[index] for index in key]
        pairs = [example.pair for example in examples]
        batch = dict(zip(self.inputs.names, self.inputs.pad(pairs)))
        # The softmax chooses among what can be read: the document's tokens, and position 0 for no
        # answer. BERT's code lets it choose the question and the padding too.
        allowed = np.zeros(batch["token_ids"].shape, dtype=np.float32)
        targets = np.zeros((len(pairs), 2), dtype=np.float32)
        for row, (_, pair, span) in enumerate(examples):
            allowed[row, 0] = 1
            allowed[row, pair.boundary : len(pair.token_ids) - 1] = 1
            if span is not None:
                targets[row] = pair.boundary + np.array(span)
        return {**batch, "allowed": allowed, "targets": targets}

    def losses(self, batch: Arrays, update: int) -> Arrays:
        logits = self.network(*(batch[name] for name in self.inputs.names))  # (B, L, 2)
        return {"loss": span_cross_entropy(logits, batch["allowed"], batch["targets"])}


def evaluate_answers(dev: Any, inputs: Any) -> Any:
    """Make the evaluator of answers; ``dev`` is a `wqa.systems.development.Development`."""
    read = getattr(dev.own_config, "read", 0)  # where the system has this option
    return reading_evaluator(dev.questions(inputs), dev.builder(inputs), dev.is_live, read)
