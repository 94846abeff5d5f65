"""The oneDNN library, the precisions that this processor has, and the memory of its operations."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import math
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import numpy as np

from wqa.config.training import PRECISIONS
from wqa.errors import MissingDependency, PrecisionError, check_choice, how_to_install


def count_threads() -> int:
    """Number of OpenMP's threads that compute for the calling thread."""
    return _openmp().omp_get_max_threads()


#: Most micro-batches that are computed at once.
STREAMS = 16


def count_streams(threads: int) -> int:
    """Number of micro-batches at once, at most `STREAMS`, that have the same number of threads."""
    return threads // -(-threads // STREAMS)


@contextlib.contextmanager
def openmp_threads(threads: int) -> Iterator[None]:
    """Set the number of threads that compute for the calling thread, and restore it afterwards."""
    before = _openmp().omp_get_max_threads()
    _openmp().omp_set_num_threads(threads)
    try:
        yield
    finally:
        _openmp().omp_set_num_threads(before)


@functools.lru_cache(maxsize=None)
def _openmp() -> ctypes.CDLL:
    return ctypes.CDLL("libgomp.so.1")


#: Element types: oneDNN's number, and the NumPy type that carries it (bfloat16 as its 16 bits).
TYPES = {"bfloat16": (2, np.uint16), "float32": (3, np.float32), "int8": (5, np.int8)}

#: Instruction sets with which a precision is faster than float32: oneDNN's bits, and the name.
NEEDED: Dict[str, Tuple[int, str]] = {
    "float32": (0, ""),
    "bfloat16": (0xE7, "AVX512_BF16"),
    "int8": (0x07, "AVX2"),
}

#: oneDNN's bits of AVX-512, and of its VNNI, which adds products of 8-bit integers in 32 bits.
AVX512, VNNI = 0x20, 0x40

_CPU, _IN_ORDER, _ANY_LAYOUT = 1, 1, 1

#: Handles of oneDNN's objects.
Pointer = ctypes.c_void_p


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Load oneDNN; later calls return the same library."""
    name = "onednn-cpu-gomp"
    try:
        files = importlib.metadata.files(name) or []
        path = next(file for file in files if file.name == "libdnnl.so.3").locate()
        library = ctypes.CDLL(str(path))
    except (importlib.metadata.PackageNotFoundError, StopIteration, OSError) as error:
        problem = f"oneDNN's library cannot be loaded ({error or 'it is not installed'})"
        hint = f"install it on an x86-64 processor, {how_to_install('cpu')}"
        raise MissingDependency(name, problem, "oneDNN 3.2", hint) from None
    # What oneDNN takes are pointers already; only results of other types than int are declared.
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    library.dnnl_primitive_desc_query_md.restype = Pointer
    return library


def available() -> bool:
    """Whether oneDNN's library can be loaded.

    Returns
    -------
    bool
    """
    try:
        return bool(library())
    except MissingDependency:
        return False


def instruction_set() -> int:
    """Instruction sets of this processor that oneDNN uses; ``ONEDNN_MAX_CPU_ISA`` limits them.

    Returns
    -------
    int
        oneDNN's bits of instruction sets.
    """
    return library().dnnl_get_effective_cpu_isa()


def check_precision(precision: str) -> None:
    """Check that this processor supports a precision, with kernels faster than float32's.

    Parameters
    ----------
    precision : str
        One of `wqa.config.PRECISIONS`.

    Raises
    ------
    OptionError
        If the precision is unknown.
    PrecisionError
        If the processor lacks the instructions.
    MissingDependency
        If the precision needs oneDNN, which is not installed.
    """
    check_choice("precision", precision, PRECISIONS)
    bits, name = NEEDED[precision]
    if bits and instruction_set() & bits != bits:
        problem, hint = f"{precision} on a processor without {name}", "take precision float32"
        expected = f"a processor with {name}" + (" or AMX" if precision == "bfloat16" else "")
        raise PrecisionError("precision", problem, expected, f"{hint}, which runs everywhere")


def encoding_kind(precision: str) -> str:
    """Element type of the encodings between two products.

    Parameters
    ----------
    precision : str
        Precision of the products, one of `wqa.config.PRECISIONS`.

    Returns
    -------
    {"float32", "bfloat16"}
        For int8, bfloat16 where the processor supports it.
    """
    bits, _ = NEEDED["bfloat16"]
    has_bfloat16 = precision != "float32" and instruction_set() & bits == bits
    return "bfloat16" if has_bfloat16 else "float32"


def create(name: str, *arguments: Any) -> Pointer:
    """Create an object of oneDNN."""
    handle = Pointer()
    status = getattr(library(), f"dnnl_{name}")(ctypes.byref(handle), *arguments)
    if status:
        raise RuntimeError(f"dnnl_{name} returned status {status}")
    return handle


@functools.lru_cache(maxsize=None)
def engine() -> Pointer:
    """oneDNN's CPU engine."""
    return create("engine_create", ctypes.c_int(_CPU), ctypes.c_size_t(0))


@functools.lru_cache(maxsize=None)
def stream() -> Pointer:
    """The stream in which operations run, in order."""
    return create("stream_create", engine(), ctypes.c_uint(_IN_ORDER))


class Handle:
    """Owner of an object of oneDNN, which it destroys when it is freed."""

    handle = Pointer()  # null where the creation failed

    def __init__(self, kind: str, handle: Pointer) -> None:
        self._destroy = getattr(library(), f"dnnl_{kind}_destroy")
        self.handle = handle

    def __del__(self) -> None:
        if self.handle:
            self._destroy(self.handle)


class Layout(Handle):
    """Shape, element type and strides of an array."""

    def __init__(
        self,
        shape: Sequence[int],
        kind: str,
        strides: Optional[Sequence[int]] = None,
        any_layout: bool = False,
    ) -> None:
        self.shape, self.kind = tuple(shape), kind
        if strides is None:
            strides = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        self.strides = tuple(strides)
        self._key: tuple = (self.shape, kind, self.strides, any_layout)
        sizes = (ctypes.c_int64 * 12)(*self.shape)
        axes, number = len(self.shape), TYPES[kind][0]
        if any_layout:
            handle = create("memory_desc_create_with_tag", axes, sizes, number, _ANY_LAYOUT)
        else:
            steps = (ctypes.c_int64 * 12)(*strides)
            handle = create("memory_desc_create_with_strides", axes, sizes, number, steps)
        super().__init__("memory_desc", handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


#: Layouts of arrays: many arrays of a training share one, and kernels are found by it.
_known_layout = functools.lru_cache(maxsize=1 << 14)(Layout)


class Memory(Handle):
    """Memory that operations read and write, in a layout that oneDNN may have chosen."""

    def __init__(self, layout: Any, data: np.ndarray) -> None:
        self.layout, self.data, self.address = layout, data, data.ctypes.data
        handle = create("memory_create", layout.handle, engine(), Pointer(self.address))
        super().__init__("memory", handle)

    @classmethod
    def of(cls, values: np.ndarray) -> Memory:
        """The memory of an array of NumPy, or of a view; uint16 holds bfloat16."""
        kind = next(name for name, (_, carrier) in TYPES.items() if carrier == values.dtype)
        # NumPy gives an added axis the stride 0, for which oneDNN has slow kernels alone.
        dense = values.flags.c_contiguous
        strides = None if dense else tuple(step // values.itemsize for step in values.strides)
        return cls(_known_layout(values.shape, kind, strides), values)

    def as_image(self) -> Memory:
        """The same memory, (rows, width), as an image of one column, (1, width, rows, 1)."""
        rows, width = self.layout.shape
        step = self.layout.strides[0]
        strides = (rows * step, 1, step, step)
        return Memory(_known_layout((1, width, rows, 1), self.layout.kind, strides), self.data)

    def move(self, address: int) -> None:
        """Use other memory, whose owner keeps it alive."""
        self.address = address
        library().dnnl_memory_set_data_handle(self.handle, Pointer(address))


class Scratch:
    """A buffer that operations share while they run, one after another."""

    def __init__(self) -> None:
        self._data = zeros((1,), "int8")

    def take(self, size: int) -> np.ndarray:
        """Memory of at least a size; memory from earlier calls stays valid."""
        if self._data.size < size:
            self._data = zeros((size,), "int8")
        return self._data


def zeros(shape: Sequence[int], kind: str) -> np.ndarray:
    """Allocate zeros, aligned to a cache line."""
    dtype = np.dtype(TYPES[kind][1])
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def one(kind: str) -> np.generic:
    """The number 1 in an element type."""
    number = np.float32(1)
    return number if kind == "float32" else np.uint16(number.view(np.uint32) >> 16)


def cached(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the results of a method in ``_cache`` of its object, by the arguments."""

    @functools.wraps(method)
    def cached_method(self: Any, *arguments: Any) -> Any:
        key = (method.__name__, *arguments)
        if key not in self._cache:
            self._cache[key] = method(self, *arguments)
        return self._cache[key]

    return cached_method


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", Pointer)]


#: Arguments of an operation; none has as many. One type, as ctypes' types are cycles of references.
_Arguments = _Argument * 16


class Call:
    """An operation bound to its arrays; calling it runs it."""

    __slots__ = ("_execute", "_arguments", "kernel", "arrays")

    def __init__(self, kernel: Handle, arrays: Dict[int, Memory]) -> None:
        self.kernel, self.arrays = kernel, arrays
        arguments = [_Argument(number, array.handle) for number, array in arrays.items()]
        self._execute = library().dnnl_primitive_execute
        self._arguments = (kernel.handle, stream(), len(arrays), _Arguments(*arguments))

    def __call__(self) -> None:
        status = self._execute(*self._arguments)
        if status:
            raise RuntimeError(f"dnnl_primitive_execute returned status {status}")
