"""Dense layers one after another, by oneDNN in float32."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import numpy as np
from mxnet.gluon import nn

from wqa.engines.onednn.kernels import Call
from wqa.engines.onednn.operations import Operations, Workspace
from wqa.engines.onednn.packing import round_up
from wqa.engines.onednn.parameters import Dense
from wqa.engines.onednn.process import check_thread

#: Rows that run together.
CHUNK = 256


class DenseChain:
    """Dense layers, each on the output of the one before it.

    Parameters
    ----------
    layers : sequence of (mxnet.gluon.nn.Dense, str)
        The layers, on the CPU, with the name of the activation after each; empty for none.
        Parameters are read once.
    """

    def __init__(self, layers: Sequence[Tuple[nn.Dense, str]]) -> None:
        self._widths = [layers[0][0].weight.shape[1]]
        self._layers: List[Tuple[Dense, str]] = []
        for block, activation in layers:
            weight = block.weight.data().asnumpy()
            bias = block.bias.data().asnumpy()
            self._layers.append((_dense(weight, bias), activation))
            self._widths.append(weight.shape[0])
        self._operations, self._workspace = Operations(0.0), Workspace()
        self._calls: Dict[int, List[Call]] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Run the layers.

        Shapes: `rows` (n, in), the result (n, out).
        """
        check_thread()
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        return np.concatenate([self._run(chunk) for chunk in chunks])

    def _run(self, rows: np.ndarray) -> np.ndarray:
        count = len(rows)
        self._values(0)[:count] = rows
        for call in self._calls_of(round_up(count)):
            call()
        outputs = self._values(len(self._layers))
        return outputs[:count].copy()

    def _values(self, index: int) -> np.ndarray:
        """(CHUNK, width) buffer of the input of a layer, or of the last output."""
        width = self._widths[index]
        buffer = self._workspace.buffer(f"rows {index}", CHUNK * width, "float32")
        return buffer.reshape(CHUNK, width)

    def _calls_of(self, rows: int) -> List[Call]:
        if rows not in self._calls:
            arrays = []
            for index, width in enumerate(self._widths):
                shape = (rows, width)
                name = f"rows {index}"
                arrays.append(self._workspace.array(name, CHUNK * width, shape, "float32"))
            calls = []
            for index, (weight, activation) in enumerate(self._layers):
                steps = [(activation, None)] if activation else []
                source, out = arrays[index : index + 2]
                calls.append(self._operations.dense(source, weight, out, *steps))
            self._calls[rows] = calls
        return self._calls[rows]


def _dense(weight: np.ndarray, bias: np.ndarray) -> Dense:
    return Dense(lambda: weight, bias)
