"""How engines read the encodings of questions and documents, which they join to one sequence."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.inputs import EngineInputs, TextInputs, as_float32, pad_encodings
from wqa.inference.document_encoder import DocumentEncoder


class EncodedPair(NamedTuple):
    """Encodings of a question and a document.

    Shapes: `question` (N, C), `document` (M, C).
    """

    question: np.ndarray
    document: np.ndarray
    truncated: bool
    empty: bool

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
        joint = []
        for question, document in zip(*encoded):
            joint.append(EncodedPair(question, document, truncated=False, empty=False))
        yield self, joint

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
