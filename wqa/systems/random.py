"""Rankers with random weights, for timing shapes without a trained run.

Timing of such a ranker with its documents in a cache, beside others. A ranking by each engine and
precision, to see which of them work on this machine.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.cache.document_cache import DocumentCache, text_digest
from wqa.cache.document_cache_writer import DocumentCacheWriter
from wqa.config import BackboneConfig, EngineConfig
from wqa.engines.choice import packing_obstacle
from wqa.engines.onednn import choose_engine
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import WqaError
from wqa.inference.document_encoder import StoredDocument
from wqa.inference.ensemble import EnsembleRanker
from wqa.inference.ranking import Ranking
from wqa.inference.timing import Rank, Row, time_rankers
from wqa.models import Network, parse_devices
from wqa.systems.load import build_ranker, quantize_network
from wqa.systems.registry import DEFAULT, build_network
from wqa.text import PairInputs, SplitPair, TextInput

#: Number of random pairs that int8 is calibrated on, and their lengths in tokens.
_CALIBRATED, _LENGTHS = 32, (20, 60)
#: Documents of which the cost of a cache is reported.
_COLLECTION = 1000


class _Tokenizer:
    """Replaces a tokenizer where all texts are token ids."""

    padding_id, start_id, separator_id = 0, 1, 2
    pair_form = "roberta"


def random_ranker(
    config: BackboneConfig,
    exits: Sequence[int] = (),
    seed: int = 0,
    system: str = DEFAULT,
    own: Optional[Mapping[str, Any]] = None,
    **options: Any,
) -> Any:
    """Build a ranker with random weights, which ranks tokenized pairs only."""
    mx.random.seed(seed)
    engine = options.get("engine") or EngineConfig(engine="mxnet")
    fields = dict(own or {})
    if exits:
        fields["exits"] = tuple(exits)
    network = build_network(system, config, **fields)
    network.initialize(mx.init.Normal(0.02), ctx=parse_devices(engine.ctx))
    inputs = network.text_inputs(_Tokenizer(), network.max_positions)  # type: ignore[arg-type]
    if engine.precision == "int8":
        options.setdefault("quantized", _quantized(system, network, inputs, engine, seed))
    return build_ranker(system, network, inputs, **options)


def _quantized(
    system: str, network: Network, inputs: PairInputs, engine: EngineConfig, seed: int
) -> Optional[QuantizedLayers]:
    """8-bit products of a network, calibrated on random pairs; None for another engine's."""
    if choose_engine(engine, packing_obstacle(network)) != "onednn":
        return None
    config = network.config
    rng = np.random.default_rng(seed)
    most = network.max_positions or config.max_positions  # of a document, where texts are apart
    shortest, longest = (min(length, most) for length in _LENGTHS)
    if inputs.joins_pairs:
        pairs: List[Any] = random_pairs(rng, _CALIBRATED, shortest, longest, config.vocab_size)
    else:
        lengths = (4, shortest), (shortest, longest)
        [pairs] = random_splits(1, _CALIBRATED, *lengths, config.vocab_size, seed)
    return quantize_network(system, network, inputs.network_inputs(pairs))


def random_ensemble(configs: Sequence[BackboneConfig], seed: int = 0, **options: Any) -> Any:
    """Build an ensemble of rankers with random weights, which ranks tokenized pairs only."""
    rankers = []
    for number, config in enumerate(configs):
        rankers.append(random_ranker(config, seed=seed + number, **options))
    return EnsembleRanker(rankers)


def random_pairs(
    rng: np.random.Generator, count: int, shortest: int, longest: int, vocab_size: int
) -> List[TextInput]:
    """Draw pairs with uniform lengths and token ids."""
    lengths = rng.integers(shortest, longest + 1, count)
    pairs = []
    for length in lengths:
        token_ids = rng.integers(vocab_size, size=length, dtype=np.int32)
        pairs.append(TextInput(token_ids, int(length) // 3, False, False))
    return pairs


def random_questions(
    count: int, candidates: int, lengths: Tuple[int, int], vocab_size: int, seed: int = 0
) -> List[List[TextInput]]:
    """Draw the pairs of several questions."""
    rng = np.random.default_rng(seed)
    return [random_pairs(rng, candidates, *lengths, vocab_size) for _ in range(count)]


def random_splits(
    count: int,
    documents: int,
    question_lengths: Tuple[int, int],
    document_lengths: Tuple[int, int],
    vocab_size: int,
    seed: int = 0,
) -> List[List[SplitPair]]:
    """Draw questions and documents that are encoded apart."""
    rng = np.random.default_rng(seed)
    questions = []
    for _ in range(count):
        [question] = random_pairs(rng, 1, *question_lengths, vocab_size)
        texts = random_pairs(rng, documents, *document_lengths, vocab_size)
        questions.append([SplitPair(question, document) for document in texts])
    return questions


def joined(pair: SplitPair) -> TextInput:
    """The two texts as one input, for a ranker that reads them together."""
    token_ids = np.concatenate([pair.question.token_ids, pair.document.token_ids])
    return TextInput(token_ids, pair.question.length, pair.truncated, pair.empty)


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


#: Engines with the precisions that they may have.
COMBINATIONS = (
    ("mxnet", "float32"),
    ("onednn", "float32"),
    ("onednn", "bfloat16"),
    ("onednn", "int8"),
)

#: An encoder of every kind of layer, at a size that takes milliseconds.
_SMALL = BackboneConfig(
    vocab_size=100, units=32, hidden_size=64, num_layers=2, num_heads=2, max_positions=64
)


def check_engines() -> List[Dict[str, str]]:
    """Rank random pairs by each engine and precision."""
    results = []
    for engine, precision in COMBINATIONS:
        result = {"engine": engine, "precision": precision, "problem": ""}
        try:
            _rank(EngineConfig(engine=engine, precision=precision))
        except WqaError as error:
            result["problem"] = str(error)
        except Exception as error:  # whatever a library that does not fit raises
            text = str(error).strip().partition("\n")[0]
            result["problem"] = f"{type(error).__name__}: {text}"
        results.append(result)
    return results


def _rank(engine: EngineConfig) -> None:
    ranker = random_ranker(_SMALL, exits=(1, 2), engine=engine)
    pairs = random_pairs(np.random.default_rng(0), 4, 8, 24, _SMALL.vocab_size)
    [ranking] = ranker.rank_pairs([pairs])
    if not all(map(math.isfinite, ranking.scores)):
        raise ArithmeticError("a score is not a finite number")
