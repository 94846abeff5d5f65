"""Questions with the documents that they retrieve as candidates, and with distant labels."""

from __future__ import annotations

import functools
import pathlib
from typing import Dict, Iterable, Iterator

from wqa.data import Candidate, Question, read_questions, write_questions
from wqa.errors import DataError, OptionError
from wqa.io.files import PathLike
from wqa.io.progress import with_bar
from wqa.retrieval.index import Index
from wqa.retrieval.methods import contains_spans, joined

#: Documents that a question retrieves by default, as in the paper (section 3).
TOP = 80

#: Documents whose tokens are kept in memory.
_TOKENIZED = 10_000

#: Counts of a retrieval.
COUNTS = ("questions", "candidates", "positives", "without", "missed", "unanswerable", "unknown")


def retrieve(index: Index, questions: Iterable[Question], top: int = TOP) -> Iterator[Question]:
    """Retrieve documents for questions.

    Parameters
    ----------
    index : Index
        Index of the collection.
    questions : iterable of Question
        Questions. Candidates that they have are replaced.
    top : int
        Greatest number of documents a question, from 1.

    Yields
    ------
    Question
        Each question with the documents that it retrieves as candidates, best first, or with none.
        A candidate has the document's id and ``meta`` and, as its text, the document's title and
        text. Its label is 1 if the document's text, without the title, contains one of the
        question's answers exactly (`contains_answer`), 0 if it does not, and None where the answers
        are not known.

    Raises
    ------
    OptionError
        If ``top`` is below 1.
    """
    # Popular documents are candidates of many questions.
    tokens = functools.lru_cache(_TOKENIZED)(joined)
    for question in questions:
        spans = [joined(answer) for answer in question.answers]
        candidates = []
        for hit in index.search(question.question, top):
            label = None
            if spans:
                label = int(contains_spans(tokens(hit.document.text), spans))
            document = hit.document
            candidate = Candidate(document.full_text, label, document.id, meta=document.meta)
            candidates.append(candidate)
        yield question._replace(candidates=tuple(candidates))


def write_retrieved(
    index: PathLike, questions: PathLike, out: PathLike, top: int = TOP, progress: bool = False
) -> Dict[str, int]:
    """Retrieve documents for a file of questions, and write the questions with their candidates.

    Parameters
    ----------
    index : str or path-like
        Index that `build_index` wrote.
    questions : str or path-like
        Canonical JSONL; its questions need no candidates.
    out : str or path-like
        Canonical JSONL to write. Questions that retrieve no document are left out.
    top : int
        Greatest number of documents a question, from 1.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    dict of str to int
        ``questions``, ``candidates`` and ``positives`` that were written; ``without``, questions
        that retrieve no document; ``unknown``, questions without answers, whose candidates have
        no labels; ``missed``, questions with answers for which no document with an answer was
        retrieved; ``unanswerable``, those of them whose answers no document of the collection
        contains.

    Raises
    ------
    DataError
        If a file cannot be read, or no question retrieves a document.
    OptionError
        If ``top`` is below 1, or ``out`` is the file of the questions.
    StorageError
        If ``out`` cannot be written.
    """
    if pathlib.Path(out).resolve() == pathlib.Path(questions).resolve():
        # Questions that retrieve nothing would be lost.
        raise OptionError("out", f"{out}, the file of the questions", "another file")
    opened = Index(index, progress)
    counts = dict.fromkeys(COUNTS, 0)
    read = read_questions(questions, with_candidates=False)
    retrieved = with_bar(retrieve(opened, read, top), None, "retrieving", progress)
    write_questions(out, _counted(retrieved, opened, counts, questions))
    return counts


def _counted(
    questions: Iterable[Question], index: Index, counts: Dict[str, int], path: PathLike
) -> Iterator[Question]:
    """Questions that retrieve documents, counted."""
    for question in questions:
        positives = sum(label == 1 for label in question.labels)
        if not question.answers:
            counts["unknown"] += 1
        elif not positives:
            counts["missed"] += 1
            counts["unanswerable"] += not index.holds_answer(question.answers)
        if not question.candidates:
            counts["without"] += 1
            continue
        counts["questions"] += 1
        counts["candidates"] += len(question.candidates)
        counts["positives"] += positives
        yield question
    if not counts["questions"]:
        raise DataError(
            path,
            f"none of its {counts['without']} questions retrieves a document",
            "questions that share words with the documents",
            "check that they are in the language of the index",
        )
