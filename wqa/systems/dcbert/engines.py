"""Engines of DC-BERT's interaction, on the encodings of questions and documents."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import EngineConfig
from wqa.engines.mxnet import HybridEngine
from wqa.engines.onednn import PackedBatch, PackedLayers
from wqa.engines.onednn.engine import PackedEngine
from wqa.engines.onednn.library import as_float32, zeros
from wqa.engines.onednn.operations import Norm
from wqa.engines.onednn.pair_rows import PairRows
from wqa.engines.onednn.quantize import QuantizedLayers, quantize_layers
from wqa.inference.document_encoder import DocumentEncoder
from wqa.systems.dcbert.ranker import EncodedPair, TextRows
from wqa.text import bucketed


class DecoupledPackedEngine(PackedEngine):
    """oneDNN's engine on joint sequences: the rows of the question, then those of the document.

    With positions and types in the rows, their order has no effect. The heads read the first row of
    either text. Only the conversion of the question's rows, and the sum with the tables' rows, are
    kept for all its documents. Its keys and values of the first layer would be the same as well: 3
    % of a layer for a question of 18 tokens and documents of 150.
    """

    def __init__(self, network: Any, *arguments: Any, **keywords: Any) -> None:
        super().__init__(network, *arguments, **keywords)
        self._joint: Dict[PackedLayers, PairRows] = {}  # with buffers, as the layers
        for layers in self._streams.all:
            self._joint[layers] = _pair_rows(network, layers.kind)

    def _batch(self, pairs: Sequence[EncodedPair]) -> PackedBatch:
        lengths = np.array([pair.length for pair in pairs])
        return PackedBatch(lengths, _read([pair.question.length for pair in pairs]))

    def _begin(
        self, layers: PackedLayers, pairs: Sequence[EncodedPair], batch: PackedBatch
    ) -> None:
        _join(self._joint[layers], layers, pairs, batch)


def quantize_interaction(
    network: Any, pairs: Sequence[EncodedPair], strength: float
) -> QuantizedLayers:
    """Quantize the products of a network's interaction layers."""
    layers = [layer for stage in network.encoder_stages() for layer in stage.layers]
    if not layers:
        return []
    joint = _pair_rows(network, "float32")

    def begin(packed: PackedLayers, some: Sequence[EncodedPair], batch: PackedBatch) -> None:
        lengths = [pair.question.length for pair in some]
        _join(joint, packed, some, PackedBatch(batch.lengths, _read(lengths)))

    return quantize_layers(network.config, None, layers, pairs, strength, begin=begin)


def _read(question_lengths: Sequence[int]) -> np.ndarray:
    """Positions that heads read: the first row of the question and that of the document."""
    return np.array([(0, length) for length in question_lengths])


def _join(
    joint: PairRows, layers: PackedLayers, pairs: Sequence[EncodedPair], batch: PackedBatch
) -> None:
    """Set the current encodings: the rows of the question, then those of the document."""
    encodings = layers.encodings
    for pair, (start, boundary), end in zip(pairs, batch.read_rows, batch.starts[1:]):
        question = pair.question
        if question.joined is None:
            joined = zeros(question.rows.shape, layers.kind)
            joint.write(question.rows, 0, joined)
            question.joined = joined  # when it is whole, as other threads read it
        encodings[start:boundary] = question.joined
        joint.write(pair.document.rows, 1, encodings[boundary:end])


def _pair_rows(network: Any, kind: str) -> PairRows:
    norm = None if network.norm is None else Norm.of(network.norm)
    units, epsilon = network.config.units, network.config.layer_norm_eps
    return PairRows(_tables(network), kind, units, norm, epsilon)


def _tables(network: Any) -> List[Optional[np.ndarray]]:
    """Rows that are added to a question and to a document: position and type."""
    own = network.own_config
    if own.interaction != "transformer":
        return [None, None]
    positions = network.position_weight.data().asnumpy()
    types = network.type_weight.data().asnumpy()
    start = own.question_length
    return [positions[:start] + types[0], positions[start:] + types[1]]


class DecoupledHybridEngine(HybridEngine):
    """MXNet's engine on the encodings of questions and documents, padded apart."""

    _join: Optional[HybridBlock] = None

    def _blocks(self) -> List[HybridBlock]:
        network: Any = self._network
        stages = network.encoder_stages()
        if not stages:  # an interaction that is one block
            return [network.interaction_path()]
        self._join = network.join()
        return stages

    def _hybridize(self) -> None:
        network: Any = self._network
        # The linear variant uses no lengths: MXNet warns of traced blocks that ignore an input.
        if network.own_config.interaction == "linear":
            return
        super()._hybridize()
        if self._join is not None:
            self._join.hybridize()

    def _begin(self, pairs: Sequence[EncodedPair]) -> Tuple[List[mx.nd.NDArray], int]:
        questions = _padded([pair.question for pair in pairs])
        documents = _padded([pair.document for pair in pairs])
        length = questions[0].shape[1] + documents[0].shape[1]
        inputs = self._arrays((*questions, *documents))
        if self._join is not None:
            inputs = list(self._join(*inputs))
        return inputs, length

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1)  # an interaction that is one block scores in a column


def _padded(texts: Sequence[TextRows]) -> Tuple[np.ndarray, np.ndarray]:
    """Encodings of texts in one array, (B, length, C), and their lengths, (B,)."""
    lengths = np.array([text.length for text in texts], dtype=np.float32)
    longest = int(lengths.max())
    out = np.zeros((len(texts), bucketed(longest), texts[0].rows.shape[1]), np.float32)
    for row, text in zip(out, texts):
        values = text.rows
        if values.dtype == np.uint16:
            values = as_float32(values)
        row[: text.length] = values
    return out, lengths


def quantize_decoupled(network: Any, pairs: Sequence[Any], strength: float) -> QuantizedLayers:
    """Quantize the products of both encoders' layers, then those of the interaction's."""
    questions = {pair.question.token_ids.tobytes(): pair.question for pair in pairs}
    documents = {pair.document.token_ids.tobytes(): pair.document for pair in pairs}
    quantized: QuantizedLayers = []
    rows: List[Dict[bytes, TextRows]] = []
    for backbone, texts in zip(network.encoders, (questions, documents)):
        layers, token_inputs = list(backbone.layers), list(texts.values())
        quantized += quantize_layers(
            network.config, backbone.embeddings, layers, token_inputs, strength
        )
        ids = [text.token_ids for text in token_inputs]
        # oneDNN pads nothing, and so needs no tokenizer.
        by_onednn = EngineConfig(engine="onednn")
        most = network.config.max_positions
        encoder = DocumentEncoder(backbone, None, most, by_onednn)  # type: ignore[arg-type]
        rows.append(dict(zip(texts, map(TextRows, encoder.encode(ids)))))
    joint = []
    for pair in pairs:
        question = rows[0][pair.question.token_ids.tobytes()]
        document = rows[1][pair.document.token_ids.tobytes()]
        joint.append(EncodedPair(question, document, False, False))
    return quantized + quantize_interaction(network, joint, strength)
