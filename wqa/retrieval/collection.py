"""From documents to an index, and from questions to their candidates with distant labels."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Optional

import numpy as np

from wqa.data import Candidate, Document, Question, read_questions, write_questions
from wqa.data.folders import collection_digest, is_collection, read_collection
from wqa.data.ir_names import is_ir_name
from wqa.data.sentences import SentenceSplitter
from wqa.errors import DataError, OptionError
from wqa.io.arrays import ArrayWriter, Output, reusable_folder, write_arrays
from wqa.io.files import PathLike, lock_output, scratch_folder, storage_errors
from wqa.io.progress import with_bar
from wqa.retrieval.index import FORMAT, KIND, TYPES, Index, array_types
from wqa.retrieval.methods import BUCKETS, Method, contains_spans, count_terms, joined, method_of

#: Documents that are read, counted and written at once.
_BLOCK_DOCUMENTS = 1000
#: Ranges of terms, whose postings are sorted one after another: 20 million of Wikipedia's passages.
_RANGES = 64


def build_index(
    documents: PathLike,
    out: PathLike,
    method: str = "bm25",
    progress: bool = False,
    sentences: Optional[bool] = None,
    column: str = "text",
    replace: bool = False,
    **settings: float,
) -> Dict[str, Any]:
    """Index a collection of documents, in memory of 8 bytes a document and some of the postings.

    Counts are written to a temporary folder, 12 bytes for each pair of a term and a document that
    holds it, and sorted by ranges of terms.

    Parameters
    ----------
    documents : str or path-like
        File, folder or table of documents, as `wqa.data.read_collection` reads it.
    out : str or path-like
        Folder to make. A whole index of the same documents and method is kept as it is; any other
        content is refused.
    method : {"bm25", "tfidf"}
        Weights of terms.
    progress : bool
        Show a bar on standard error.
    sentences : bool, optional
        Find the sentences of the documents as well, which `wqa.inference.pipeline` ranks; by
        default those of a folder or a table.
    column : str
        Column of the texts of a table.
    replace : bool
        Replace an index of other documents or settings, once the new one is whole.
    **settings : float
        Settings of the method: ``k1`` and ``b`` of BM25.

    Returns
    -------
    dict
        ``meta.json`` of the index: ``documents``, ``terms``, ``files`` with their sizes, and more.

    Raises
    ------
    DataError
        If the documents cannot be read, none of them has a term, or ``out`` is another index.
    OptionError
        If the method or a setting is wrong, or ``out`` is no folder of an index.
    StorageError
        If it cannot be written, or another process writes it.
    MissingDependency
        If the extra that finds sentences, or reads HTML, is not installed.
    """
    weights = method_of(method, **settings)
    if sentences is None:
        sentences = is_collection(documents)
    splitter = SentenceSplitter() if sentences else None
    with lock_output(out):
        made_with: Dict[str, Any] = {
            "documents_sha256": collection_digest(documents, column),
            "method": method,
            "settings": dataclasses.asdict(weights),
        }
        if splitter is not None:
            made_with["splitter"] = splitter.name
        output, existing = Output(out, FORMAT, KIND, TYPES), None
        try:
            hint = "replace it with --replace, or choose another folder"
            existing = reusable_folder(output, made_with, hint)
        except DataError:
            if not replace:
                raise
        if existing is None:
            with write_arrays(output, array_types(sentences), made_with) as writer:
                read = read_collection(documents, column)
                shown = with_bar(read, None, "indexing", progress, "document")
                writer.finish(_write(writer, shown, documents, weights, splitter))
        return Index(out).meta


def _write(
    writer: ArrayWriter,
    documents: Iterable[Document],
    path: PathLike,
    method: Method,
    splitter: Optional[SentenceSplitter],
) -> Dict[str, int]:
    """Write all arrays; returns the facts of the index."""
    lengths = array.array("q")
    remaining = iter(documents)
    with scratch_folder("index") as folder:
        while block := list(itertools.islice(remaining, _BLOCK_DOCUMENTS)):
            postings = []
            for number, document in enumerate(block, len(lengths)):
                terms, counts = count_terms(document.full_text, method.longest)
                lengths.append(int(counts.sum()))
                columns = [terms, np.full_like(terms, number), counts]
                postings.append(np.array(columns, np.uint32).T)
            _append_by_range(folder, np.concatenate(postings))
            _write_texts(writer, block, splitter)
        if not any(lengths):
            problem = "its documents hold only stop words and punctuation marks"
            raise DataError(path, problem, "words that questions could find")
        _write_postings(writer, folder, method, np.array(lengths, np.float64))
    facts = {"documents": len(lengths), "terms": writer.count("terms")}
    facts["postings"] = writer.count("posting_documents")
    if splitter is not None:
        facts["sentences"] = writer.count("sentence_ends")
    return facts


def _append_by_range(folder: pathlib.Path, postings: np.ndarray) -> None:
    """Append postings to the files of the ranges of their terms.

    Shapes: `postings` (P, 3), a term, a document that holds it, and how often it does.
    """
    ranges = postings[:, 0] // (BUCKETS // _RANGES)
    for number in np.unique(ranges):
        path = folder / f"{number:04d}"
        with storage_errors(path), open(path, "ab") as file:
            postings[ranges == number].tofile(file)


def _write_postings(
    writer: ArrayWriter, folder: pathlib.Path, method: Method, lengths: np.ndarray
) -> None:
    """Write terms and their weights in documents, a range of terms at a time."""
    relative = lengths / lengths.mean()
    for path in sorted(folder.iterdir()):
        postings = np.fromfile(path, np.uint32).reshape(-1, 3)
        # The documents of a term stay in their order.
        order = np.argsort(postings[:, 0], kind="stable")
        terms, documents, counts = postings[order].T
        names, frequencies = np.unique(terms, return_counts=True)
        idf = method.idf(frequencies, len(lengths))
        weights = method.in_documents(counts.astype(float), relative[documents])
        ends = writer.count("posting_documents") + np.cumsum(frequencies)
        writer.append("terms", names)
        writer.append("term_ends", ends)
        writer.append("posting_documents", documents)
        writer.append("posting_weights", weights * np.repeat(idf, frequencies))


def _write_texts(
    writer: ArrayWriter, documents: List[Document], splitter: Optional[SentenceSplitter]
) -> None:
    """Append documents and their sentences."""
    contents = [json.dumps(document, ensure_ascii=False) for document in documents]
    writer.append_texts("document", [content.encode("utf-8") for content in contents])
    if splitter is None:
        return
    spans = [splitter.spans(document.text) for document in documents]
    ends = writer.count("sentence_ends") + np.cumsum(list(map(len, spans)), dtype=np.int64)
    bounds = np.array(list(itertools.chain(*spans)), np.int32).reshape(-1, 2)
    writer.append("document_sentences", ends)
    writer.append("sentence_starts", bounds[:, 0])
    writer.append("sentence_ends", bounds[:, 1])


@contextlib.contextmanager
def open_collection(path: PathLike, progress: bool = False) -> Iterator[Index]:
    """Open an index, or index texts for as long as the block lasts.

    Parameters
    ----------
    path : str or path-like
        Folder that `build_index` wrote, or a folder, a table, JSONL of documents or ``ir:NAME``, as
        `wqa.data.read_collection` reads it.
    progress : bool
        Show bars on standard error.

    Yields
    ------
    Index
        An index with sentences where it was made here. It is deleted at the end of the block.

    Raises
    ------
    DataError
        If the index is damaged, or the documents cannot be read.
    MissingDependency
        If the extra that finds sentences, or reads HTML, is not installed.
    """
    is_index = all(os.path.isfile(os.path.join(path, name)) for name in ("meta.json", "terms.bin"))
    is_read = is_collection(path) or os.path.isfile(path) or is_ir_name(path)
    if is_index or not is_read:
        yield Index(path)
        return
    with scratch_folder("collection") as folder:
        build_index(path, folder / "index", progress=progress, sentences=True)
        yield Index(folder / "index")


#: Documents that a question retrieves by default, as in the paper (section 3).
TOP = 80

#: Documents whose tokens are kept in memory.
_TOKENIZED = 10_000

#: Counts of a retrieval.
COUNTS = ("questions", "candidates", "positives", "without", "missed", "unknown")


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
        for document, *_ in index.search(question.question, top):
            label = int(contains_spans(tokens(document.text), spans)) if spans else None
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
        ``questions``, ``candidates`` and ``positives`` that were written; questions ``without`` a
        document; ``unknown``, those without answers, whose candidates have no labels; ``missed``,
        those with answers that retrieve no document with one.

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
    counts = dict.fromkeys(COUNTS, 0)
    read = read_questions(questions, with_candidates=False)
    retrieved = with_bar(retrieve(Index(index), read, top), None, "retrieving", progress)
    write_questions(out, _counted(retrieved, counts, questions))
    return counts


def _counted(
    questions: Iterable[Question], counts: Dict[str, int], path: PathLike
) -> Iterator[Question]:
    """Questions that retrieve documents, counted."""
    for question in questions:
        positives = sum(label == 1 for label in question.labels)
        if not question.answers:
            counts["unknown"] += 1
        elif not positives:
            counts["missed"] += 1
        if not question.candidates:
            counts["without"] += 1
            continue
        counts["questions"] += 1
        counts["candidates"] += len(question.candidates)
        counts["positives"] += positives
        yield question
    if not counts["questions"]:
        problem = f"none of its {counts['without']} questions retrieves a document"
        hint = "check that they are in the language of the index"
        raise DataError(path, problem, "questions that share words with the documents", hint)
