"""Retrieve, re-rank, read: answers of questions from a collection of documents.

The pipeline of open-domain question answering (Chen et al. 2017; DC-BERT, section 1). A retriever
finds documents, a ranker orders them anew, and a reader reads the first of them.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from wqa.data import Candidate, Document, Question
from wqa.errors import OptionError
from wqa.inference.ranker import Ranker

#: Questions that are retrieved, ranked and read together.
_CHUNK = 64


class RetrievedDocument(NamedTuple):
    """A document that was read.

    Attributes
    ----------
    document : Document
        The document.
    retrieval_score : float
        Score of the index.
    score : float or None
        Log-odds of the ranker; None without a ranker.
    relevance : float or None
        Relevance, as `wqa.inference.Ranking.relevance`; None without a ranker.
    """

    document: Document
    retrieval_score: float
    score: Optional[float]
    relevance: Optional[float] = None


class Answered(NamedTuple):
    """A question with the documents that were read for it, and its answers.

    Attributes
    ----------
    question : Question
        The question, as it was given.
    retrieved : int
        Number of documents that it retrieves.
    documents : list of RetrievedDocument
        Documents that were read, best first.
    answers : list of wqa.systems.reader.reader.Answer
        Answers of different texts, best first; empty if no document was retrieved. Their
        ``document`` is an index of ``documents``, and their characters are those of its
        ``document.full_text``.
    """

    question: Question
    retrieved: int
    documents: List[RetrievedDocument]
    answers: List[Any]


class Pipeline:
    """Answers questions from the documents of an index.

    Parameters
    ----------
    index : wqa.retrieval.Index
        Index of the collection, or any object with its method ``search``.
    reader : wqa.systems.reader.reader.Reader
        Reads the documents.
    ranker : Ranker, optional
        Orders the retrieved documents; without one they are read in their retrieved order.
    top : int
        Documents to retrieve for a question.
    read : int
        Documents to read, the best of those.

    Raises
    ------
    OptionError
        If a number is below 1.
    """

    def __init__(
        self,
        index: Any,
        reader: Any,
        ranker: Optional[Ranker] = None,
        top: int = 80,
        read: int = 10,
    ) -> None:
        for name, value in (("top", top), ("read", read)):
            if value < 1:
                raise OptionError(name, value, "a whole number from 1")
        self._index, self._reader, self._ranker = index, reader, ranker
        self._top, self._read = top, read

    def answer(self, question: str, n_best: int = 1) -> Answered:
        """Answer one question.

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
            If ``n_best`` is below 1.
        ScoreError
            If a score of a model is not finite.
        """
        return next(self.answer_all([Question("", question, ())], n_best))

    def answer_all(self, questions: Iterable[Question], n_best: int = 1) -> Iterator[Answered]:
        """Answer many questions.

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
        iterator = iter(questions)
        while True:
            chunk = list(itertools.islice(iterator, _CHUNK))
            if not chunk:
                return
            yield from self._answer(chunk, n_best)

    def _answer(self, questions: Sequence[Question], n_best: int) -> Iterator[Answered]:
        retrieved: List[List[RetrievedDocument]] = []
        for question in questions:
            hits = self._index.search(question.question, self._top)
            retrieved.append([RetrievedDocument(hit.document, hit.score, None) for hit in hits])
        counts = [len(documents) for documents in retrieved]
        if self._ranker is not None:
            self._rank(self._ranker, questions, retrieved)
        read = [documents[: self._read] for documents in retrieved]
        to_read = _with_documents(questions, read)
        for question, count, documents, answers in zip(
            questions, counts, read, self._reader.read_all(to_read, n_best)
        ):
            yield Answered(question, count, documents, answers)

    def _rank(
        self,
        ranker: Ranker,
        questions: Sequence[Question],
        retrieved: List[List[RetrievedDocument]],
    ) -> None:
        """Order the documents of each question by the ranker's scores."""
        numbers = [number for number, documents in enumerate(retrieved) if documents]
        to_rank = _with_documents(
            [questions[number] for number in numbers], [retrieved[number] for number in numbers]
        )
        for number, ranking in zip(numbers, ranker.rank_all(to_rank)):
            documents = retrieved[number]
            ordered = []
            for index in ranking.order.tolist():
                score, relevance = float(ranking.scores[index]), float(ranking.relevance[index])
                ordered.append(documents[index]._replace(score=score, relevance=relevance))
            retrieved[number] = ordered


def _with_documents(
    questions: Sequence[Question], retrieved: Sequence[Sequence[RetrievedDocument]]
) -> List[Question]:
    """Questions with documents as their candidates."""
    filled = []
    for question, documents in zip(questions, retrieved):
        candidates = []
        for hit in documents:
            document = hit.document
            candidates.append(Candidate(document.full_text, None, document.id, meta=document.meta))
        filled.append(question._replace(candidates=tuple(candidates)))
    return filled
