"""Corpora of the library `ir_datasets`, by their names after ``ir:``.

``ir:wikir/en1k/test`` is the dataset ``wikir/en1k/test``. Candidates are its ``scoreddocs``, best
first; the label of one is 1 if its relevance in the ``qrels`` is 1 or more, and 0 if it is less or
nobody judged it. A question of which the ``qrels`` hold nothing has candidates without labels.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Dict, Iterator, List, Set, Tuple, Union

from wqa.data.records import Candidate, Question, check_document_ids
from wqa.errors import DataError, MissingDependency, how_to_install, shorten
from wqa.io.progress import note_counts

#: Start of a name.
PREFIX = "ir:"

#: Least relevance of a candidate that answers its question.
LEAST_RELEVANT = 1

_EXAMPLES = "a name of ir_datasets, such as ir:wikir/en1k/test or ir:msmarco-passage/dev/small"


def is_ir_name(path: Union[str, os.PathLike[str]]) -> bool:
    """Whether a corpus is named by `ir_datasets`.

    Parameters
    ----------
    path : str or path-like
        File or name.

    Returns
    -------
    bool
    """
    return isinstance(path, str) and path.startswith(PREFIX)


def read_dataset(name: str, with_candidates: bool = True) -> Iterator[Question]:
    """Read the questions of a dataset.

    Parameters
    ----------
    name : str
        ``ir:`` and the name of the dataset.
    with_candidates : bool
        Whether to read the candidates; questions without any are then left out.

    Yields
    ------
    Question
        Questions in the order of the dataset. Candidates have the dataset's ids of documents.

    Raises
    ------
    DataError
        If the dataset is unknown, cannot be fetched, has no questions or, ``with_candidates``, no
        ``scoreddocs``, or is damaged.
    MissingDependency
        If `ir_datasets` is not installed.
    """
    dataset = _load(name)
    if not dataset.has_queries():
        raise DataError(name, "a dataset without questions", _EXAMPLES, "name one of its parts")
    if with_candidates and not (dataset.has_scoreddocs() and dataset.has_docs()):
        hint = "name another one, or let `wqa retrieve` find candidates in documents"
        raise DataError(name, "a dataset without scoreddocs", "a reranking set", hint)
    with _reading(name):
        queries = list(dataset.queries_iter())
    if not with_candidates:
        for query in queries:
            yield _question(name, query, [])
        return
    with _reading(name):
        ranked, relevant, judged = _ranked(dataset), *_judgements(dataset)
        store = dataset.docs_store()
    queries = [query for query in queries if query.query_id in ranked]
    if not queries:
        raise DataError(name, "none of its questions has a candidate", "a reranking set")
    for query in queries:
        ids = ranked[query.query_id]
        with _reading(name):
            documents = store.get_many(ids)
        candidates = []
        for document_id in ids:
            if document_id not in documents:
                found = f"document {shorten(document_id)} of question {shorten(query.query_id)}"
                raise DataError(name, f"{found} is missing", "a whole dataset", "fetch it again")
            is_relevant = (query.query_id, document_id) in relevant
            label = int(is_relevant) if query.query_id in judged else None
            candidates.append(Candidate(_text(documents[document_id]), label, document_id))
        yield _question(name, query, candidates)


def read_dataset_documents(name: str) -> Iterator[Tuple[str, str]]:
    """Read the documents of a dataset, but for those without text, which a note counts.

    Parameters
    ----------
    name : str
        ``ir:`` and the name of the dataset.

    Yields
    ------
    id : str
        Id of a document.
    text : str
        Its text, with its title where it has one.

    Raises
    ------
    DataError
        If the dataset is unknown, cannot be fetched, has no documents, or is damaged.
    MissingDependency
        If `ir_datasets` is not installed.
    """
    dataset, blank = _load(name), 0
    if not dataset.has_docs():
        raise DataError(name, "a dataset without documents", _EXAMPLES, "name one of its parts")
    with _reading(name):
        for document in dataset.docs_iter():
            text = _text(document)
            if text.strip():
                yield document.doc_id, text
            else:
                blank += 1
    note_counts(name, [(blank, "document", "without text left out")])


def _load(name: str) -> Any:
    try:
        import ir_datasets

        ir_datasets.log.easy().logger().setLevel(logging.WARNING)  # it logs each file that it opens
    except ImportError as error:
        problem, hint = f"ir_datasets cannot be imported ({error})", how_to_install("ir")
        raise MissingDependency(name, problem, "the library that knows this name", hint) from None
    try:
        with _reading(name):
            return ir_datasets.load(name[len(PREFIX) :])
    except KeyError:
        hint = "`ir_datasets list` prints all of them"
        raise DataError(name, "there is no such dataset", _EXAMPLES, hint) from None


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Name the dataset in errors of the library, which fetches files when they are first read."""
    try:
        yield
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        hint = "connect this machine, or copy ~/.ir_datasets (IR_DATASETS_HOME) of one that has it"
        problem, expected = f"cannot be fetched or read ({reason})", "a network, or fetched files"
        raise DataError(name, problem, expected, hint) from None


def _ranked(dataset: Any) -> Dict[str, List[str]]:
    """Ids of the documents of each question, best first; those of one score stay in order."""
    ranked: Dict[str, List[str]] = {}
    for row in sorted(dataset.scoreddocs_iter(), key=lambda row: row.score, reverse=True):
        ranked.setdefault(row.query_id, []).append(row.doc_id)
    return ranked


def _judgements(dataset: Any) -> Tuple[Set[Tuple[str, str]], Set[str]]:
    """Relevant documents with their questions, and the questions that were judged."""
    relevant, judged = set(), set()
    for row in dataset.qrels_iter() if dataset.has_qrels() else ():
        judged.add(row.query_id)
        if row.relevance >= LEAST_RELEVANT:
            relevant.add((row.query_id, row.doc_id))
    return relevant, judged


def _text(record: Any) -> str:
    """Text of a query or a document, whose fields each dataset names."""
    if hasattr(record, "default_text"):
        return record.default_text()
    return record.text


def _question(name: str, query: Any, candidates: List[Candidate]) -> Question:
    question = Question(query.query_id, _text(query), tuple(candidates))
    where = f"{name}, question {shorten(question.id)}"
    if not question.id or not question.question.strip():
        raise DataError(where, "its id or its text is empty", "text")
    check_document_ids(question, where)
    return question
