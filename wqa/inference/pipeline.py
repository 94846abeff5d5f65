"""Answers of questions from a collection of documents.

A retriever finds documents. Then a ranker puts the sentence that answers first: answer sentence
selection (Cascade Transformer, section 1). Or a ranker orders the documents anew, and a reader
takes spans from the first of them: open-domain question answering (Chen et al. 2017; DC-BERT,
section 1).
"""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from wqa.data import Candidate, Document, Question
from wqa.errors import InputError, OptionError, check_range, shorten
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking

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
    exit : int
        Layer at which a cascade last scored it; 0 without a ranker.
    window : list of int or None
        Characters of its text whose score it has, where it was read in windows.
    """

    document: Document
    retrieval_score: float
    score: Optional[float]
    relevance: Optional[float] = None
    exit: int = 0
    window: Optional[List[int]] = None


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

    def to_dict(self, context: int = 60) -> Dict[str, Any]:
        """The answers in types of JSON, with so many characters of the text around each."""
        documents = []
        for rank, entry in enumerate(self.documents, 1):
            fields: Dict[str, Any] = {"rank": rank, "id": entry.document.id}
            score = None if entry.relevance == 0 else entry.score  # a blank document has none
            fields.update(retrieval_score=entry.retrieval_score, score=score)
            documents.append({**fields, "relevance": entry.relevance})
        answers = []
        for answer in self.answers:
            document = self.documents[answer.document].document
            fields = {"text": answer.text, "score": answer.score, "document": document.id}
            text, start, end = document.full_text, answer.start, answer.end
            before = text[:start] if start <= context else f"...{text[start - context : start]}"
            after = text[end:] if len(text) - end <= context else f"{text[end : end + context]}..."
            fields.update(start=start, end=end, before=before, after=after)
            answers.append(fields)
        result = {"id": self.question.id, "question": self.question.question}
        return {**result, "retrieved": self.retrieved, "documents": documents, "answers": answers}


class AnswerSentence(NamedTuple):
    """A sentence that may answer a question.

    Attributes
    ----------
    text : str
        The sentence, its white space collapsed.
    document : int
        Index of its document among those that were retrieved.
    start, end : int
        Characters of the document's ``text`` that it is.
    before, after : str
        The sentence before it and the one behind it in the document; empty where there is none.
    score : float
        Log-odds of the ranker.
    relevance : float
        Relevance, as `wqa.inference.Ranking.relevance`.
    exit : int
        Layer at which a cascade last scored it.
    window : list of int or None
        Characters of ``text`` whose score it has, where it was read in windows.
    """

    text: str
    document: int
    start: int
    end: int
    before: str
    after: str
    score: float = 0.0
    relevance: float = 0.0
    exit: int = 0
    window: Optional[List[int]] = None


class SentenceAnswers(NamedTuple):
    """A question with the sentences that may answer it.

    Attributes
    ----------
    question : Question
        The question, as it was given.
    documents : list of wqa.retrieval.Hit
        The documents that it retrieves, best first.
    sentences : list of AnswerSentence
        All their sentences, best first.
    ranking : Ranking or None
        The ranking, whose candidates are the sentences in the order of the documents; None where
        there is no sentence.
    """

    question: Question
    documents: List[Any]
    sentences: List[AnswerSentence]
    ranking: Optional[Ranking]

    def to_dict(self, top: int, threshold: Optional[float] = None) -> Dict[str, Any]:
        """The documents and the first ``top`` sentences in types of JSON.

        ``answered`` says whether the first sentence reaches the threshold, by default that of a
        calibrated run; None without one.
        """
        documents = []
        for rank, hit in enumerate(self.documents, 1):
            fields = {"rank": rank, "id": hit.document.id, "title": hit.document.title}
            documents.append({**fields, "retrieval_score": hit.score})
        sentences = []
        for rank, sentence in enumerate(self.sentences[:top], 1):
            fields = {"rank": rank, **sentence._asdict()}
            sentences.append({**fields, "document": documents[sentence.document]["id"]})
        result: Dict[str, Any] = {"id": self.question.id, "question": self.question.question}
        result.update(documents=documents, sentences=sentences, ranked=len(self.sentences))
        cost, answered = 0.0, False if self.ranking is None else None
        if self.ranking is not None:
            cost = self.ranking.cost.relative
            threshold = self.ranking.threshold if threshold is None else threshold
            if threshold is not None:
                answered = self.ranking.answered(threshold)
        return {**result, "cost": cost, "threshold": threshold, "answered": answered}

    def records(self, top: int) -> List[Tuple[str, Dict[str, Any]]]:
        """The first ``top`` sentences as texts with metadata, for other libraries.

        The metadata are ``relevance_score``, in [0, 1] and falling, ``source``, the document's id,
        ``title``, ``start``, ``end``, ``before`` and ``after``.
        """
        records = []
        for sentence in self.sentences[:top]:
            document = self.documents[sentence.document].document
            metadata: Dict[str, Any] = {"relevance_score": sentence.relevance}
            metadata.update(source=document.id, title=document.title)
            metadata.update(start=sentence.start, end=sentence.end)
            metadata.update(before=sentence.before, after=sentence.after)
            records.append((sentence.text, metadata))
        return records


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
            check_range(name, value, 1)
        self._index, self._reader, self._ranker = index, reader, ranker
        self._top, self._read = top, read

    def ask(self, question: str) -> SentenceAnswers:
        """Rank the sentences of the documents that a question retrieves, as `ask_all` does.

        Parameters
        ----------
        question : str
            Text of the question.

        Returns
        -------
        SentenceAnswers
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
        InputError
            If a question is empty or too long.
        DataError
            If the index does not hold the sentences of its documents.
        OptionError
            If there is no ranker.
        ScoreError
            If a score is not finite.
        """
        if self._ranker is None:
            raise OptionError("pipeline", "one without a ranker", "one with a ranker of sentences")
        for chunk in _chunks(questions):
            retrieved = self._search(chunk)
            sentences = [sentences_of(self._index, hits) for hits in retrieved]
            candidates = [[Candidate(sentence.text) for sentence in own] for own in sentences]
            rankings = self._rank(chunk, candidates)
            for question, hits, own, ranking in zip(chunk, retrieved, sentences, rankings):
                yield SentenceAnswers(question, hits, in_order(own, ranking), ranking)

    def answer(self, question: str, n_best: int = 1) -> Answered:
        """Answer one question by spans of the documents, as `answer_all` does.

        Parameters
        ----------
        question : str
            Text of the question.
        n_best : int
            Most answers to return.

        Returns
        -------
        Answered
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
        InputError
            If a question is empty or too long.
        OptionError
            If ``n_best`` is below 1, or there is no reader.
        ScoreError
            If a score of a model is not finite.
        """
        if self._reader is None:
            raise OptionError("pipeline", "one without a reader", "one with a reader of spans")
        for chunk in _chunks(questions):
            retrieved = []
            for hits in self._search(chunk):
                retrieved.append([RetrievedDocument(hit.document, hit.score, None) for hit in hits])
            ranked = retrieved
            if self._ranker is not None:
                rankings = self._rank(chunk, list(map(_candidates, retrieved)))
                ranked = list(map(in_order, retrieved, rankings))
            read = [documents[: self._read] for documents in ranked]
            to_read = []
            for question, documents in zip(chunk, read):
                to_read.append(question._replace(candidates=tuple(_candidates(documents))))
            answers = self._reader.read_all(to_read, n_best)
            for question, documents, best, spans in zip(chunk, retrieved, read, answers):
                yield Answered(question, len(documents), best, spans)

    def _search(self, questions: Sequence[Question]) -> List[List[Any]]:
        return [self._index.search(question.question, self._top) for question in questions]

    def _rank(
        self, questions: Sequence[Question], candidates: Sequence[Sequence[Candidate]]
    ) -> List[Optional[Ranking]]:
        """Rankings of the candidates of each question; None where there are none."""
        pairs = zip(questions, map(tuple, candidates))
        to_rank = [question._replace(candidates=own) for question, own in pairs if own]
        rankings = self._ranker.rank_all(to_rank)  # type: ignore[union-attr]
        return [next(rankings) if own else None for own in candidates]


def _chunks(questions: Iterable[Question]) -> Iterator[List[Question]]:
    iterator = iter(questions)
    return iter(lambda: list(itertools.islice(iterator, _CHUNK)), [])


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
