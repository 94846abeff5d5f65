"""Engines of single texts: oneDNN's layers on packed rows, and MXNet's on padded ones."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import MXNET_LOCK
from wqa.engines.mxnet import TOKENS, OnMXNet
from wqa.engines.onednn import PackedBatch, PackedLayers, choose_engine, encoding_kind
from wqa.engines.onednn.engine import OnOneDNN
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.models.backbone import Backbone
from wqa.models.embeddings import break_cycles
from wqa.text import TextInput, Tokenizer, bucketed, pad_pairs, plan_batches

#: Token ids of the texts of a micro-batch.
Texts = Sequence[np.ndarray]


def build_text_engine(
    backbone: Backbone,
    tokenizer: Tokenizer,
    max_length: int,
    config: EngineConfig,
    quantized: Optional[QuantizedLayers],
) -> Any:
    """Build the engine of an encoder in memory."""
    chosen = choose_engine(config)
    with MXNET_LOCK:
        if chosen == "onednn":
            return _PackedEngine(backbone, config, max_length, quantized)
        return _PaddedEngine(backbone, config, tokenizer.padding_id)


def _inputs(token_ids: Texts) -> List[TextInput]:
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
        self._set_layers(PackedLayers(*parts, typed, self.kind, self._tokens, quantized))

    def encode_all(self, batches: Sequence[Texts]) -> List[List[np.ndarray]]:
        return self._exclusively(self._streams.map, self._encode, batches)

    def _encode(self, layers: PackedLayers, token_ids: Texts) -> List[np.ndarray]:
        batch = PackedBatch(np.array([len(ids) for ids in token_ids]))
        layers.embed(_inputs(token_ids), batch)
        for index in range(self._depth):
            layers.layer(index, batch)
        rows = layers.encodings[: batch.tokens].copy()
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

    def encode_all(self, batches: Sequence[Texts]) -> List[List[np.ndarray]]:
        return [self._exclusively(self._encode, token_ids) for token_ids in batches]

    def _encode(self, token_ids: Texts) -> List[np.ndarray]:
        inputs = _inputs(token_ids)
        longest = max(len(ids) for ids in token_ids)
        length = bucketed(longest, self._backbone.config.max_positions)
        arrays = self._arrays(pad_pairs(inputs, length, self._padding_id, False))
        hidden = self._backbone(*arrays).asnumpy()  # (B, L, C)
        return [rows[: len(ids)].copy() for rows, ids in zip(hidden, token_ids)]
