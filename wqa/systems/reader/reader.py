"""Readers: a question and documents in, the best answers out, each a span of a document's text.

All windows of a question's documents run in micro-batches of similar lengths. The scores of spans
are sums of logits, without a softmax over the document, so that those of several documents compare
(Clark and Gardner 2018, section 3).

Decoding of spans: the best texts of documents by the logits of their tokens' starts and ends.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import Candidate, Question
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import InputError, check_range
from wqa.inference.exit_ranker import InputsRanker
from wqa.inference.loop import check_finite, micro_batches, read_ahead
from wqa.inference.ranking import candidate_name, question_name
from wqa.models import Network
from wqa.text import Located, PairInputs, TextInput
from wqa.text.windows import token_windows


class Window(NamedTuple):
    """Neighbouring tokens of a document, paired with a question."""

    document: int
    start: int
    end: int
    pair: TextInput


def windows_of(
    inputs: PairInputs, question_ids: Sequence[int], documents: Sequence[Located], stride: int
) -> List[Window]:
    """Pair a question with overlapping windows of documents, so that all tokens are read."""
    room = inputs.max_length - inputs.form.specials - len(question_ids)
    windows = []
    for index, document in enumerate(documents):
        token_ids = document.token_ids
        for start, end in token_windows(len(token_ids), room, stride):
            pair = inputs.assemble(question_ids, token_ids[start:end])
            windows.append(Window(index, start, end, pair))
    return windows


def occurrences(text: str, answers: Sequence[str]) -> Iterator[Tuple[int, int]]:
    """Find where answers occur in a text: as whole words, in any case, over any white space."""
    patterns = []
    for answer in sorted(set(answers), key=len, reverse=True):
        words = map(re.escape, answer.split())
        patterns.append(r"\s+".join(words))
    pattern = rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield match.span()


def tokens_of(document: Located, start: int, end: int) -> Tuple[int, int]:
    """Tokens of a document that cover characters of it."""
    _, starts, ends = document
    covering = np.flatnonzero((starts < end) & (ends > start) & (ends > starts)).tolist()
    return (covering[0], covering[-1]) if covering else (-1, -1)


class Answer(NamedTuple):
    """A text that a reader takes for an answer.

    Attributes
    ----------
    text : str
        The answer, as it stands in its document.
    score : float
        Logit of its start plus that of its end; higher is better. Scores of the spans of all
        documents of a question compare.
    document : int
        Index of its document.
    start, end : int
        First character of the answer in the document, and the one behind its last.
    """

    text: str
    score: float
    document: int
    start: int
    end: int


def span_scores(starts: np.ndarray, ends: np.ndarray, most_tokens: int) -> np.ndarray:
    """Score all spans of neighbouring tokens.

    Shapes: `starts, ends` (n,), the result (n, most_tokens).
    """
    padding = np.full(most_tokens, -np.inf)
    padded = np.concatenate([ends.astype(np.float64), padding])
    first = np.arange(len(starts))
    last = first[:, None] + np.arange(most_tokens)  # (n, most_tokens)
    return starts.astype(np.float64)[:, None] + padded[last]


def decode_spans(
    texts: Sequence[str],
    documents: Sequence[Located],
    windows: Sequence[Window],
    logits: Sequence[np.ndarray],
    most_tokens: int = 30,
    n_best: int = 1,
) -> List[Answer]:
    """Find the best spans of the documents of a question.

    Shapes: `logits` (n, 2).
    """
    tables = []
    for window, window_logits in zip(windows, logits):
        document = documents[window.document]
        part = slice(window.start, window.end)
        # A token of white space alone, as SentencePiece has, neither starts nor ends an answer.
        blank = document.ends[part] == document.starts[part]
        masked = np.where(blank[:, None], -np.inf, window_logits)
        scores = span_scores(masked[:, 0], masked[:, 1], most_tokens)
        tables.append(scores.ravel())
    scores = np.concatenate([np.zeros(0), *tables])
    edges = np.cumsum([0, *map(len, tables)])
    existing = np.count_nonzero(np.isfinite(scores))
    answers: Dict[str, Answer] = {}
    order = np.argsort(-scores, kind="stable")
    for index in order[:existing].tolist():
        number = int(np.searchsorted(edges, index, side="right")) - 1
        row, further = divmod(index - int(edges[number]), most_tokens)
        window = windows[number]
        document = documents[window.document]
        first = window.start + row
        start = int(document.starts[first])
        end = int(document.ends[first + further])
        text = texts[window.document][start:end]
        if text not in answers:
            answers[text] = Answer(text, float(scores[index]), window.document, start, end)
        if len(answers) == n_best:
            break
    return list(answers.values())


class Reader(InputsRanker):
    """Reads answers from documents by a network that computes spans.

    It is a ranker that reads in place of ranking: it has the engines of one, and `read` and
    `read_all` in place of ``rank`` and ``rank_all``.

    Parameters
    ----------
    network : Network
        Network with its parameters on the engine's device. ``stride`` of its configuration, if it
        has one, is the number of tokens between the starts of windows of a long document.
    inputs : PairInputs
        Token ids of questions and windows, as pairs.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each call; oneDNN reads them once.
    quantized : list of dict, optional
        `wqa.engines.onednn.operations.Quantized` products of each layer, for int8.
    max_answer_tokens : int
        Most tokens of an answer.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    _group_size = 16384  # tokens

    def __init__(
        self,
        network: Network,
        inputs: PairInputs,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        max_answer_tokens: int = 30,
    ) -> None:
        check_range("max_answer_tokens", max_answer_tokens, 1)
        super().__init__(network, inputs, engine=engine, quantized=quantized)
        # A system may leave the stride to the default.
        self._stride = getattr(network.own_config, "stride", 0)
        self._most_tokens = max_answer_tokens

    def read(self, question: str, documents: Sequence[str], n_best: int = 1) -> List[Answer]:
        """Read the answers of one question.

        Parameters
        ----------
        question : str
            Text of the question.
        documents : sequence of str
            Texts of the documents.
        n_best : int
            Most answers to return.

        Returns
        -------
        list of Answer
            Answers of different texts, best first; empty if no document has text.

        Raises
        ------
        InputError
            If the question is empty or too long, or a document is no text.
        OptionError
            If ``n_best`` is below 1.
        ScoreError
            If a logit is not finite.
        """
        if isinstance(documents, str):
            raise InputError("documents", "a string", "a sequence of strings")
        candidates = tuple(Candidate(text) for text in documents)
        [answers] = self.read_all([Question("", question, candidates)], n_best)
        return answers

    def read_all(self, questions: Iterable[Question], n_best: int = 1) -> Iterator[List[Answer]]:
        """Read the answers of many questions, several at a time.

        Parameters
        ----------
        questions : iterable of Question
            Questions, with their documents as candidates, read in another thread. Labels and
            answers are not read.
        n_best : int
            Most answers of a question.

        Yields
        ------
        list of Answer
            Answers of each question, as `read` returns them, in order.

        Raises
        ------
        InputError, OptionError, ScoreError
            As `read` raises them; after the answers of the questions before it.
        """
        check_range("n_best", n_best, 1)
        for group in read_ahead(questions, self._encode, self._group_size):
            yield from self._read(group, n_best)

    def _encode(self, question: Question) -> Tuple[_QuestionWindows, int]:
        """Divide the documents of a question into windows; returns the number of tokens too."""
        question_ids = self.inputs.segments(question.question, [""], question.id).question
        documents = self.inputs.tokenizer.locate(question.texts)
        windows = windows_of(self.inputs, question_ids, documents, self._stride)
        size = sum(len(window.pair.token_ids) for window in windows)
        return _QuestionWindows(question, documents, windows), size

    def _read(self, group: Sequence[_QuestionWindows], n_best: int) -> Iterator[List[Answer]]:
        windows = [window for encoded in group for window in encoded.windows]
        logits = iter(self._logits(windows))
        for question, documents, own_windows in group:
            of_tokens = []
            for window, values in zip(own_windows, logits):
                _check(question, window, values)
                boundary = window.pair.boundary
                of_tokens.append(values[boundary : boundary + window.end - window.start])
            yield decode_spans(
                question.texts, documents, own_windows, of_tokens, self._most_tokens, n_best
            )

    def _logits(self, windows: Sequence[Window]) -> List[np.ndarray]:
        """(length, 2) logits of the positions of each window."""
        lengths = np.array([len(window.pair.token_ids) for window in windows], dtype=int)
        logits = [np.zeros((0, 2))] * len(windows)
        works = micro_batches(self._engine, [window.pair for window in windows], lengths)
        for work, done in zip(works, self._engine.run_all(works)):
            # Of MXNet (pairs, L, 2), with padding; of oneDNN (tokens, 2).
            rows = self._engine.scores(0, done.rows[0]).reshape(-1, 2)
            starts = np.cumsum(done.positions) - done.positions
            for index, start in zip(work.numbers, starts):
                end = start + lengths[index]
                logits[index] = rows[start:end]
        return logits


def _check(question: Question, window: Window, logits: np.ndarray) -> None:
    document = f"document {window.document + 1}"
    if question.candidates[window.document].id is not None:
        document = candidate_name(question, window.document)
    check_finite(logits.ravel(), lambda _: (question_name(question), document))


class _QuestionWindows(NamedTuple):
    """A question, its documents' tokens, and their windows."""

    question: Question
    documents: List[Located]
    windows: List[Window]
