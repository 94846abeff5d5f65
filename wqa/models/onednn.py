"""oneDNN, called directly: the few operations that a transformer encoder is made of.

MXNet 1.9 carries oneDNN 2.4 inside its own library, behind operators that lay weights out anew or
convert on the way. The package ``onednn-cpu-gomp`` brings oneDNN 3.2 as a library of its own, on the
same OpenMP runtime; this module describes arrays to it, compiles operations for their shapes, and runs
them. Nothing here knows about models.

An `Array` is memory with a layout. An operation (`product`, `layer_norm`, `softmax`, `scaled`) is
compiled once for its layouts and then bound to memory; calling what `Kernel.bind` returns runs it.
"""
from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.errors import MissingDependency, OptionError, PrecisionError, shorten

#: Element types: oneDNN's number, and the NumPy type that carries it (bfloat16 as its 16 bits).
TYPES = {"bfloat16": (2, np.uint16), "float32": (3, np.float32), "int8": (5, np.int8)}

#: What products compute in, and the instructions that make it worth while, as oneDNN's bit sets.
PRECISIONS = {"float32": 0, "bfloat16": 0xE7, "int8": 0x67}

#: Activations by name, as oneDNN numbers them.
ACTIVATIONS = {"relu": 32, "tanh": 33, "gelu_tanh": 43, "gelu": 49}
_LINEAR = 38

#: Arguments of an operation, as oneDNN numbers them.
SRC, SRC_1, DST, WEIGHTS, BIAS, MEAN, VARIANCE, GAMMA, BETA, SCRATCH = 1, 2, 17, 33, 41, 49, 50, 51, 52, 80
DIFF_SRC, DIFF_DST, DIFF_GAMMA, DIFF_BETA = 129, 145, 255, 256
_SCALES, _POST_OP = 4096, 32768

_CPU, _IN_ORDER, _ANY_LAYOUT, _ACCURATE_SOFTMAX, _ADD, _MULTIPLY = 1, 1, 1, 196608, 131056, 131057
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128
_QUERY_IMPLEMENTATION, _QUERY_WEIGHTS, _QUERY_SCRATCH, _NORM_FLAGS, _USER_SCRATCH = 8, 131, 136, 6, 1

_Pointer = ctypes.c_void_p


class _Argument(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int), ("memory", _Pointer)]


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    name = "onednn-cpu-gomp"
    try:
        files = importlib.metadata.files(name) or []
        path = next(file for file in files if file.name == "libdnnl.so.3").locate()
        library = ctypes.CDLL(str(path))
    except (importlib.metadata.PackageNotFoundError, StopIteration, OSError) as error:
        raise MissingDependency(name, f"oneDNN's library cannot be loaded ({error or 'it is not installed'})", "oneDNN 3.2",
                                "install it: pip install 'wqa[cpu]' on an x86-64 processor") from None
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    library.dnnl_memory_desc_get_size.argtypes = [_Pointer]
    library.dnnl_primitive_desc_query_md.restype = _Pointer
    library.dnnl_primitive_desc_query_md.argtypes = [_Pointer, ctypes.c_int, ctypes.c_int]
    library.dnnl_memory_desc_equal.argtypes = [_Pointer, _Pointer]
    library.dnnl_memory_set_data_handle.argtypes = [_Pointer, _Pointer]
    library.dnnl_primitive_execute.argtypes = [_Pointer, _Pointer, ctypes.c_int, _Pointer]
    for name in ("memory", "memory_desc", "primitive", "primitive_desc", "primitive_attr", "post_ops"):
        getattr(library, f"dnnl_{name}_destroy").argtypes = [_Pointer]
    return library


def available() -> bool:
    """Whether oneDNN's library can be loaded."""
    try:
        return bool(_library())
    except MissingDependency:
        return False


def instruction_set() -> int:
    """What oneDNN uses of this processor, as its bit set; ``ONEDNN_MAX_CPU_ISA`` lowers it."""
    return _library().dnnl_get_effective_cpu_isa()


def check_precision(precision: str) -> None:
    """Check that this processor computes in a precision at a gain.

    Parameters
    ----------
    precision : str

    Raises
    ------
    OptionError
        If it is not one of `PRECISIONS`.
    PrecisionError
        If the processor lacks its instructions.
    """
    if precision not in PRECISIONS:
        raise OptionError("--precision", shorten(precision), "one of " + ", ".join(PRECISIONS))
    needed = PRECISIONS[precision]
    if needed and instruction_set() & needed != needed:
        name = "AVX512_BF16" if precision == "bfloat16" else "AVX512_VNNI"
        raise PrecisionError("--precision", f"{precision} on a processor without {name}",
                             f"a processor with {name} or AMX", "take --precision float32, which runs everywhere")


def _create(name: str, *arguments: Any) -> _Pointer:
    handle = _Pointer()
    status = getattr(_library(), f"dnnl_{name}")(ctypes.byref(handle), *arguments)
    if status:
        raise RuntimeError(f"dnnl_{name} returned status {status}")
    return handle


@functools.lru_cache(maxsize=None)
def _engine() -> _Pointer:
    return _create("engine_create", ctypes.c_int(_CPU), ctypes.c_size_t(0))


@functools.lru_cache(maxsize=None)
def _stream() -> _Pointer:
    return _create("stream_create", _engine(), ctypes.c_uint(_IN_ORDER))


class _Handle:
    """Something of oneDNN's that is destroyed with its owner."""

    handle = _Pointer()  # null where the creation failed

    def __init__(self, kind: str, handle: _Pointer) -> None:
        self._destroy = getattr(_library(), f"dnnl_{kind}_destroy")
        self.handle = handle

    def __del__(self) -> None:
        if self.handle:
            self._destroy(self.handle)


class Layout(_Handle):
    """Shape, type and strides of an array.

    Parameters
    ----------
    shape : sequence of int
    kind : str
        A key of `TYPES`.
    strides : sequence of int, optional
        In elements; dense rows by default.
    """

    def __init__(self, shape: Sequence[int], kind: str, strides: Optional[Sequence[int]] = None,
                 any_layout: bool = False) -> None:
        self.shape, self.kind = tuple(shape), kind
        if strides is None:
            strides = [int(np.prod(self.shape[axis + 1:])) for axis in range(len(self.shape))]
        self.strides = tuple(strides)
        dims = (ctypes.c_int64 * 12)(*self.shape)
        if any_layout:
            handle = _create("memory_desc_create_with_tag", len(self.shape), dims, TYPES[kind][0], _ANY_LAYOUT)
        else:
            handle = _create("memory_desc_create_with_strides", len(self.shape), dims, TYPES[kind][0],
                             (ctypes.c_int64 * 12)(*strides))
        super().__init__("memory_desc", handle)


#: A step after an operation, as `Attributes` takes it.
Step = Tuple[str, Union[Layout, float, None]]


class Memory(_Handle):
    """Memory that operations read and write, in a layout that oneDNN may have chosen.

    Parameters
    ----------
    layout : ctypes.c_void_p
        oneDNN's description of it.
    data : numpy.ndarray
        C-contiguous memory of at least the layout's size; shared, not copied.
    """

    def __init__(self, layout: _Pointer, data: np.ndarray) -> None:
        self.data = data
        super().__init__("memory", _create("memory_create", layout, _engine(), _Pointer(data.ctypes.data)))

    def move(self, address: int) -> None:
        """Let it stand elsewhere in memory that its owner keeps alive."""
        _library().dnnl_memory_set_data_handle(self.handle, address)


class Array(Memory):
    """Memory whose layout is known.

    Parameters
    ----------
    layout : Layout
    data : numpy.ndarray, optional
        New zeros by default.
    """

    def __init__(self, layout: Layout, data: Optional[np.ndarray] = None) -> None:
        self.layout = layout
        super().__init__(layout.handle, zeros(layout.shape, layout.kind) if data is None else data)


class PackedWeights(Memory):
    """Weights laid out as a product wants its right operand.

    Parameters
    ----------
    kernel : Kernel
        Compiled with ``any_layout`` for its right operand.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._wanted = kernel, kernel.layout_of(_QUERY_WEIGHTS)  # which owns the description
        super().__init__(self._wanted, zeros((_library().dnnl_memory_desc_get_size(self._wanted),), "int8"))

    def filler(self, source: Array) -> Call:
        """What lays the weights of an array out here, each time that it is called."""
        return Kernel("reorder", source.layout.handle, _engine(), self._wanted, _engine()).bind({SRC: source, DST: self})

    def fits(self, kernel: Kernel) -> bool:
        """Whether another product wants the same layout."""
        return bool(_library().dnnl_memory_desc_equal(self._wanted, kernel.layout_of(_QUERY_WEIGHTS)))


def zeros(shape: Sequence[int], kind: str) -> np.ndarray:
    """Zeros whose first element stands on a cache line."""
    dtype = np.dtype(TYPES[kind][1])
    raw = np.zeros(int(np.prod(shape)) * dtype.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start: start + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)


class Call:
    """An operation bound to its arrays; calling it runs it."""

    __slots__ = ("_execute", "_primitive", "_count", "_arguments", "_kept")

    def __init__(self, kernel: Kernel, arrays: Dict[int, Memory]) -> None:
        self._execute = _library().dnnl_primitive_execute
        self._primitive, self._count = kernel.handle, len(arrays)
        self._arguments = (_Argument * len(arrays))(*(_Argument(place, array.handle) for place, array in arrays.items()))
        self._kept = (kernel, arrays)

    def __call__(self) -> None:
        status = self._execute(self._primitive, _stream(), self._count, self._arguments)
        if status:
            raise RuntimeError(f"dnnl_primitive_execute returned status {status}")


class Kernel(_Handle):
    """A compiled operation.

    Attributes
    ----------
    implementation : str
        oneDNN's name of the code that runs, such as ``brg:avx512_core_amx``.
    scratch_bytes : int
        Memory that it needs while it runs.
    """

    def __init__(self, operation: str, *arguments: Any, attributes: Optional[_Handle] = None,
                 places: Sequence[int] = ()) -> None:
        self._description = _Handle("primitive_desc", _create(
            f"{operation}_primitive_desc_create", *arguments, attributes.handle if attributes else None))
        self._places = tuple(places)  # where the arrays of post-operations go
        text = ctypes.c_char_p()
        _library().dnnl_primitive_desc_query(self._description.handle, _QUERY_IMPLEMENTATION, 0, ctypes.byref(text))
        self.implementation = (text.value or b"").decode()
        self._scratch = self.layout_of(_QUERY_SCRATCH)
        self.scratch_bytes = _library().dnnl_memory_desc_get_size(self._scratch)
        super().__init__("primitive", _create("primitive_create", self._description.handle))

    @property
    def description(self) -> _Pointer:
        """What the gradient's operation is compiled from."""
        return self._description.handle

    def layout_of(self, query: int) -> _Pointer:
        """oneDNN's description of an operand; it lives as long as the kernel."""
        return _Pointer(_library().dnnl_primitive_desc_query_md(self._description.handle, query, 0))

    def bind(self, arrays: Dict[int, Memory], post: Sequence[Memory] = (), scratch: Optional[Scratch] = None) -> Call:
        """Bind the operation to arrays.

        Parameters
        ----------
        arrays : dict of int to Memory
            By argument.
        post : sequence of Memory
            Second operands of the post-operations that have one, in order.
        scratch : Scratch, optional
            Needed where ``scratch_bytes`` is not 0.

        Returns
        -------
        Call
        """
        arrays = {**arrays, **dict(zip(self._places, post))}
        if self.scratch_bytes and scratch is not None:
            arrays[SCRATCH] = Memory(self._scratch, scratch.take(self.scratch_bytes))
        return Call(self, arrays)


class Scratch:
    """Memory that operations share while they run, one after another."""

    def __init__(self) -> None:
        self._data = zeros((1,), "int8")

    def take(self, size: int) -> np.ndarray:
        """At least so many bytes; what was taken earlier stays valid."""
        if self._data.size < size:
            self._data = zeros((size,), "int8")
        return self._data


class Attributes(_Handle):
    """What an operation does beyond its own: scales of its operands, and steps after it.

    Parameters
    ----------
    scales : dict of int to int
        Arguments that are multiplied by a scale: 0 for one number, otherwise the axes' bits.
    steps : sequence of (str, Layout, float or None)
        ``add`` or ``multiply`` with a second operand of that layout; ``times`` with a number; ``sum``
        with what stood in the output (None); or an activation's name (None).
    """

    def __init__(self, scales: Optional[Dict[int, int]] = None, steps: Sequence[Step] = ()) -> None:
        super().__init__("primitive_attr", _create("primitive_attr_create"))
        library = _library()
        library.dnnl_primitive_attr_set_scratchpad_mode(self.handle, _USER_SCRATCH)
        for place, mask in (scales or {}).items():
            library.dnnl_primitive_attr_set_scales_mask(self.handle, place, mask)
        chain = _Handle("post_ops", _create("post_ops_create"))
        self.places = []
        for number, (step, layout) in enumerate(steps, 1):
            if step == "sum":
                library.dnnl_post_ops_append_sum(chain.handle, ctypes.c_float(1), 0, TYPES["float32"][0])
            elif not isinstance(layout, Layout):
                library.dnnl_post_ops_append_eltwise(chain.handle, ACTIVATIONS.get(step, _LINEAR), ctypes.c_float(layout or 0),
                                                     ctypes.c_float(0))
            else:
                library.dnnl_post_ops_append_binary(chain.handle, {"add": _ADD, "multiply": _MULTIPLY}[step], layout.handle)
                self.places.append(_POST_OP * number | SRC_1)
        library.dnnl_primitive_attr_set_post_ops(self.handle, chain.handle)


def product(left: Layout, right: Layout, out: Layout, bias: Optional[Layout] = None, scales: Optional[Dict[int, int]] = None,
            steps: Sequence[Step] = ()) -> Kernel:
    """Compile ``out = steps(left @ right + bias)``.

    Parameters
    ----------
    left, right, out : Layout
        The last two axes are multiplied; axes before them are a batch.
    bias : Layout, optional
        float32, broadcast.
    scales, steps
        As `Attributes` takes them.

    Returns
    -------
    Kernel
    """
    attributes = Attributes(scales, steps)
    return Kernel("matmul", _engine(), left.handle, right.handle, bias.handle if bias else None, out.handle,
                  attributes=attributes, places=attributes.places)


def scale_place(place: int) -> int:
    """The argument that carries another argument's scale."""
    return _SCALES | place


def layer_norm(source: Layout, out: Layout, epsilon: float, statistics: Optional[Layout] = None) -> Kernel:
    """Compile a normalisation over the last axis, with gain `GAMMA` and offset `BETA` in float32.

    With ``statistics``, float32 of a row, it also writes `MEAN` and `VARIANCE`, for `layer_norm_backward`.
    """
    return Kernel("layer_normalization_forward", _engine(), _TRAINING if statistics else _INFERENCE, source.handle, out.handle,
                  statistics.handle if statistics else None, ctypes.c_float(epsilon), ctypes.c_uint(_NORM_FLAGS),
                  attributes=Attributes())


def layer_norm_backward(forward: Kernel, source: Layout, slope: Layout, statistics: Layout, epsilon: float) -> Kernel:
    """Compile the gradients of a normalisation: `DIFF_SRC`, `DIFF_GAMMA` and `DIFF_BETA` of `DIFF_DST`.

    ``slope`` is the layout of both `DIFF_DST` and `DIFF_SRC`.
    """
    return Kernel("layer_normalization_backward", _engine(), _BACKWARD, slope.handle, slope.handle, source.handle,
                  statistics.handle, ctypes.c_float(epsilon), ctypes.c_uint(_NORM_FLAGS), forward.description,
                  attributes=Attributes())


def softmax(source: Layout, out: Layout, training: bool = False) -> Kernel:
    """Compile a softmax over the last axis."""
    return Kernel("softmax_forward", _engine(), _TRAINING if training else _INFERENCE, _ACCURATE_SOFTMAX, source.handle,
                  out.handle, len(source.shape) - 1, attributes=Attributes())


def softmax_backward(forward: Kernel, out: Layout) -> Kernel:
    """Compile the gradient of a softmax, `DIFF_SRC` of `DIFF_DST`, from its output `DST`; all of one layout."""
    return Kernel("softmax_backward", _engine(), _ACCURATE_SOFTMAX, out.handle, out.handle, out.handle, len(out.shape) - 1,
                  forward.description, attributes=Attributes())


def activation(name: str, both: Layout) -> Kernel:
    """Compile an activation of `ACTIVATIONS`."""
    return Kernel("eltwise_forward", _engine(), _TRAINING, ACTIVATIONS[name], both.handle, both.handle, ctypes.c_float(0),
                  ctypes.c_float(0), attributes=Attributes())


def activation_backward(forward: Kernel, name: str, all_three: Layout) -> Kernel:
    """Compile the gradient of an activation, `DIFF_SRC` of `DIFF_DST`, from its input `SRC`."""
    return Kernel("eltwise_backward", _engine(), ACTIVATIONS[name], all_three.handle, all_three.handle, all_three.handle,
                  ctypes.c_float(0), ctypes.c_float(0), forward.description, attributes=Attributes())


def scaled(source: Layout, factors: Layout, out: Layout) -> Kernel:
    """Compile ``out = source * factors``, rounded and clipped where ``out`` is int8.

    From float32 to bfloat16 oneDNN has slow code only: multiply in float32, then use `converted`.
    """
    return Kernel("binary", _engine(), _MULTIPLY, source.handle, factors.handle, out.handle, attributes=Attributes())


def converted(source: Layout, out: Layout) -> Kernel:
    """Compile a copy into another type."""
    return Kernel("reorder", source.handle, _engine(), out.handle, _engine(), attributes=Attributes())
