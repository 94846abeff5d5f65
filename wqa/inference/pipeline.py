"""Answers of questions from a collection of documents.

A retriever finds documents. Then a ranker puts the sentence that answers first: answer sentence
selection (Cascade Transformer, section 1). Or a ranker orders the documents anew, and a reader
takes spans from the first of them: open-domain question answering (Chen et al. 2017; DC-BERT,
section 1).
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import time
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    TypeVar,
)

from wqa.data import Candidate, Question
from wqa.errors import InputError, OptionError, shorten
from wqa.inference.answers import Answered, AnswerSentence, RetrievedDocument, SentenceAnswers
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking

#: Questions that are retrieved, ranked and read together.
_CHUNK = 64

Result = TypeVar("Result")


class Pipeline:
    """Answers questions from the documents of an index.

    Parameters
    ----------
    index : wqa.retrieval.Index
        Index of the collection, or any object with its methods ``search`` and ``sentences``.
    reader : wqa.systems.reader.reader.Reader, optional
        Reads the documents, for `answer`.
    ranker : Ranker, optional
        Ranks the sentences of the retrieved documents, for `ask`. For `answer` it orders the
        documents; without one they are read in their retrieved order.
    top : int
        Documents to retrieve for a question.
    read : int
        Documents to read, the best of those.

    Attributes
    ----------
    seconds : dict of str to float
        Seconds that ``retrieve``, ``rank`` and ``read`` have taken so far.

    Raises
    ------
    OptionError
        If a number is below 1.
    """

    def __init__(
        self,
        index: Any,
        reader: Any = None,
        ranker: Optional[Ranker] = None,
        top: int = 80,
        read: int = 10,
    ) -> None:
        for name, value in (("top", top), ("read", read)):
            if value < 1:
                raise OptionError(name, value, "a whole number from 1")
        self._index, self._reader, self._ranker = index, reader, ranker
        self._top, self._read = top, read
        self.seconds: Dict[str, float] = collections.defaultdict(float)

    def ask(self, question: str) -> SentenceAnswers:
        """Rank the sentences of the documents that a question retrieves.

        Parameters
        ----------
        question : str
            Text of the question.

        Returns
        -------
        SentenceAnswers
            Documents and sentences.

        Raises
        ------
        InputError
            If the question is empty or too long.
        DataError
            If the index does not hold the sentences of its documents.
        OptionError
            If there is no ranker.
        ScoreError
            If a score of the ranker is not finite.
        """
        return next(self.ask_all([_question_of(question)]))

    def ask_all(self, questions: Iterable[Question]) -> Iterator[SentenceAnswers]:
        """Rank the sentences of the documents that many questions retrieve.

        Parameters
        ----------
        questions : iterable of Question
            The questions. Their candidates, labels and answers are not read.

        Yields
        ------
        SentenceAnswers
            Documents and sentences of each question, in order.

        Raises
        ------
        InputError, DataError, OptionError, ScoreError
            As `ask` raises them.
        """
        if self._ranker is None:
            raise OptionError("pipeline", "one without a ranker", "one with a ranker of sentences")
        return self._in_chunks(questions, self._ask)

    def answer(self, question: str, n_best: int = 1) -> Answered:
        """Answer one question by spans of the documents.

        Parameters
        ----------
        question : str
            Text of the question.
        n_best : int
            Most answers to return.

        Returns
        -------
        Answered
            Documents and answers.

        Raises
        ------
        InputError
            If the question is empty or too long.
        OptionError
            If ``n_best`` is below 1, or there is no reader.
        ScoreError
            If a score of a model is not finite.
        """
        return next(self.answer_all([_question_of(question)], n_best))

    def answer_all(self, questions: Iterable[Question], n_best: int = 1) -> Iterator[Answered]:
        """Answer many questions by spans of the documents.

        Parameters
        ----------
        questions : iterable of Question
            The questions. Their candidates, labels and answers are not read.
        n_best : int
            Most answers of a question.

        Yields
        ------
        Answered
            Documents and answers of each question, in order.

        Raises
        ------
        InputError, OptionError, ScoreError
            As `answer` raises them.
        """
        if self._reader is None:
            raise OptionError("pipeline", "one without a reader", "one with a reader of spans")
        return self._in_chunks(questions, lambda chunk: self._answer(chunk, n_best))

    @staticmethod
    def _in_chunks(
        questions: Iterable[Question], work: Callable[[List[Question]], Iterator[Result]]
    ) -> Iterator[Result]:
        iterator = iter(questions)
        while True:
            chunk = list(itertools.islice(iterator, _CHUNK))
            if not chunk:
                return
            yield from work(chunk)

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[step] += time.perf_counter() - begin

    def _ask(self, questions: Sequence[Question]) -> Iterator[SentenceAnswers]:
        with self._timed("retrieve"):
            retrieved = self._search(questions)
            sentences = [sentences_of(self._index, hits) for hits in retrieved]
        with self._timed("rank"):
            candidates = [[Candidate(sentence.text) for sentence in own] for own in sentences]
            rankings = self._rank(questions, candidates)
        for question, hits, own, ranking in zip(questions, retrieved, sentences, rankings):
            yield SentenceAnswers(question, hits, in_order(own, ranking), ranking)

    def _answer(self, questions: Sequence[Question], n_best: int) -> Iterator[Answered]:
        with self._timed("retrieve"):
            retrieved: List[List[RetrievedDocument]] = []
            for hits in self._search(questions):
                retrieved.append([RetrievedDocument(hit.document, hit.score, None) for hit in hits])
        counts = [len(documents) for documents in retrieved]
        if self._ranker is not None:
            with self._timed("rank"):
                rankings = self._rank(questions, list(map(_candidates, retrieved)))
                retrieved = list(map(in_order, retrieved, rankings))
        read = [documents[: self._read] for documents in retrieved]
        to_read = []
        for question, documents in zip(questions, read):
            to_read.append(question._replace(candidates=tuple(_candidates(documents))))
        with self._timed("read"):
            answers = list(self._reader.read_all(to_read, n_best))
        for question, count, documents, spans in zip(questions, counts, read, answers):
            yield Answered(question, count, documents, spans)

    def _search(self, questions: Sequence[Question]) -> List[List[Any]]:
        return [self._index.search(question.question, self._top) for question in questions]

    def _rank(
        self, questions: Sequence[Question], candidates: Sequence[Sequence[Candidate]]
    ) -> List[Optional[Ranking]]:
        """Rankings of the candidates of each question; None where there are none."""
        to_rank = []
        for question, own in zip(questions, candidates):
            if own:
                to_rank.append(question._replace(candidates=tuple(own)))
        rankings = self._ranker.rank_all(to_rank)  # type: ignore[union-attr]
        return [next(rankings) if own else None for own in candidates]


def _question_of(text: str) -> Question:
    """A question without an id, whose text is checked before anything is retrieved."""
    if not isinstance(text, str):
        raise InputError("question", f"is {shorten(text)}", "a text")
    if not text.strip():
        raise InputError("question", "the question is empty", "text")
    return Question("", text, ())


def sentences_of(index: Any, hits: Sequence[Any]) -> List[AnswerSentence]:
    """The sentences of the documents that a question retrieves, without scores."""
    sentences = []
    for number, hit in enumerate(hits):
        spans = index.sentences(hit.number)
        texts = [" ".join(hit.document.text[start:end].split()) for start, end in spans]
        around = ["", *texts, ""]
        for place, (start, end) in enumerate(spans):
            before, text, after = around[place : place + 3]
            sentences.append(AnswerSentence(text, number, start, end, before, after))
    return sentences


def _candidates(documents: Sequence[RetrievedDocument]) -> List[Candidate]:
    """Documents as the candidates of a question."""
    candidates = []
    for hit in documents:
        document = hit.document
        candidates.append(Candidate(document.full_text, None, document.id, meta=document.meta))
    return candidates


def in_order(items: Sequence[Any], ranking: Optional[Ranking]) -> List[Any]:
    """Documents or sentences in the order of a ranking, with its scores."""
    if ranking is None:
        return []
    ordered = []
    for index in ranking.order.tolist():
        scored = items[index]._replace(
            score=float(ranking.scores[index]),
            relevance=float(ranking.relevance[index]),
            exit=int(ranking.exits[index]),
            window=ranking.window(index),
        )
        ordered.append(scored)
    return ordered
