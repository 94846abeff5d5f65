"""Timing of a ranker that encodes documents ahead of time, beside others, on random texts."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

import numpy as np

from wqa.cache.document_cache import DocumentCache, text_digest
from wqa.cache.document_cache_writer import DocumentCacheWriter
from wqa.inference.document_encoder import StoredDocument
from wqa.inference.ranking import Ranking
from wqa.inference.timing import Rank, Row, time_rankers
from wqa.text import SplitPair

#: Documents of which the cost of a cache is reported.
_COLLECTION = 1000


class CachedTimes(NamedTuple):
    """Times of a ranker with and without a cache, and of others."""

    rows: List[Row]
    parts: Dict[str, float]
    paid_after: Dict[str, int]

    def text(self) -> str:
        """The parts and the questions after which a cache has paid for itself, in lines."""
        parts = self.parts
        lines = [
            f"ms a question with the cache: {parts['encode_question']:.1f} to encode it, "
            f"{parts['read_documents']:.1f} to read its documents, "
            f"{parts['interaction']:.1f} for the rest",
            f"encoding costs {parts['encode_document']:.2f} ms a document",
        ]
        for name, questions in self.paid_after.items():
            lines.append(
                f"a cache of {_COLLECTION:,} documents has paid for itself after {questions:,} "
                f"questions, in place of: {name}"
            )
        return "\n".join(lines)


def time_cached(
    name: str,
    ranker: Any,
    questions: Sequence[Sequence[SplitPair]],
    beside: Mapping[str, Rank],
    rounds: int = 5,
    progress: bool = False,
) -> CachedTimes:
    """Time a ranker with its documents in a cache on disk, without a cache, and others."""
    ids: List[List[str]] = []
    for number, pairs in enumerate(questions):
        ids.append([f"{number}-{document}" for document in range(len(pairs))])
    with tempfile.TemporaryDirectory(prefix="wqa-bench-") as folder:
        path = f"{folder}/cache"
        encoding = _write(path, ranker, questions, ids)
        cache = DocumentCache(path)
        tokens = 1 if ranker.reads_first else None

        def read(number: int) -> List[np.ndarray]:
            digests = [text_digest(id) for id in ids[number]]
            return cache.get_many(ids[number], digests, tokens)  # type: ignore[return-value]

        def cached(group: Sequence[Any]) -> List[Ranking]:
            stored = []
            for number, pairs in enumerate(group):
                rows = read(number)
                stored.append([_stored(pair, row) for pair, row in zip(pairs, rows)])
            return ranker.rank_pairs(stored)

        with_cache, without = f"{name}, cached", f"{name}, not cached"
        ranks = {with_cache: cached, without: ranker.rank_pairs, **beside}
        rows = time_rankers(ranks, questions, rounds, progress)
        reading = _seconds(lambda: _read_all(read, len(questions)), rounds)
        ids_of_questions = [pairs[0].question.token_ids for pairs in questions]
        question = _seconds(lambda: ranker.question_encoder.encode(ids_of_questions), rounds)
    count = len(questions)
    for row in rows:
        row["questions_per_second"] = count / row["seconds"]
    total = rows[0]["seconds"]
    parts = {
        "encode_question": 1e3 * question / count,
        "read_documents": 1e3 * reading / count,
        "interaction": 1e3 * max(total - question - reading, 0.0) / count,
        "encode_document": 1e3 * encoding,
    }
    paid_after = {}
    for row in rows[1:]:
        saved = (row["seconds"] - total) / count
        if saved > 0:
            paid_after[row["ranker"]] = math.ceil(_COLLECTION * encoding / saved)
    return CachedTimes(rows, parts, paid_after)


def _stored(pair: SplitPair, rows: np.ndarray) -> Any:
    return SplitPair(pair.question, StoredDocument(rows, False))  # type: ignore[arg-type]


def _write(
    path: str,
    ranker: Any,
    questions: Sequence[Sequence[SplitPair]],
    ids: Sequence[Sequence[str]],
) -> float:
    """Encode all documents into a new cache; returns the seconds of encoding a document."""
    settings = {"units": ranker.network.config.units, "store": "float16", "tokens": 0}
    seconds = documents = 0.0
    with DocumentCacheWriter(path, settings) as writer:
        warm = [questions[0][0].document.token_ids]
        ranker.document_encoder.encode(warm)
        for pairs, names in zip(questions, ids):
            begin = time.perf_counter()
            encodings = ranker.document_encoder.encode([pair.document.token_ids for pair in pairs])
            seconds += time.perf_counter() - begin
            documents += len(pairs)
            for name, rows in zip(names, encodings):
                writer.put(name, text_digest(name), rows)
        writer.commit()
    return seconds / documents


def _read_all(read: Callable[[int], List[np.ndarray]], questions: int) -> None:
    """Read the documents of all questions, each number of them."""
    for number in range(questions):
        for rows in read(number):
            np.add.reduce(rows.view(np.uint16).ravel()[::32])  # touches each line of the cache


def _seconds(function: Callable[[], Any], rounds: int) -> float:
    """Median seconds of a call, after one to warm up."""
    function()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
