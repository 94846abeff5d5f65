"""What a collection answers: its documents that were read, sentences and spans of them."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from wqa.data import Document, Question
from wqa.inference.ranking import Ranking


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
            before = document.full_text[: answer.start]
            after = document.full_text[answer.end :]
            if len(before) > context:
                before = f"...{before[-context:]}"
            if len(after) > context:
                after = f"{after[:context]}..."
            fields.update(start=answer.start, end=answer.end, before=before, after=after)
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
        """The documents and the first sentences in types of JSON.

        Parameters
        ----------
        top : int
            Greatest number of sentences.
        threshold : float, optional
            Relevance below which the first sentence is no answer; that of a calibrated run by
            default.

        Returns
        -------
        dict
            ``answered`` says whether the first sentence reaches the threshold, None without one.
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
        """The first sentences as texts with metadata, for other libraries.

        Parameters
        ----------
        top : int
            Greatest number of sentences.

        Returns
        -------
        list of tuple of str and dict
            A text, and ``relevance_score``, in [0, 1] and falling, ``source``, the document's id,
            ``title``, ``start``, ``end``, ``before`` and ``after``.
        """
        records = []
        for sentence in self.sentences[:top]:
            document = self.documents[sentence.document].document
            metadata = {"relevance_score": sentence.relevance, "source": document.id}
            metadata["title"] = document.title
            for name in ("start", "end", "before", "after"):
                metadata[name] = getattr(sentence, name)
            records.append((sentence.text, metadata))
        return records
