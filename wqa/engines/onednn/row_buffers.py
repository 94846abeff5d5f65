"""Buffers of packed rows, and the part of a layer that works on each row by itself."""

from __future__ import annotations

from typing import Dict, List

import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.onednn.kernels import Call
from wqa.engines.onednn.library import Array
from wqa.engines.onednn.operations import Operations, Workspace
from wqa.engines.onednn.packed_parts import PackedLayer
from wqa.engines.onednn.parameters import Dense


class RowBuffers:
    """Named buffers of rows, which the layers share."""

    def __init__(
        self, config: BackboneConfig, kind: str, capacity: int, operations: Operations
    ) -> None:
        self.config = config
        self.kind = kind
        self.capacity = capacity
        self.operations = operations
        self._workspace = Workspace()

    def array(self, name: str, rows: int, width: int, kind: str = "") -> Array:
        """The first rows of a buffer, as an operand.

        Shapes: the result (rows, width).
        """
        kind = kind or self.kind
        name = f"{name} {width} {kind}"
        return self._workspace.array(name, self.capacity * width, (rows, width), kind)

    def memory(self, name: str, width: int, kind: str = "") -> np.ndarray:
        """A whole buffer.

        Shapes: the result (capacity, width).
        """
        kind = kind or self.kind
        name = f"{name} {width} {kind}"
        buffer = self._workspace.buffer(name, self.capacity * width, kind)
        return buffer.reshape(self.capacity, width)

    def rounded(self, calls: List[Call], source: Array, weight: Dense, name: str) -> Array:
        """The input of a product: the source, or for int8 a buffer to which it is rounded."""
        if weight.factor is None:
            return source
        rows, width = source.layout.shape
        out = self.array(name, rows, width, "int8")
        calls.append(self.operations.multiply(source, weight.factor, out))
        return out

    def after_attention(self, layer: PackedLayer, rows: int) -> Dict[str, List[Call]]:
        """Bind the steps of a layer after its attention.

        They read the buffers ``x`` and ``context``, and write ``x``.
        """
        config, operations = self.config, self.operations
        products = layer.products
        x = self.array("x", rows, config.units)
        context = self.array("context", rows, config.units)
        total = self.array("total", rows, config.units, "float32")

        merge: List[Call] = []
        source = self.rounded(merge, context, products["output"], "context8")
        summed = operations.dense(source, products["output"], total, ("add", x))
        normed = operations.norm(total, layer.attention_norm, x)
        merge += [summed, normed]

        widen: List[Call] = []
        source = self.rounded(widen, x, products["inner"], "x8")
        factor = products["outer"].factor
        kind = self.kind if factor is None else "int8"
        inner = self.array("inner", rows, config.hidden_size, kind)
        activation = (config.activation, None)
        scaling = ("multiply", factor)
        widen.append(operations.dense(source, products["inner"], inner, activation, scaling))

        summed = operations.dense(inner, products["outer"], total, ("add", x))
        normed = operations.norm(total, layer.ffn_norm, x)
        return {"merge": merge, "widen": widen, "narrow": [summed, normed]}
