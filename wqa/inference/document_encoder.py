"""Encodings of single texts, by the layers of one encoder: documents ahead of time, and questions.

The texts are sorted by length and run in micro-batches, by oneDNN on packed rows or by MXNet on
padded ones. An encoding does not depend on the texts beside it but for the rounding of products,
whose kernels depend on the shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.config import BackboneConfig, EngineConfig
from wqa.engines.engine import MXNET_LOCK
from wqa.engines.mxnet import TOKENS, OnMXNet
from wqa.engines.onednn import PackedBatch, PackedLayers, choose_engine, encoding_kind
from wqa.engines.onednn.engine import OnOneDNN
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import InputError, OptionError
from wqa.inference.loop import check_ids, micro_batches
from wqa.models.backbone import Backbone, break_cycles
from wqa.text import TextInput, Tokenizer, bucketed, pad_pairs, plan_batches


class StoredDocument(NamedTuple):
    """A document whose encodings are known, in place of its token ids in a `SplitPair`."""

    rows: np.ndarray  # (length, C)
    truncated: bool
    empty: bool = False

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def token_ids(self) -> np.ndarray:
        """No token ids: nothing is encoded."""
        return np.zeros(0, np.int32)


class DocumentEncoder:
    """Encodes texts apart from one another, by all layers of a backbone."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        max_length: int,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
    ) -> None:
        settings = engine or EngineConfig()
        self.config: BackboneConfig = backbone.config
        if not 1 <= max_length <= self.config.max_positions:
            expected = f"1 to {self.config.max_positions}, the positions of the encoder"
            raise OptionError("max_length", max_length, expected)
        self._max_length = max_length
        if settings.precision == "int8" and quantized is None:
            raise OptionError(
                "precision",
                "int8 of an encoder without calibration",
                "float32 or bfloat16",
                "take one of these",
            )
        self._engine: Any
        if choose_engine(settings) == "onednn":
            with MXNET_LOCK:
                self._engine = _PackedEngine(backbone, settings, max_length, quantized)
        else:
            with MXNET_LOCK:
                self._engine = _PaddedEngine(backbone, settings, tokenizer.padding_id)
        self.kind: str = self._engine.kind

    def encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        """Encode texts.

        Shapes: `token_ids` (tokens,), the result (tokens, C).
        """
        lengths = np.array([len(ids) for ids in token_ids], dtype=np.int64)
        self._check(token_ids, lengths)
        encodings: List[Any] = [None] * len(token_ids)
        for batch in micro_batches(self._engine, lengths):
            rows = self._engine.encode([token_ids[index] for index in batch])
            for index, text_rows in zip(batch, rows):
                encodings[index] = text_rows
        return encodings

    def _check(self, token_ids: Sequence[np.ndarray], lengths: np.ndarray) -> None:
        """Check lengths and token ids, which the engines use as indices."""
        for index in np.flatnonzero((lengths < 1) | (lengths > self._max_length))[:1]:
            found = f"{lengths[index]} tokens"
            raise InputError(f"text {index + 1}", found, f"1 to {self._max_length} tokens")
        check_ids(token_ids, self.config.vocab_size, lambda index: (f"text {index + 1}", ""))


def encodings_identity(backbone: Backbone, tokenizer: Tokenizer, max_length: int) -> Dict[str, Any]:
    """What the encodings of a text depend on, for the settings of a document cache."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(backbone.config)).encode("utf-8"))
    parameters = backbone._collect_params_with_prefix()  # the only names without a counter
    for name in sorted(parameters):
        digest.update(name.encode("utf-8"))
        digest.update(parameters[name].list_data()[0].asnumpy().data)
    return {
        "encoder_sha256": digest.hexdigest(),
        "tokenizer_sha256": tokenizer.fingerprint,
        "max_length": max_length,
        "units": backbone.config.units,
    }


def _inputs(token_ids: Sequence[np.ndarray]) -> List[TextInput]:
    """Texts as inputs of one segment, of token type 0."""
    return [TextInput(ids, len(ids), False, False) for ids in token_ids]


class _PackedEngine(OnOneDNN):
    """oneDNN's layers on packed rows."""

    def __init__(
        self,
        backbone: Backbone,
        config: EngineConfig,
        max_length: int,
        quantized: Optional[QuantizedLayers],
    ) -> None:
        super().__init__()
        self._prepare(config, max_length)
        self.kind = encoding_kind(config.precision)
        layers = list(backbone.layers)
        self._depth = len(layers)
        parts = (backbone.config, backbone.embeddings, layers)
        typed = False  # all tokens have type 0
        self._layers = PackedLayers(*parts, typed, self.kind, self._tokens, quantized)

    def encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        return self._exclusively(self._encode, token_ids)

    def _encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        batch = PackedBatch(np.array([len(ids) for ids in token_ids]))
        self._layers.embed(_inputs(token_ids), batch)
        for index in range(self._depth):
            self._layers.layer(index, batch)
        rows = self._layers.encodings[: batch.tokens].copy()
        return np.split(rows, batch.starts[1:-1])


class _PaddedEngine(OnMXNet):
    """MXNet's hybridized layers on padded rows, in float32."""

    kind = "float32"

    def __init__(self, backbone: Backbone, config: EngineConfig, padding_id: int) -> None:
        super().__init__()
        backbone.apply(break_cycles)
        self._backbone, self._padding_id = backbone, padding_id
        self._tokens = config.batch_tokens or TOKENS
        self._prepare(config, [backbone])

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._tokens)

    def encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        return self._exclusively(self._encode, token_ids)

    def _encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        inputs = _inputs(token_ids)
        longest = max(len(ids) for ids in token_ids)
        length = bucketed(longest, self._backbone.config.max_positions)
        arrays = self._arrays(pad_pairs(inputs, length, self._padding_id, False))
        hidden = self._backbone(*arrays).asnumpy()  # (B, L, C)
        return [rows[: len(ids)].copy() for rows, ids in zip(hidden, token_ids)]
