"""Scores of a ranker for all candidates of a corpus, computed once, for the training of others.

The questions are ranked in chunks that depend on the corpus alone, and a folder of scores is
committed after each of them. So the scores of a command that was stopped and continued are, to the
bit, those of one that was not. Memory holds one chunk.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple, Union

import numpy as np

from wqa.data import FILTERS, Question, read_questions
from wqa.data.array_writer import ArrayWriter
from wqa.data.arrays import reusable_folder
from wqa.data.cached_documents import CachedDocuments
from wqa.data.digests import ranker_digest
from wqa.data.files import PathLike
from wqa.data.filters import filter_rule, known_labels
from wqa.data.formats import data_digest
from wqa.data.locks import lock_output
from wqa.data.progress import progress_bar
from wqa.data.scores import COUNTS, FORMAT, TYPES, CandidateScores, StoredScores, candidate_keys
from wqa.errors import DataError
from wqa.inference.load import load_ranker
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking, question_name
from wqa.text import PreparedQuestions, naming_file

#: Candidates after which a chunk ends.
CHUNK_CANDIDATES = 4096

#: Progress of a command that starts: the questions that were read, and the counts of the folder.
_START = {"read": 0, **dict.fromkeys(COUNTS, 0)}


class _Chunk(NamedTuple):
    """Scores of the candidates of consecutive questions."""

    keys: np.ndarray
    scores: np.ndarray
    counts: Dict[str, int]  # by the names of `_START`


def write_scores(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    out: PathLike,
    filter: str = "all",
    progress: bool = False,
    **options: Any,
) -> Dict[str, Any]:
    """Score the candidates of a corpus, and write the scores to a folder.

    A command that was stopped is continued.

    Parameters
    ----------
    run : str or path-like
        Ranker, as `wqa.inference.load_ranker` takes it.
    data : str or path-like
        Questions with their candidates, canonical JSONL. Labels are read by the filter alone.
    out : str or path-like
        Folder to make. A whole folder of the same ranker, questions and options is kept as it is;
        any other content is refused.
    filter : {"all", "no-all-negative", "clean"}
        Questions to score.
    progress : bool
        Show a bar on standard error.
    **options
        Keywords of `wqa.inference.load_ranker`, such as ``precision`` and ``long_questions``.

    Returns
    -------
    dict
        ``meta.json`` of the folder: ``questions``, ``pairs``, ``blank``, ``truncated_questions``,
        ``skipped_questions``, ``ranker_sha256``, and more.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read, a question cannot be ranked, or ``out`` is a
        folder of other scores, cannot be written, or another process writes it.
    """
    filter_rule(filter)
    with lock_output(out):
        ranker = load_ranker(run, **options)
        precision = options.get("precision", "float32")
        made_with = {
            "data_sha256": data_digest(data),
            "filter": filter,
            "long_questions": options.get("long_questions", "error"),
            "system": ranker.capabilities.system,
            "precision": precision,
            "ranker_sha256": ranker_digest(run, precision),
        }
        if options.get("cache") is not None:
            made_with["document_cache"] = str(CachedDocuments.of(options["cache"]).path)
        if reusable_folder(out, FORMAT, "folder of scores", made_with) is not None:
            return StoredScores(out).meta
        total = _check_questions(ranker, data, filter)
        with ArrayWriter(out, FORMAT, TYPES, made_with) as writer:
            if not _can_continue(writer):
                writer.restart()
                writer.progress = dict(_START)
            start = writer.progress["read"]
            chunks = _score(ranker, data, filter, start)
            for chunk in _with_bar(chunks, total, start, progress):
                writer.append("keys", chunk.keys)
                writer.append("scores", chunk.scores)
                for name, count in chunk.counts.items():
                    writer.progress[name] += count
                writer.commit()
            counts = {name: writer.progress[name] for name in COUNTS}
            writer.finish({**counts, "run": str(run)})
        return StoredScores(out).meta


def score_in_memory(
    run: Union[str, os.PathLike[str]],
    data: PathLike,
    filter: str = "all",
    progress: bool = False,
    **options: Any,
) -> CandidateScores:
    """Score the candidates of a corpus.

    Parameters
    ----------
    run, data, filter, progress
        As `write_scores` takes them.
    **options
        Keywords of `wqa.inference.load_ranker`.

    Returns
    -------
    CandidateScores
        The scores, to the bit those that `write_scores` writes.

    Raises
    ------
    WqaError
        If the ranker or the questions cannot be read, or a question cannot be ranked.
    """
    filter_rule(filter)
    ranker = load_ranker(run, **options)
    total = _check_questions(ranker, data, filter)
    chunks = list(_with_bar(_score(ranker, data, filter), total, 0, progress))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    scores = np.concatenate([chunk.scores for chunk in chunks])
    return CandidateScores(keys, scores)


def _check_questions(ranker: Ranker, data: PathLike, filter: str) -> int:
    """Number of questions; what cannot be read or ranked is an error now, not hours later."""
    total = kept = 0
    for read, questions in _chunks(data, filter):
        total += read
        with naming_file(data):
            kept += len(_prepare(ranker, questions).questions)
    if not kept:
        raise DataError(data, "no question is left to score", "at least one", "check the options")
    return total


def _can_continue(writer: ArrayWriter) -> bool:
    """Whether the arrays hold what the progress of a command that was stopped says."""
    progress = writer.progress
    if set(progress) != set(_START):
        return False
    if any(type(count) is not int or count < 0 for count in progress.values()):
        return False
    if progress["questions"] + progress["skipped_questions"] > progress["read"]:
        return False
    return progress["pairs"] == writer.count("keys") == writer.count("scores")


def _with_bar(chunks: Iterable[_Chunk], total: int, start: int, progress: bool) -> Iterator[_Chunk]:
    """Chunks, with a bar of the questions that were read."""
    with progress_bar(total, "scoring", "question", progress, start) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(chunk.counts["read"])


def _score(ranker: Ranker, data: PathLike, filter: str, start: int = 0) -> Iterator[_Chunk]:
    """Scores of the questions from a line of a corpus on, chunk by chunk."""
    for read, questions in _chunks(data, filter, start):
        yield _score_chunk(ranker, questions, read, data)


def _chunks(data: PathLike, filter: str, start: int = 0) -> Iterator[Tuple[int, List[Question]]]:
    """Questions of each chunk that pass the filter, after the number of those that were read."""
    waiting: List[Question] = []
    read = candidates = 0
    for question in itertools.islice(read_questions(data), start, None):
        read += 1
        with naming_file(data):
            passes = _passes(question, filter)
        if passes:
            waiting.append(question)
            candidates += len(question.candidates)
        if candidates >= CHUNK_CANDIDATES:
            yield read, waiting
            waiting, read, candidates = [], 0, 0
    if read:
        yield read, waiting


def _passes(question: Question, filter: str) -> bool:
    if filter != "all":
        known_labels(question)  # a filter takes a candidate without a label for neither kind
    return FILTERS[filter](question)


def _score_chunk(ranker: Ranker, questions: List[Question], read: int, data: PathLike) -> _Chunk:
    keys = [np.zeros(0, TYPES["keys"])]
    scores = [np.zeros(0, TYPES["scores"])]
    blank = 0
    with naming_file(data):
        prepared = _prepare(ranker, questions)
        # A list gives the same groups of questions each time, and so the same bits.
        for question, ranking in zip(prepared.questions, ranker.rank_all(prepared.questions)):
            _check_count(question, ranking)
            keys.append(candidate_keys(question))
            scores.append(np.asarray(ranking.scores, TYPES["scores"]))
            blank += int(np.count_nonzero(ranking.blank))
    counts = {
        "read": read,
        "questions": len(prepared.questions),
        "pairs": sum(map(len, keys)),
        "blank": blank,
        "truncated_questions": prepared.truncated,
        "skipped_questions": prepared.skipped,
    }
    return _Chunk(np.concatenate(keys), np.concatenate(scores), counts)


def _check_count(question: Question, ranking: Ranking) -> None:
    if len(ranking.scores) != len(question.candidates):
        raise DataError(
            question_name(question),
            f"{len(ranking.scores)} scores",
            f"one for each of its {len(question.candidates)} candidates",
            "mend the ranker",
        )


def _prepare(ranker: Ranker, questions: List[Question]) -> PreparedQuestions:
    """Apply the rule for over-long questions, of which a chunk may consist."""
    if not questions:
        return PreparedQuestions([])
    try:
        return ranker.prepare(questions)
    except DataError:  # the ranker skips them all
        return PreparedQuestions([], 0, len(questions))
