"""Rankers with random weights, and a ranking by each engine and precision.

They show which engines work on a machine, and how fast a shape is, without a trained run.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig, EngineConfig
from wqa.engines.choice import choose_engine, packing_obstacle
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import WqaError
from wqa.models import Network, parse_devices
from wqa.systems.load import build_ranker, quantize_network
from wqa.systems.registry import DEFAULT, build_network
from wqa.text import PairInputs, SplitPair, TextInput

#: Number of random pairs that int8 is calibrated on, and their lengths in tokens.
_CALIBRATED, _LENGTHS = 32, (20, 60)


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
