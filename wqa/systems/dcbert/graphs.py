"""ONNX Runtime's engine of DC-BERT's interaction, on the encodings of questions and documents."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

import numpy as np

from wqa.engines.onnx.engine import OnnxEngine
from wqa.engines.onnx.inputs import MASKS, mask_of
from wqa.io.parameter_files import widen
from wqa.systems.dcbert.ranker import EncodedPair, TextRows


class DecoupledOnnxEngine(OnnxEngine):
    """Graphs of the interaction on encodings that are padded apart."""

    def _begin(self, pairs: Sequence[EncodedPair]) -> Dict[str, np.ndarray]:
        inputs = {}
        for name in ("question", "document"):
            encodings, mask = _padded([getattr(pair, name) for pair in pairs])
            inputs.update({name: encodings, MASKS[f"{name}_valid"].name: mask})
        return inputs


def _padded(texts: Sequence[TextRows]) -> Tuple[np.ndarray, np.ndarray]:
    """Encodings of texts in one array, (B, length, C), and their mask, (B, length)."""
    lengths = np.array([text.length for text in texts])
    encodings = np.zeros((len(texts), lengths.max(), texts[0].rows.shape[1]), np.float32)
    for row, text in zip(encodings, texts):
        rows = text.rows
        row[: text.length] = widen(rows) if rows.dtype == np.uint16 else rows
    return encodings, mask_of(lengths, lengths.max())
