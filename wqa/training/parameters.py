"""Parameters of MXNet's and their gradients, as oneDNN's products read and write them."""

from __future__ import annotations

import ctypes
from typing import Dict, List, NamedTuple, Tuple

import mxnet as mx
import numpy as np

from wqa.models.onednn import Array, Call, Kernel, Layout, PackedWeights


def shared_memory(array: mx.nd.NDArray) -> np.ndarray:
    """An MXNet array's own memory, flat; valid as long as the array."""
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return np.ctypeslib.as_array(
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (array.size,)
    )


class Product:
    """A dense layer's weight, its rows from ``begin``: laid out for products forward and back, and
    its gradient."""

    def __init__(
        self, weight: mx.gluon.Parameter, bias: mx.gluon.Parameter, begin: int = 0, rows: int = 0
    ) -> None:
        width = weight.shape[1]
        rows = rows or weight.shape[0]
        self.shape = (rows, width)  # (out, in)
        cut, share = slice(begin * width, (begin + rows) * width), slice(begin, begin + rows)
        plain = shared_memory(weight.data())[cut]
        self._sources = {
            False: Array(Layout((width, rows), "float32", (1, width)), plain),  # x @ weight.T
            True: Array(Layout((rows, width), "float32"), plain),
        }  # slope @ weight
        self.bias = Array(Layout((1, rows), "float32"), shared_memory(bias.data())[share])
        self.weight_slope = Array(
            Layout((rows, width), "float32"), shared_memory(weight.grad())[cut]
        )
        self.bias_slope = Array(Layout((1, rows), "float32"), shared_memory(bias.grad())[share])
        self._packed: Dict[bool, List[Tuple[PackedWeights, Call]]] = {False: [], True: []}

    def packed(self, kernel: Kernel, backward: bool) -> PackedWeights:
        """The weight as a kernel wants it."""
        for packed, _ in self._packed[backward]:
            if packed.fits(kernel):
                return packed
        packed = PackedWeights(kernel)
        fill = packed.filler(self._sources[backward])
        fill()
        self._packed[backward].append((packed, fill))
        return packed

    def refresh(self) -> None:
        """Lay out what the optimizer has changed."""
        for packed in self._packed.values():
            for _, fill in packed:
                fill()


class Norm:
    """Gain and offset of a normalisation, and their gradients."""

    def __init__(self, block: mx.gluon.nn.LayerNorm) -> None:
        self.gamma, self.beta, self.gamma_slope, self.beta_slope = (
            Array(Layout((array.size,), "float32"), shared_memory(array))
            for array in (
                block.gamma.data(),
                block.beta.data(),
                block.gamma.grad(),
                block.beta.grad(),
            )
        )


class Shape(NamedTuple):
    """Pairs and positions of a mini-batch."""

    pairs: int
    length: int

    @property
    def rows(self) -> int:
        return self.pairs * self.length
