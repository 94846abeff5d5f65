"""Ranking by DC-BERT (Zhang et al. 2020, section 2): questions and documents are encoded apart.

A question is encoded once for all its documents. A document comes from a cache, by its id and the
digest of its text, or is encoded now, once for all questions of a group. The interaction layers
then rank as a cascade does: in micro-batches of pairs, with drops between exits.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import Question, builtin_path, read_questions
from wqa.engines.engine import Engine
from wqa.engines.inputs import EngineInputs, TextInputs, as_float32, pad_encodings
from wqa.inference.document_cache import DocumentCache, open_cache
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.inference.exit_ranker import CascadeRanker
from wqa.inference.loop import GroupPairs, build_engine, check_ids
from wqa.text import PairInputs, SingleInputs, SplitInputs, SplitPair, TextInput

if TYPE_CHECKING:
    from wqa.engines.onednn.quantize import QuantizedLayers
    from wqa.models import Backbone, Network

#: Texts of the built-in corpus that 8-bit products of a similarity are calibrated on.
_CALIBRATION_TEXTS = 256


class EncodedPair(NamedTuple):
    """Encodings of a question and a document.

    Shapes: `question` (N, C), `document` (M, C).
    """

    question: np.ndarray
    document: np.ndarray

    @property
    def length(self) -> int:
        """Number of rows of both texts."""
        return len(self.question) + len(self.document)


class DecoupledEngineInputs(EngineInputs):
    """Encodings of both texts, of which the heads read the first row each.

    MXNet and ONNX Runtime take them padded apart. oneDNN takes the rows of the question, then those
    of the document: with positions and types in the rows, their order has no effect.
    """

    padded = ("question", "document")

    def __init__(self, network: Any, inputs: Any = None) -> None:
        super().__init__(network, inputs)
        # MXNet warns of traced blocks that ignore an input: the linear variant uses no lengths.
        self.is_traced = network.own_config.interaction != "linear"
        self._join: Any = None

    def blocks(self) -> List[Any]:
        if not self.network.encoder_stages():  # an interaction that is one block
            return [self.network.interaction_path()]
        self._join = self.network.join()
        if self.is_traced:
            self._join.hybridize()
        return self.network.encoder_stages()

    def start(self, *arrays: Any) -> Sequence[Any]:
        return arrays if self._join is None else list(self._join(*arrays))

    def arrays(self, pairs: Sequence[EncodedPair]) -> Dict[str, np.ndarray]:
        arrays = {}
        for name in self.padded:
            rows = [getattr(pair, name) for pair in pairs]
            lengths = np.array([len(own) for own in rows], dtype=np.float32)
            length = self.padded_length(int(lengths.max()))
            arrays.update({name: pad_encodings(rows, length), f"{name}_valid": lengths})
        return arrays

    def read_positions(self, pairs: Sequence[EncodedPair]) -> np.ndarray:
        return np.array([(0, len(pair.question)) for pair in pairs])

    def embed(self, layers: Any, pairs: Sequence[EncodedPair], batch: Any) -> None:
        sums = layers.sums
        for pair, (start, boundary), end in zip(pairs, batch.read_rows, batch.starts[1:]):
            for name, out in (("question", sums[start:boundary]), ("document", sums[boundary:end])):
                rows = getattr(pair, name)
                if rows.dtype == np.uint16:
                    rows = as_float32(rows)
                np.add(rows, self._tables[name][: len(rows)], out=out)
        layers.round_sums(batch)

    def calibration(self, pairs: Sequence[Any]) -> Iterator[Tuple[EngineInputs, Sequence[Any]]]:
        """Both encoders with their texts, then the interaction with the encodings of these."""
        from wqa.models import EncoderNetwork  # needs MXNet

        encoded = []
        for backbone, name in zip(self.network.encoders, ("question", "document")):
            texts = [getattr(pair, name) for pair in pairs]
            distinct = {text.token_ids.tobytes(): text for text in texts}
            yield TextInputs(EncoderNetwork(backbone)), list(distinct.values())
            # oneDNN pads nothing, and so needs no tokenizer.
            longest, config = self.network.config.max_positions, EngineConfig(engine="onednn")
            encoder = DocumentEncoder(backbone, None, longest, config)  # type: ignore[arg-type]
            rows = encoder.encode([text.token_ids for text in distinct.values()])
            by_ids = dict(zip(distinct, rows))
            encoded.append([by_ids[text.token_ids.tobytes()] for text in texts])
        yield self, list(map(EncodedPair, *encoded))

    @functools.cached_property
    def _tables(self) -> Dict[str, np.ndarray]:
        """Rows that are added to those of a question and of a document: position and type."""
        network, own = self.network, self.network.own_config
        if own.interaction != "transformer":
            nothing = np.zeros((network.config.max_positions, 1), np.float32)
            return dict.fromkeys(self.padded, nothing)
        positions = network.position_weight.data().asnumpy()
        types, start = network.type_weight.data().asnumpy(), own.question_length
        first, second = positions[:start] + types[0], positions[start:] + types[1]
        return {"question": first, "document": second}


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
    cache : str, path-like or DocumentCache, optional
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
    engine_inputs = DecoupledEngineInputs

    def __init__(
        self,
        network: Network,
        inputs: PairInputs,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        cache: Any = None,
        **options: Any,
    ) -> None:
        config = engine or EngineConfig(engine="mxnet")
        super().__init__(network, inputs, engine=config, quantized=quantized, **options)
        own = network.own_config
        #: Whether the interaction reads the first encoding of each text alone.
        self.reads_first = own.interaction == "linear"
        self._limits = (own.question_length, network.max_positions)
        depth, most = network.num_layers, network.config.max_positions
        tokenizer = inputs.tokenizer
        encoders: Dict[Backbone, DocumentEncoder] = {}  # of both texts, if they share one
        for index, backbone in enumerate(network.encoders):
            if backbone not in encoders:
                layers = quantized and quantized[index * depth : (index + 1) * depth]
                encoders[backbone] = DocumentEncoder(backbone, tokenizer, most, config, layers)
        both = [encoders[backbone] for backbone in network.encoders]
        self.question_encoder, self.document_encoder = both
        self._cache: Optional[DocumentCache] = None
        if cache is not None:
            self._cache = open_cache(cache)
            made_with = (network.document_encoder, tokenizer, inputs.max_length)
            self._cache.check_made_with(encodings_identity(*made_with))

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Engine:
        return super()._build_engine(quantized and quantized[2 * self.network.num_layers :])

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
            document: Any = cached
            if cached is None:
                document = next(remaining).document
            elif not lacks_rows:
                document = cached._replace(truncated=False)
            pairs.append(SplitPair(encoded[0].question, document))
        return pairs

    def _network_inputs(self, pairs: GroupPairs) -> Tuple[List[Any], List[Tuple[int, int]]]:
        """Encodings of both texts of the pairs that are not blank, each text encoded once."""
        network = self.network
        questions = [pair.question for pair in pairs.all]
        documents = [pair.document for pair in pairs.all]
        for side, limit in zip((questions, documents), self._limits):
            pairs.check_lengths(np.array([text.length for text in side], dtype=int), limit)
            check_ids([text.token_ids for text in side], network.config.vocab_size, pairs.name)
        ranked: List[np.ndarray] = []  # pairs of each question that are not blank
        new: Dict[bytes, TextInput] = {}  # documents to encode, each text once
        encoded = []
        for start, end in pairs.questions():
            non_blank = start + np.flatnonzero(pairs.non_blank[start:end])
            texts = tokens = 0
            if len(non_blank):
                ranked.append(non_blank)
                texts, tokens = 1, questions[non_blank[0]].length
            for pair in non_blank:
                key = documents[pair].token_ids.tobytes()
                if key and key not in new:
                    new[key] = documents[pair]
                    texts, tokens = texts + 1, tokens + documents[pair].length
            encoded.append((texts, tokens))
        firsts = [questions[non_blank[0]] for non_blank in ranked]
        question_rows = self._encode_texts(self.question_encoder, firsts)
        known = dict(zip(new, self._encode_texts(self.document_encoder, list(new.values()))))
        network_inputs = list(pairs.all)
        for non_blank, rows in zip(ranked, question_rows):
            for pair in non_blank:
                document = documents[pair]
                text = known.get(document.token_ids.tobytes())
                if text is None:
                    text = self._read(document.rows)
                network_inputs[pair] = EncodedPair(rows, text)
        return network_inputs, encoded

    def _encode_texts(
        self, encoder: DocumentEncoder, texts: Sequence[TextInput]
    ) -> List[np.ndarray]:
        encodings = encoder.encode([text.token_ids for text in texts])
        return [self._read(rows) for rows in encodings]

    def _read(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a text that the interaction reads."""
        return rows[:1].copy() if self.reads_first else rows


class SimilarityRanker(DecoupledRanker):
    """Ranks by `wqa.systems.dcbert.similarity.SimilarityNetwork`.

    The engine and the precision are those of the encoders. MXNet, or ONNX Runtime for an exported
    network, compares their encodings, in float32. For int8 the encoders are calibrated on the
    built-in corpus.

    Parameters
    ----------
    network : SimilarityNetwork
        Network with its parameters on the engine's device.
    inputs : SplitInputs
        Token ids of both texts apart.
    **options
        Further parameters of `DecoupledRanker`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency, DataError
        As `DecoupledRanker`.
    """

    def __init__(self, network: Network, inputs: SplitInputs, **options: Any) -> None:
        engine = options.get("engine")
        if engine and engine.precision == "int8" and not options.get("quantized"):
            options["quantized"] = _calibrate(network, inputs, engine)
        super().__init__(network, inputs, **options)

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Engine:
        config = dataclasses.replace(self._config, engine="mxnet", precision="float32")
        return build_engine(self.engine_inputs(self.network, self.inputs), config, None)


def _calibrate(network: Network, inputs: SplitInputs, engine: EngineConfig) -> QuantizedLayers:
    """8-bit products of the encoders, once where both texts share one."""
    from wqa.engines.choice import choose_engine
    from wqa.engines.onednn.quantize import quantize_network
    from wqa.models import EncoderNetwork  # these need MXNet

    choose_engine(engine)  # refuses an engine without int8
    texts: List[str] = []
    for question in read_questions(builtin_path("train")):
        texts += [question.question, *question.texts]
    sample = SingleInputs(inputs.tokenizer, inputs.max_length).encode(texts[:_CALIBRATION_TEXTS])
    quantized: QuantizedLayers = []
    for backbone in dict.fromkeys(network.encoders):
        quantized += quantize_network(TextInputs(EncoderNetwork(backbone)), sample)
    return quantized
