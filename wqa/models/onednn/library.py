"""The library itself, what it may use of this processor, and the memory that it works on."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from typing import Any, Optional, Sequence

import numpy as np

from wqa.errors import MissingDependency, OptionError, PrecisionError, shorten

#: Element types: oneDNN's number, and the NumPy type that carries it (bfloat16 as its 16 bits).
TYPES = {"bfloat16": (2, np.uint16), "float32": (3, np.float32), "int8": (5, np.int8)}

#: What products compute in, and the instructions that make it worth while, as oneDNN's bit sets.
PRECISIONS = {"float32": 0, "bfloat16": 0xE7, "int8": 0x67}

_CPU, _IN_ORDER, _ANY_LAYOUT = 1, 1, 1

Pointer = ctypes.c_void_p


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Load oneDNN, once.

    Raises
    ------
    MissingDependency
        If the package is not installed, or its library does not load.
    """
    name = "onednn-cpu-gomp"
    try:
        files = importlib.metadata.files(name) or []
        path = next(file for file in files if file.name == "libdnnl.so.3").locate()
        library = ctypes.CDLL(str(path))
    except (importlib.metadata.PackageNotFoundError, StopIteration, OSError) as error:
        raise MissingDependency(
            name,
            f"oneDNN's library cannot be loaded ({error or 'it is not installed'})",
            "oneDNN 3.2",
            "install it: pip install 'wqa[cpu]' on an x86-64 processor",
        ) from None
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    library.dnnl_memory_desc_get_size.argtypes = [Pointer]
    library.dnnl_primitive_desc_query_md.restype = Pointer
    library.dnnl_primitive_desc_query_md.argtypes = [Pointer, ctypes.c_int, ctypes.c_int]
    library.dnnl_memory_desc_equal.argtypes = [Pointer, Pointer]
    library.dnnl_memory_set_data_handle.argtypes = [Pointer, Pointer]
    library.dnnl_primitive_execute.argtypes = [Pointer, Pointer, ctypes.c_int, Pointer]
    for name in (
        "memory",
        "memory_desc",
        "primitive",
        "primitive_desc",
        "primitive_attr",
        "post_ops",
    ):
        getattr(library, f"dnnl_{name}_destroy").argtypes = [Pointer]
    return library


def available() -> bool:
    """Whether oneDNN's library can be loaded."""
    try:
        return bool(library())
    except MissingDependency:
        return False


def instruction_set() -> int:
    """What oneDNN uses of this processor, as its bit set; ``ONEDNN_MAX_CPU_ISA`` lowers it."""
    return library().dnnl_get_effective_cpu_isa()


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
        raise PrecisionError(
            "--precision",
            f"{precision} on a processor without {name}",
            f"a processor with {name} or AMX",
            "take --precision float32, which runs everywhere",
        )


def create(name: str, *arguments: Any) -> Pointer:
    """Call one of oneDNN's functions that make something, and return what it made."""
    handle = Pointer()
    status = getattr(library(), f"dnnl_{name}")(ctypes.byref(handle), *arguments)
    if status:
        raise RuntimeError(f"dnnl_{name} returned status {status}")
    return handle


@functools.lru_cache(maxsize=None)
def engine() -> Pointer:
    """The CPU."""
    return create("engine_create", ctypes.c_int(_CPU), ctypes.c_size_t(0))


@functools.lru_cache(maxsize=None)
def stream() -> Pointer:
    """Where operations are run, in order."""
    return create("stream_create", engine(), ctypes.c_uint(_IN_ORDER))


class Handle:
    """Something of oneDNN's that is destroyed with its owner."""

    handle = Pointer()  # null where the creation failed

    def __init__(self, kind: str, handle: Pointer) -> None:
        self._destroy = getattr(library(), f"dnnl_{kind}_destroy")
        self.handle = handle

    def __del__(self) -> None:
        if self.handle:
            self._destroy(self.handle)


class Layout(Handle):
    """Shape, type and strides of an array.

    Parameters
    ----------
    shape : sequence of int
    kind : str
        A key of `TYPES`.
    strides : sequence of int, optional
        In elements; dense rows by default.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kind: str,
        strides: Optional[Sequence[int]] = None,
        any_layout: bool = False,
    ) -> None:
        self.shape, self.kind = tuple(shape), kind
        if strides is None:
            strides = [int(np.prod(self.shape[axis + 1 :])) for axis in range(len(self.shape))]
        self.strides = tuple(strides)
        dims = (ctypes.c_int64 * 12)(*self.shape)
        if any_layout:
            handle = create(
                "memory_desc_create_with_tag", len(self.shape), dims, TYPES[kind][0], _ANY_LAYOUT
            )
        else:
            handle = create(
                "memory_desc_create_with_strides",
                len(self.shape),
                dims,
                TYPES[kind][0],
                (ctypes.c_int64 * 12)(*strides),
            )
        super().__init__("memory_desc", handle)


class Memory(Handle):
    """Memory that operations read and write, in a layout that oneDNN may have chosen.

    Parameters
    ----------
    layout : ctypes.c_void_p
        oneDNN's description of it.
    data : numpy.ndarray
        C-contiguous memory of at least the layout's size; shared, not copied.
    """

    def __init__(self, layout: Pointer, data: np.ndarray) -> None:
        self.data = data
        super().__init__(
            "memory", create("memory_create", layout, engine(), Pointer(data.ctypes.data))
        )

    def move(self, address: int) -> None:
        """Let it stand elsewhere in memory that its owner keeps alive."""
        library().dnnl_memory_set_data_handle(self.handle, address)


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


class Scratch:
    """Memory that operations share while they run, one after another."""

    def __init__(self) -> None:
        self._data = zeros((1,), "int8")

    def take(self, size: int) -> np.ndarray:
        """At least so many bytes; what was taken earlier stays valid."""
        if self._data.size < size:
            self._data = zeros((size,), "int8")
        return self._data


def zeros(shape: Sequence[int], kind: str) -> np.ndarray:
    """Zeros whose first element stands on a cache line."""
    dtype = np.dtype(TYPES[kind][1])
    raw = np.zeros(int(np.prod(shape)) * dtype.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
