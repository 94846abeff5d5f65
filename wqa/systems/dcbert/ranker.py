"""Ranking by DC-BERT (Zhang et al. 2020, section 2): questions and documents are encoded apart.

A question is encoded once for all its documents. A document comes from a cache, by its id and the
digest of its text, or is encoded now, once for all questions of a group. The interaction layers
then rank as a cascade does: in micro-batches of pairs, with drops between exits.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.cache.document_cache import CachedDocuments
from wqa.config import EngineConfig
from wqa.data import Question
from wqa.engines.engine import Engine
from wqa.engines.mxnet import HybridEngine
from wqa.engines.onednn import PackedBatch, PackedLayers
from wqa.engines.onednn.engine import PackedEngine
from wqa.engines.onednn.library import as_float32, zeros
from wqa.engines.onednn.operations import Norm
from wqa.engines.onednn.pair_rows import PairRows
from wqa.engines.onednn.quantize import STRENGTH, QuantizedLayers, quantize_layers
from wqa.inference.document_encoder import DocumentEncoder, StoredDocument, encodings_identity
from wqa.inference.exit_ranker import CascadeRanker
from wqa.inference.loop import GroupPairs
from wqa.io.files import PathLike
from wqa.models import Backbone, Network
from wqa.text import PairInputs, SplitPair, TextInput, bucketed


class TextRows:
    """Encodings of one text.

    Shapes: `rows` (length, C).
    """

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        #: The rows as an engine joins them, once it has computed them.
        self.joined: Optional[np.ndarray] = None

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.rows)


class EncodedPair(NamedTuple):
    """Encodings of a question and a document."""

    question: TextRows
    document: TextRows
    truncated: bool
    empty: bool

    @property
    def length(self) -> int:
        """Number of rows of both texts."""
        return self.question.length + self.document.length


class DecoupledPackedEngine(PackedEngine):
    """oneDNN's engine on joint sequences: the rows of the question, then those of the document.

    With positions and types in the rows, their order has no effect. The heads read the first row of
    either text. Only the conversion of the question's rows, and the sum with the tables' rows, are
    kept for all its documents. Its keys and values of the first layer would be the same as well: 3
    % of a layer for a question of 18 tokens and documents of 150.
    """

    def __init__(self, network: Any, *arguments: Any, **keywords: Any) -> None:
        super().__init__(network, *arguments, **keywords)
        self._joint = _pair_rows(network, self._layers.kind)

    def _batch(self, pairs: Sequence[EncodedPair]) -> PackedBatch:
        lengths = np.array([pair.length for pair in pairs])
        return PackedBatch(lengths, _read([pair.question.length for pair in pairs]))

    def _begin(self, pairs: Sequence[EncodedPair], batch: PackedBatch) -> None:
        _join(self._joint, self._layers, pairs, batch)


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
            question.joined = zeros(question.rows.shape, layers.kind)
            joint.write(question.rows, 0, question.joined)
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


class DecoupledRanker(CascadeRanker):
    """Ranks by encodings of questions and documents.

    Parameters
    ----------
    network : Network
        `DecoupledTransformer`, or another network with encoders of its own for
        questions and documents, with its parameters on the engine's device.
    inputs : PairInputs
        `wqa.text.SplitInputs`, the token ids of both texts apart.
    engine : EngineConfig, optional
        Engine, precision, device and sizes of the interaction and of the encoders. By default MXNet
        on the CPU.
    quantized : list of dict, optional
        `Quantized` products, for int8: those of the question encoder's layers, of the
        document encoder's, and of the interaction's.
    cache : str, path-like or CachedDocuments, optional
        Document cache of this network's document encoder, as `wqa encode` writes it. Documents that
        it does not hold, or with another text, and candidates without an id, are encoded.
    **options
        Further parameters of `CascadeRanker`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    DataError
        If the cache cannot be read, or was made with other weights, another tokenizer or another
        length.
    """

    takes_cache = True
    engines = (DecoupledHybridEngine, DecoupledPackedEngine)

    def __init__(
        self,
        network: Network,
        inputs: PairInputs,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        cache: Union[PathLike, CachedDocuments, None] = None,
        **options: Any,
    ) -> None:
        config = engine or EngineConfig(engine="mxnet")
        super().__init__(network, inputs, engine=config, quantized=quantized, **options)
        own = network.own_config
        #: Whether the interaction reads the first encoding of each text alone.
        self.reads_first = own.interaction == "linear"
        self._limits = (own.question_length, network.max_positions)
        depth = network.num_layers
        most = network.config.max_positions
        encoders: Dict[Backbone, DocumentEncoder] = {}  # of both texts, if they share one
        for index, backbone in enumerate(network.encoders):
            if backbone not in encoders:
                layers = quantized and quantized[index * depth : (index + 1) * depth]
                encoders[backbone] = DocumentEncoder(
                    backbone, inputs.tokenizer, most, config, layers
                )
        self._text_encoders = [encoders[backbone] for backbone in network.encoders]
        self._cache: Optional[CachedDocuments] = None
        if cache is not None:
            self._cache = CachedDocuments.of(cache)
            backbone = network.document_encoder
            self._cache.open(encodings_identity(backbone, inputs.tokenizer, inputs.max_length))

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Engine:
        return super()._build_engine(quantized and quantized[2 * self.network.num_layers :])

    @staticmethod
    def quantize(
        network: Network, pairs: Sequence[Any], strength: float = STRENGTH
    ) -> QuantizedLayers:
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

    @property
    def question_encoder(self) -> DocumentEncoder:
        """Encoder of questions."""
        return self._text_encoders[0]

    @property
    def document_encoder(self) -> DocumentEncoder:
        """Encoder of documents that are not in the cache."""
        return self._text_encoders[1]

    def _pairs(self, question: Question) -> List[Any]:
        if self._cache is None:
            return super()._pairs(question)
        stored = self._cache.get(question.candidates, 1 if self.reads_first else None)
        texts = [text for text, document in zip(question.texts, stored) if document is None]
        # The question needs a candidate to be encoded.
        encoded = self.inputs.encode(question.question, texts or [""], question.id)
        remaining = iter(encoded)
        # A cache of first rows lacks none of the rows that the linear variant reads.
        lacks_rows = not (self.reads_first and self._cache.tokens)
        pairs = []
        for cached in stored:
            document: Any = None
            if cached is None:
                document = next(remaining).document
            else:
                document = StoredDocument(cached.rows, cached.truncated and lacks_rows)
            pairs.append(SplitPair(encoded[0].question, document))
        return pairs

    def _network_inputs(self, pairs: GroupPairs) -> Tuple[List[Any], List[Tuple[int, int]]]:
        """Encodings of both texts of the pairs that are not blank, each text encoded once."""
        network = self.network
        questions = [pair.question for pair in pairs.all]
        documents = [pair.document for pair in pairs.all]
        for side, limit in zip((questions, documents), self._limits):
            pairs.check_lengths(np.array([text.length for text in side], dtype=int), limit)
            pairs.check_ids([text.token_ids for text in side], network.config.vocab_size)
        ranked: List[Tuple[int, np.ndarray]] = []  # question, its pairs that are not blank
        for index, (start, end) in enumerate(pairs.questions()):
            filled = start + np.flatnonzero(pairs.filled[start:end])
            if len(filled):
                ranked.append((index, filled))
        new: Dict[bytes, TextInput] = {}  # documents to encode, each text once
        encoded = [(0, 0)] * (len(pairs.starts) - 1)
        for index, filled in ranked:
            texts, tokens = 1, questions[filled[0]].length
            for pair in filled:
                key = documents[pair].token_ids.tobytes()
                if key and key not in new:
                    new[key] = documents[pair]
                    texts, tokens = texts + 1, tokens + documents[pair].length
            encoded[index] = (texts, tokens)
        firsts = [questions[filled[0]] for _, filled in ranked]
        question_rows = self._encode_texts(self.question_encoder, firsts)
        known = dict(zip(new, self._encode_texts(self.document_encoder, list(new.values()))))
        network_inputs = list(pairs.all)
        for (_, filled), rows in zip(ranked, question_rows):
            for pair in filled:
                document = documents[pair]
                text = known.get(document.token_ids.tobytes())
                if text is None:
                    text = self._text_rows(document.rows)
                network_inputs[pair] = EncodedPair(rows, text, document.truncated, False)
        return network_inputs, encoded

    def _encode_texts(self, encoder: DocumentEncoder, texts: Sequence[TextInput]) -> List[TextRows]:
        encodings = encoder.encode([text.token_ids for text in texts])
        return [self._text_rows(rows) for rows in encodings]

    def _text_rows(self, rows: np.ndarray) -> TextRows:
        """Rows of a text that the interaction reads."""
        if self.reads_first:
            rows = rows[:1].copy()
        return TextRows(rows)
