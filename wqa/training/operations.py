"""Operations of a transformer's gradients, by oneDNN, on padded mini-batches.

Rows are (B * L, C), a head's queries, keys and values are views of them, (B, H, L, C / H), and
scores are (B, H, Q, L), where Q positions of each pair ask. An operation is compiled once for its
layouts and bound once to its memory; what is returned is called at each update. Memory goes by
names, and is as large as the largest mini-batch asks.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.config import BackboneConfig
from wqa.models import onednn
from wqa.models.onednn import (
    BETA,
    BIAS,
    DIFF_BETA,
    DIFF_DST,
    DIFF_GAMMA,
    DIFF_SRC,
    DST,
    GAMMA,
    MEAN,
    SRC,
    SRC_1,
    VARIANCE,
    WEIGHTS,
    Array,
    Call,
    Kernel,
    Layout,
    Memory,
)
from wqa.training.parameters import Norm, Product, Shape

#: What follows a product: a second operand, a number, or, where the value is None, nothing.
Follow = Tuple[str, Union[Array, float, bool, None]]


class Operations:
    """Compiles operations, and keeps their memory.

    Parameters
    ----------
    config : BackboneConfig
    kind : {"float32", "bfloat16"}
        What products read.
    tokens : int
        Most rows.
    length : int
        Most positions of a pair.
    """

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self._config, self.kind, self._tokens, self._length = config, kind, tokens, length
        self._kernels: Dict[tuple, Kernel] = {}
        self._memory: Dict[str, np.ndarray] = {}
        self._arrays: Dict[tuple, Array] = {}
        self._masks: Dict[Shape, List[Tuple[str, np.ndarray, float]]] = {}
        self.scratch = onednn.Scratch()

    # Memory

    def array(
        self,
        name: str,
        items: int,
        shape: Sequence[int],
        kind: str,
        strides: Optional[Sequence[int]] = None,
    ) -> Array:
        """A view of the memory of that name, which holds so many items."""
        key = (name, tuple(shape), strides and tuple(strides))
        if key not in self._arrays:
            if name not in self._memory:
                self._memory[name] = onednn.zeros((items,), kind)
            self._arrays[key] = Array(Layout(shape, kind, strides), self._memory[name])
        return self._arrays[key]

    def rows(self, name: str, shape: Shape, width: int, kind: str = "") -> Array:
        """(B * L, width)."""
        return self.array(name, self._tokens * width, (shape.rows, width), kind or self.kind)

    def turned(self, rows: Array, name: str) -> Array:
        """The same memory with its axes exchanged."""
        count, width = rows.layout.shape
        return self.array(name, rows.data.size, (width, count), rows.layout.kind, (1, width))

    def heads(self, name: str, shape: Shape, turned: bool = False) -> Array:
        """Rows of that name as (B, H, L, C / H), or with the last two axes exchanged."""
        heads, units = self._config.num_heads, self._config.units
        size = units // heads
        pair, head, row = shape.length * units, size, units
        view = (
            (shape.pairs, heads, size, shape.length)
            if turned
            else (shape.pairs, heads, shape.length, size)
        )
        strides = (pair, head, 1, row) if turned else (pair, head, row, 1)
        return self.array(name, self._tokens * units, view, self.kind, strides)

    def scores(
        self, name: str, shape: Shape, asked: Shape, kind: str = "", turned: bool = False
    ) -> Array:
        """(B, H, Q, L), Q positions of each pair that ask; or with the last two axes exchanged."""
        heads, asking, length = self._config.num_heads, asked.length, shape.length
        strides = (
            heads * asking * length,
            asking * length,
            *((1, length) if turned else (length, 1)),
        )
        view = (shape.pairs, heads, *((length, asking) if turned else (asking, length)))
        return self.array(
            name, self._tokens * heads * self._length, view, kind or self.kind, strides
        )

    def mask(self, name: str, shape: Shape, like: Array, rate: float) -> Optional[Array]:
        """Dropout's factors for an array, 0 or 1 / (1 - rate), drawn anew each update."""
        if not rate:
            return None
        items = like.data.size
        array = self.array(name, items, like.layout.shape, "float32")
        size = int(np.prod(like.layout.shape))
        if (name, size) not in {
            (known, len(data)) for known, data, _ in self._masks.setdefault(shape, [])
        }:
            self._masks[shape].append((name, array.data[:size], rate))
        return array

    # Operations

    def kernel(self, key: tuple, build: Callable[[], Kernel]) -> Kernel:
        """The kernel of a key, compiled where it is new."""
        if key not in self._kernels:
            self._kernels[key] = build()
        return self._kernels[key]

    def multiply(
        self,
        left: Array,
        right: Array,
        out: Array,
        *follow: Follow,
        weight: Optional[Product] = None,
        backward: bool = False,
    ) -> Call:
        """Bind a product; with ``weight``, its packed form is the right operand, and forward its
        bias is added."""
        taken = [(step, what) for step, what in follow if what is not None]
        bias = weight.bias if weight is not None and not backward else None
        key = (
            *(self._looks(array) for array in (left, right, out)),
            weight is not None,
            bias is not None,
            tuple(
                (step, self._looks(what) if isinstance(what, Array) else what)
                for step, what in taken
            ),
        )
        steps = [
            (step, None if step == "sum" else what.layout if isinstance(what, Array) else what)
            for step, what in taken
        ]
        other = (
            Layout(right.layout.shape, right.layout.kind, any_layout=True)
            if weight is not None
            else right.layout
        )
        kernel = self.kernel(
            key,
            lambda: onednn.product(
                left.layout, other, out.layout, bias.layout if bias else None, None, steps
            ),
        )
        arrays: Dict[int, Memory] = {SRC: left, DST: out}
        arrays[WEIGHTS] = weight.packed(kernel, backward) if weight is not None else right
        if bias is not None:
            arrays[BIAS] = bias
        return kernel.bind(
            arrays, [what for _, what in taken if isinstance(what, Array)], self.scratch
        )

    @staticmethod
    def _looks(array: Array) -> tuple:
        return (array.layout.shape, array.layout.kind, array.layout.strides)

    def dense(self, source: Array, weight: Product, out: Array, *follow: Follow) -> Call:
        """Bind ``out = source @ weight.T + bias``, and what follows."""
        return self.multiply(source, self._like(weight.shape[::-1]), out, *follow, weight=weight)

    def dense_back(self, slope: Array, weight: Product, out: Array, *follow: Follow) -> Call:
        """Bind ``out = slope @ weight``, and what follows."""
        return self.multiply(
            slope, self._like(weight.shape), out, *follow, weight=weight, backward=True
        )

    def _like(self, shape: Tuple[int, int]) -> Array:
        """Stands for a packed weight of that shape."""
        return self.array(f"weight {shape}", 1, shape, self.kind)

    def weight_slopes(
        self, slope: Array, name: str, source: Array, weight: Product, add: bool
    ) -> List[Call]:
        """Bind the gradients of a weight and its bias; ``name`` is that of the slope's memory."""
        ones = self.array("ones", self._tokens, (1, slope.layout.shape[0]), self.kind)
        ones.data[:] = np.float32(1).view(np.uint32) >> 16 if self.kind == "bfloat16" else 1
        follow: Follow = ("sum", True if add else None)
        return [
            self.multiply(self.turned(slope, name), source, weight.weight_slope, follow),
            self.multiply(ones, slope, weight.bias_slope, follow),
        ]

    def norm(self, source: Array, norm: Norm, out: Array, name: str) -> Call:
        """Bind a normalisation; its statistics are kept by name."""
        return self._norm_kernel(source, out).bind(
            {
                SRC: source,
                DST: out,
                GAMMA: norm.gamma,
                BETA: norm.beta,
                **self._statistics(name, source),
            },
            scratch=self.scratch,
        )

    def _norm_kernel(self, source: Array, out: Array) -> Kernel:
        return self.kernel(
            ("norm", self._looks(source), self._looks(out)),
            lambda: onednn.layer_norm(
                source.layout,
                out.layout,
                self._config.layer_norm_eps,
                Layout((source.layout.shape[0],), "float32"),
            ),
        )

    def _statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        count = source.layout.shape[0]
        return {
            place: self.array(f"{place} {name}", self._tokens, (count,), "float32")
            for place in (MEAN, VARIANCE)
        }

    def norm_back(
        self,
        source: Array,
        norm: Norm,
        out: Array,
        slope: Array,
        result: Array,
        name: str,
        add: bool,
    ) -> List:
        """Bind the gradients of a normalisation of ``source`` to ``out``: ``result``, and those of
        its parameters."""
        kernel = self.kernel(
            ("norm back", self._looks(source), self._looks(out)),
            lambda: onednn.layer_norm_backward(
                self._norm_kernel(source, out),
                source.layout,
                slope.layout,
                Layout((source.layout.shape[0],), "float32"),
                self._config.layer_norm_eps,
            ),
        )
        slopes = [norm.gamma_slope, norm.beta_slope]
        into = [
            self.array(f"norm slope {place}", each.data.size, each.layout.shape, "float32")
            if add
            else each
            for place, each in enumerate(slopes)
        ]
        calls: List[Callable[[], object]] = [
            kernel.bind(
                {
                    SRC: source,
                    DIFF_DST: slope,
                    DIFF_SRC: result,
                    GAMMA: norm.gamma,
                    BETA: norm.beta,
                    DIFF_GAMMA: into[0],
                    DIFF_BETA: into[1],
                    **self._statistics(name, source),
                },
                scratch=self.scratch,
            )
        ]
        for each, part in zip(slopes, into) if add else ():  # a shared layer's, of the places above
            calls.append(functools.partial(np.add, each.data, part.data, out=each.data))
        return calls

    def activation(self, name: str, source: Array, out: Array) -> Call:
        """Bind an activation."""
        return self._activation_kernel(name, source).bind(
            {SRC: source, DST: out}, scratch=self.scratch
        )

    def _activation_kernel(self, name: str, source: Array) -> Kernel:
        return self.kernel(
            ("activation", name, self._looks(source)),
            lambda: onednn.activation(name, source.layout),
        )

    def activation_back(self, name: str, source: Array, slope: Array, result: Array) -> Call:
        """Bind the gradient of an activation of ``source``."""
        kernel = self.kernel(
            ("activation back", name, self._looks(source)),
            lambda: onednn.activation_backward(
                self._activation_kernel(name, source), name, source.layout
            ),
        )
        return kernel.bind({SRC: source, DIFF_DST: slope, DIFF_SRC: result}, scratch=self.scratch)

    def softmax(self, source: Array, out: Array) -> Call:
        """Bind a softmax over the last axis."""
        return self._softmax_kernel(source.layout.shape).bind(
            {SRC: source, DST: out}, scratch=self.scratch
        )

    def _softmax_kernel(self, shape: Sequence[int]) -> Kernel:
        return self.kernel(
            ("softmax", shape),
            lambda: onednn.softmax(Layout(shape, "float32"), Layout(shape, self.kind), True),
        )

    def softmax_back(self, out: Array, slope: Array, result: Array) -> Call:
        """Bind the gradient of a softmax that gave ``out``."""
        shape = out.layout.shape
        kernel = self.kernel(
            ("softmax back", shape),
            lambda: onednn.softmax_backward(self._softmax_kernel(shape), out.layout),
        )
        return kernel.bind({DST: out, DIFF_DST: slope, DIFF_SRC: result}, scratch=self.scratch)

    def draw(self, shape: Shape, seed: int) -> None:
        """Draw the dropout masks of a shape."""
        rng = np.random.Generator(np.random.SFC64(seed))
        for _, data, rate in self._masks.get(shape, ()):
            draws = np.frombuffer(rng.bytes(2 * data.size), dtype=np.uint16)
            np.multiply(draws >= round(rate * 65536), np.float32(1 / (1 - rate)), out=data)

    def times(
        self, source: Array, factors: Optional[Array], out: Array, between: str = ""
    ) -> List[Call]:
        """Multiply, where there are factors; ``between`` names memory for the float32 product of
        two float32."""
        calls: List[Call] = []
        if factors is not None:
            narrow = source.layout.kind == "float32" != out.layout.kind
            result = (
                self.array(between, source.data.size, source.layout.shape, "float32")
                if narrow
                else out
            )
            key = ("times", self._looks(source), self._looks(factors), self._looks(result))
            kernel = self.kernel(
                key, lambda: onednn.scaled(source.layout, factors.layout, result.layout)
            )
            calls.append(
                kernel.bind({SRC: source, SRC_1: factors, DST: result}, scratch=self.scratch)
            )
            source = result
        if source.data is not out.data:
            converter = self.kernel(
                ("converted", self._looks(source), self._looks(out)),
                functools.partial(onednn.converted, source.layout, out.layout),
            )
            calls.append(converter.bind({SRC: source, DST: out}, scratch=self.scratch))
        return calls

    def rounded(
        self, source: Array, name: str, mask: Optional[Array], shape: Shape, calls: List
    ) -> Tuple[Array, str]:
        """What a slope is before dropout, in the type that products read, and the name of its
        memory."""
        if mask is None and self.kind == "float32":
            return source, name
        out = self.rows("rounded", shape, source.layout.shape[1])
        calls += self.times(source, mask, out, "dropped")
        return out, "rounded"

    def padding_array(self, shape: Shape) -> Array:
        """What is added to the attention scores of each position, (B, 1, 1, L)."""
        return self.array("padding", self._tokens, (shape.pairs, 1, 1, shape.length), "float32")

    def padding(self, shape: Shape) -> np.ndarray:
        """The same as (B, L), to be written."""
        return self.padding_array(shape).data[: shape.rows].reshape(shape.pairs, shape.length)
