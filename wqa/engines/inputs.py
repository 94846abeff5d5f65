"""How engines read the inputs of a network. Nothing here needs MXNet."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from wqa.config import PAIR_FORMS
from wqa.text import bucketed, pad_pairs
from wqa.text.batching import pad_rows


class EngineInputs:
    """Pairs of texts as the engines read them: one sequence each, whose first position heads read.

    A system whose inputs are others gives its ranker a subclass, as ``engine_inputs``. MXNet and
    ONNX Runtime take padded arrays, oneDNN packed rows.

    Parameters
    ----------
    network : Network or ExportedNetwork
        Network of the system.
    inputs : PairInputs, optional
        Token ids of questions and candidates; None where nothing is padded.
    """

    #: Arrays whose second axis is one of positions.
    padded: Tuple[str, ...] = ("token_ids",)
    #: Whether MXNet traces the blocks.
    is_traced = True

    def __init__(self, network: Any, inputs: Any = None) -> None:
        self.network, self.inputs = network, inputs
        self.is_exported = hasattr(network, "graphs")

    @property
    def typed(self) -> bool:
        """Whether pairs have token types."""
        of_pairs = self.network.config if self.inputs is None else self.inputs.tokenizer
        return PAIR_FORMS[of_pairs.pair_form].typed

    def blocks(self) -> List[Any]:
        """Stages of the network as blocks that MXNet runs."""
        return self.network.stages()

    def start(self, *arrays: Any) -> Sequence[Any]:
        """Inputs of the first stage from MXNet's arrays of `arrays`."""
        return arrays

    def arrays(self, pairs: Sequence[Any]) -> Dict[str, np.ndarray]:
        """Padded arrays of a micro-batch by the names of the network's inputs, in their order."""
        most = 0 if self.is_exported else self.network.max_positions
        return dict(zip(self.inputs.names, self.inputs.pad(pairs, most)))

    def positions(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Positions of each pair in padded arrays, padding included."""
        return sum(arrays[name].shape[1] for name in self.padded)

    def padded_length(self, longest: int) -> int:
        """Positions of padded encodings: of few lengths where MXNet allocates memory for each."""
        if self.is_exported:
            return longest
        config = self.network.config
        return bucketed(longest, config and config.max_positions)

    def read_positions(self, pairs: Sequence[Any]) -> Optional[np.ndarray]:
        """Positions that heads read, (pairs, n), -1 where one is absent; None for the first."""
        return None

    def embed(self, layers: Any, pairs: Sequence[Any], batch: Any) -> None:
        """Set the first encodings of a micro-batch, a `PackedBatch`, of oneDNN's `PackedLayers`."""
        layers.embed(pairs, batch)

    def calibration(self, pairs: Sequence[Any]) -> Iterator[Tuple[EngineInputs, Sequence[Any]]]:
        """What to calibrate 8-bit products on: the networks in their order, with their pairs."""
        yield self, pairs


class TextInputs(EngineInputs):
    """Single texts of token type 0, for the encoder of a `wqa.models.EncoderNetwork`.

    Parameters
    ----------
    network : EncoderNetwork or ExportedEncoder
        Network of the encoder.
    tokenizer : Tokenizer
        Tokenizer of the encoder; it is not read where nothing is padded.
    """

    typed = False

    def __init__(self, network: Any, tokenizer: Any = None) -> None:
        super().__init__(network)
        self._tokenizer = tokenizer

    def arrays(self, pairs: Sequence[Any]) -> Dict[str, np.ndarray]:
        length = self.padded_length(max(pair.length for pair in pairs))
        arrays = pad_pairs(pairs, length, self._tokenizer.padding_id, False)
        return dict(zip(("token_ids", "token_types", "valid_length"), arrays))


def pad_encodings(encodings: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Encodings of texts in one float32 array, with zeros behind each.

    Shapes: `encodings` (tokens, C), the result (texts, length, C).
    """
    widened = []
    for rows in encodings:
        is_bfloat16 = rows.dtype == np.uint16
        widened.append(as_float32(rows) if is_bfloat16 else rows)
    return pad_rows(widened, length, dtype=np.float32)


def as_float32(values: np.ndarray) -> np.ndarray:
    """Copy float32 or bfloat16 numbers to float32."""
    if values.dtype == np.float32:
        return values.copy()
    return (values.astype(np.uint32) << 16).view(np.float32)


def real_rows(hidden: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Encodings without padding, one text behind another.

    Shapes: `hidden` (texts, length, C), `lengths` (texts,), the result (sum of lengths, C).
    """
    return hidden[np.arange(hidden.shape[1]) < lengths[:, None]]
