"""Parameters of layers as oneDNN reads them: weights prepacked, vectors as rows."""

from __future__ import annotations

import ctypes
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np

from wqa.engines.onednn.library import Array, Call, Layout
from wqa.engines.onednn.primitives import Kernel, PackedWeights

#: Products of a layer by name, and the step of the layer to which a product belongs.
PRODUCTS = {
    "query": "project",
    "key": "project",
    "value": "project",
    "output": "merge",
    "inner": "widen",
    "outer": "narrow",
}


def address(array: mx.nd.NDArray) -> int:
    """Address of an MXNet array's first element on the CPU."""
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return pointer.value or 0


def shared_memory(array: mx.nd.NDArray) -> np.ndarray:
    """A flat view of an MXNet array's memory on the CPU.

    Shapes: the result (size,).
    """
    pointer = ctypes.cast(address(array), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (array.size,))


class Quantized(NamedTuple):
    """An 8-bit weight of a product, and its scales."""

    #: (in, out) int8.
    weight: np.ndarray
    #: (out,) float32, scale of each output channel.
    scale: np.ndarray
    #: (in,) float32; an input channel is multiplied by it before it is rounded.
    factor: np.ndarray

    def in_seven_bits(self) -> Quantized:
        """Round the weight to integers from -64 to 64, for processors without VNNI.

        Those add the products of two neighbouring channels in 16 bits. With an unsigned input of
        up to 255, a weight of 64 is the largest whose sum of two products fits.

        Returns
        -------
        Quantized
            The coarser weight, with its scale doubled.
        """
        weight = np.rint(self.weight * np.float32(0.5)).astype(np.int8)
        return Quantized(weight, self.scale * 2, self.factor)


class Vector(Array):
    """float32 numbers that a kernel reads."""

    def __init__(self, values: np.ndarray, axes: int = 2) -> None:
        shape = (1, values.size) if axes == 2 else (values.size,)
        super().__init__(Layout(shape, "float32"), np.ascontiguousarray(values, dtype=np.float32))


class Dense:
    """Weight and bias of a dense layer, prepacked for each kernel that reads them.

    Shapes: `bias` (out,).
    """

    def __init__(
        self,
        weight: Callable[[], np.ndarray],
        bias: np.ndarray,
        quantized: Optional[Quantized] = None,
        refreshable: bool = False,
    ) -> None:
        self._weight, self._quantized, self._refreshable = weight, quantized, refreshable
        self.bias = Vector(bias)
        self.scale = Vector(quantized.scale, axes=1) if quantized else None
        #: (1, in) factors of the input before it is rounded to int8; None for a float weight.
        self.factor = Vector(quantized.factor) if quantized else None
        self._packed: Dict[bool, List[PackedWeights]] = {False: [], True: []}
        self._fillers: List[Call] = []

    def _source(self, backward: bool) -> Array:
        if self._quantized is not None:
            return Array(Layout(self._quantized.weight.shape, "int8"), self._quantized.weight)
        weight = self._weight()
        rows, width = weight.shape
        if backward:
            return Array(Layout((rows, width), "float32"), weight)
        return Array(Layout((width, rows), "float32", (1, width)), weight)  # transposed

    def packed(self, kernel: Kernel, backward: bool = False) -> PackedWeights:
        """The weight, prepacked in the layout that a kernel has chosen."""
        for packed in self._packed[backward]:
            if packed.fits(kernel):
                return packed
        packed = PackedWeights(kernel)
        fill = packed.filler(self._source(backward))
        fill()
        self._packed[backward].append(packed)
        if self._refreshable:
            self._fillers.append(fill)
        return packed

    def refresh(self) -> None:
        """Pack the weight again, after the optimizer has changed it."""
        for fill in self._fillers:
            fill()


class Norm:
    """Gain and offset of a normalisation.

    Shapes: `gamma, beta` (width,).
    """

    def __init__(self, gamma: np.ndarray, beta: np.ndarray) -> None:
        self.gamma, self.beta = Vector(gamma, axes=1), Vector(beta, axes=1)

    @classmethod
    def of(cls, block: mx.gluon.nn.LayerNorm) -> Norm:
        """Copy the parameters of a block."""
        return cls(block.gamma.data().asnumpy(), block.beta.data().asnumpy())


def split_queries(array: np.ndarray) -> Tuple[np.ndarray, ...]:
    """Split a joint projection into those of queries, keys and values.

    Shapes: `array` (3 C, C).
    """
    units = len(array) // 3
    return array[:units], array[units : 2 * units], array[2 * units :]
