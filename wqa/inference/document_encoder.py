"""Encodings of single texts, by the layers of one encoder: documents ahead of time, and questions.

The texts are sorted by length and run in micro-batches, by oneDNN on packed rows or by MXNet on
padded ones. An encoding does not depend on the texts beside it but for the rounding of products,
whose kernels depend on the shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

import numpy as np

from wqa.config import BackboneConfig, EngineConfig
from wqa.engines.inputs import TextInputs
from wqa.errors import InputError, check_range
from wqa.inference.loop import build_engine, check_ids, micro_batches
from wqa.text import TextInput, Tokenizer

if TYPE_CHECKING:
    from wqa.engines.onednn.quantize import QuantizedLayers
    from wqa.models import Backbone


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
        self.config: BackboneConfig = backbone.config
        check_range("max_length", max_length, 1, self.config.max_positions)
        self._max_length = max_length
        inputs = TextInputs(_network_of(backbone), tokenizer)
        self._engine = build_engine(inputs, engine or EngineConfig(), quantized)
        self.kind: str = self._engine.kind

    def encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        """Encode texts.

        Shapes: `token_ids` (tokens,), the result (tokens, C).
        """
        lengths = np.array([len(ids) for ids in token_ids], dtype=np.int64)
        self._check(token_ids, lengths)
        store: Dict[int, np.ndarray] = {}
        texts = [TextInput(ids, len(ids), False, False) for ids in token_ids]
        for _ in self._engine.run_all(micro_batches(self._engine, texts, lengths, store)):
            pass
        return [store[number] for number in range(len(token_ids))]

    def _check(self, token_ids: Sequence[np.ndarray], lengths: np.ndarray) -> None:
        """Check lengths and token ids, which the engines use as indices."""
        for index in np.flatnonzero((lengths < 1) | (lengths > self._max_length)):
            expected = f"1 to {self._max_length} tokens"
            raise InputError(f"text {index + 1}", f"{lengths[index]} tokens", expected)
        check_ids(token_ids, self.config.vocab_size, lambda index: (f"text {index + 1}", ""))


def _network_of(backbone: Any) -> Any:
    """The network of an encoder in memory; one in an exported folder is itself a network."""
    if hasattr(backbone, "graphs"):
        return backbone
    from wqa.models import EncoderNetwork  # needs MXNet

    return EncoderNetwork(backbone)


def encodings_identity(backbone: Backbone, tokenizer: Tokenizer, max_length: int) -> Dict[str, Any]:
    """What the encodings of a text depend on, for the settings of a document cache."""
    return {
        "encoder_sha256": encoder_digest(backbone),
        "tokenizer_sha256": tokenizer.fingerprint,
        "max_length": max_length,
        "units": backbone.config.units,
    }


def encoder_digest(backbone: Any) -> str:
    """SHA-256 of an encoder's settings and parameters, which an exported one has recorded."""
    if hasattr(backbone, "sha256"):
        return backbone.sha256
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(backbone.config)).encode("utf-8"))
    parameters = backbone._collect_params_with_prefix()  # the only names without a counter
    for name in sorted(parameters):
        digest.update(name.encode("utf-8"))
        digest.update(parameters[name].list_data()[0].asnumpy().data)
    return digest.hexdigest()
