"""Rankers with random weights, for recipes and tests.

They show how fast a shape is without a trained run.
"""

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

# isort: split
import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.engines.choice import choose_engine, packing_obstacle
from wqa.models import parse_devices
from wqa.systems.load import build_ranker
from wqa.systems.quantize import quantize_network
from wqa.systems.registry import DEFAULT, build_network
from wqa.text import SplitPair, TextInput

#: Number of random pairs that int8 is calibrated on, and their lengths in tokens.
_CALIBRATED, _LENGTHS = 32, (20, 60)


class _Tokenizer:
    """Replaces a tokenizer where all texts are token ids."""

    padding_id, start_id, separator_id = 0, 1, 2
    pair_form = "roberta"


def random_ranker(config, exits=(), seed=0, system=DEFAULT, own=None, **options):
    """Build a ranker with random weights, which ranks tokenized pairs only."""
    mx.random.seed(seed)
    engine = options.get("engine") or EngineConfig(engine="mxnet")
    fields = dict(own or {})
    if exits:
        fields["exits"] = tuple(exits)
    network = build_network(system, config, **fields)
    network.initialize(mx.init.Normal(0.02), ctx=parse_devices(engine.ctx))
    inputs = network.text_inputs(_Tokenizer(), network.max_positions)
    if engine.precision == "int8":
        options.setdefault("quantized", _quantized(system, network, inputs, engine, seed))
    return build_ranker(system, network, inputs, **options)


def _quantized(system, network, inputs, engine, seed):
    """8-bit products of a network, calibrated on random pairs; None for another engine's."""
    if choose_engine(engine, packing_obstacle(network)) != "onednn":
        return None
    config = network.config
    rng = np.random.default_rng(seed)
    most = network.max_positions or config.max_positions  # of a document, where texts are apart
    shortest, longest = (min(length, most) for length in _LENGTHS)
    if inputs.joins_pairs:
        pairs = random_pairs(rng, _CALIBRATED, shortest, longest, config.vocab_size)
    else:
        lengths = (4, shortest), (shortest, longest)
        [pairs] = random_splits(1, _CALIBRATED, *lengths, config.vocab_size, seed)
    return quantize_network(system, network, inputs.network_inputs(pairs))


def random_pairs(rng, count, shortest, longest, vocab_size):
    """Draw pairs with uniform lengths and token ids."""
    lengths = rng.integers(shortest, longest + 1, count)
    pairs = []
    for length in lengths:
        token_ids = rng.integers(vocab_size, size=length, dtype=np.int32)
        pairs.append(TextInput(token_ids, int(length) // 3, False, False))
    return pairs


def random_splits(count, documents, question_lengths, document_lengths, vocab_size, seed=0):
    """Draw questions and documents that are encoded apart."""
    rng = np.random.default_rng(seed)
    questions = []
    for _ in range(count):
        [question] = random_pairs(rng, 1, *question_lengths, vocab_size)
        texts = random_pairs(rng, documents, *document_lengths, vocab_size)
        questions.append([SplitPair(question, document) for document in texts])
    return questions


def joined(pair):
    """The two texts as one input, for a ranker that reads them together."""
    token_ids = np.concatenate([pair.question.token_ids, pair.document.token_ids])
    return TextInput(token_ids, pair.question.length, pair.truncated, pair.empty)
