"""The oneDNN library, the instruction sets that it uses, and the memory of its operations.

OpenMP's threads in a forked process, where those of the parent do not exist.

OpenMP keeps the threads that compute beside a thread until that thread ends. In a forked child the
thread that called ``fork`` is alone, and waits forever for those beside it. Any other thread of the
child starts its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, TypeVar

import numpy as np

from wqa.errors import MissingDependency, ProcessError, how_to_install

Result = TypeVar("Result")

#: ``has_computed``: whether the thread has computed by oneDNN. ``is_forked``: whether it is a
#: forked child's copy of a thread of its parent. ``is_stuck``: whether it is a copy of one that
#: has computed.
_thread = threading.local()


@functools.lru_cache(maxsize=None)
def note_forks() -> None:
    """Note from now on which threads are copies that a fork has made."""
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    _thread.is_forked = True
    _thread.is_stuck = getattr(_thread, "has_computed", False)
    _other_thread.cache_clear()


def check_thread() -> None:
    """Check that the calling thread can compute by oneDNN."""
    if getattr(_thread, "is_stuck", False):
        raise ProcessError(
            "oneDNN",
            "the process was forked from one that had computed by it",
            "a process of its own",
            'start it by multiprocessing.get_context("spawn"), or fork before anything is computed',
        )
    _thread.has_computed = True


def in_usable_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by oneDNN, in a thread that can."""
    if not getattr(_thread, "is_forked", False):
        return function(*arguments)
    return _other_thread().submit(function, *arguments).result()


@functools.lru_cache(maxsize=None)
def _other_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def count_threads() -> int:
    """Number of OpenMP's threads that compute for the calling thread."""
    return _openmp().omp_get_max_threads()


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
TYPES = {
    "float16": (1, np.float16),
    "bfloat16": (2, np.uint16),
    "float32": (3, np.float32),
    "int8": (5, np.int8),
}

#: oneDNN's bits of AVX_VNNI and of AVX512_VNNI.
_VNNI = 0x08 | 0x40

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
        raise MissingDependency(
            name,
            f"oneDNN's library cannot be loaded ({error or 'it is not installed'})",
            "oneDNN 3.2",
            f"install it on an x86-64 processor, {how_to_install('cpu')}",
        ) from None
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    library.dnnl_memory_desc_get_size.argtypes = [Pointer]
    library.dnnl_primitive_desc_query_md.restype = Pointer
    library.dnnl_primitive_desc_query_md.argtypes = [Pointer, ctypes.c_int, ctypes.c_int]
    library.dnnl_memory_desc_equal.argtypes = [Pointer, Pointer]
    library.dnnl_memory_set_data_handle.argtypes = [Pointer, Pointer]
    library.dnnl_primitive_execute.argtypes = [Pointer, Pointer, ctypes.c_int, Pointer]
    for name in ("memory", "memory_desc", "primitive", "primitive_desc", "primitive_attr"):
        getattr(library, f"dnnl_{name}_destroy").argtypes = [Pointer]
    library.dnnl_post_ops_destroy.argtypes = [Pointer]
    note_forks()
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


def multiplies_bytes() -> bool:
    """Whether the processor adds products of 8-bit integers in 32 bits (VNNI).

    Without it, sums of two products saturate in 16 bits.
    """
    return bool(instruction_set() & _VNNI)


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
            strides = [int(np.prod(self.shape[axis + 1 :])) for axis in range(len(self.shape))]
        self.strides = tuple(strides)
        #: Key of the layout in the caches of kernels.
        self.key = (self.shape, kind, self.strides, any_layout)
        sizes = (ctypes.c_int64 * 12)(*self.shape)
        axes, number = len(self.shape), TYPES[kind][0]
        if any_layout:
            handle = create("memory_desc_create_with_tag", axes, sizes, number, _ANY_LAYOUT)
        else:
            steps = (ctypes.c_int64 * 12)(*strides)
            handle = create("memory_desc_create_with_strides", axes, sizes, number, steps)
        super().__init__("memory_desc", handle)


class Memory(Handle):
    """Memory that operations read and write, in a layout that oneDNN may have chosen."""

    def __init__(self, layout: Pointer, data: np.ndarray) -> None:
        self.data, self.address = data, data.ctypes.data
        handle = create("memory_create", layout, engine(), Pointer(self.address))
        super().__init__("memory", handle)

    def move(self, address: int) -> None:
        """Use other memory, whose owner keeps it alive."""
        self.address = address
        library().dnnl_memory_set_data_handle(self.handle, address)


class Array(Memory):
    """Memory whose layout is known."""

    def __init__(self, layout: Layout, data: Optional[np.ndarray] = None) -> None:
        self.layout = layout
        super().__init__(layout.handle, zeros(layout.shape, layout.kind) if data is None else data)


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


def as_float32(values: np.ndarray) -> np.ndarray:
    """Copy float32 or bfloat16 numbers to float32."""
    if values.dtype == np.float32:
        return values.copy()
    return (values.astype(np.uint32) << 16).view(np.float32)


def one(kind: str) -> np.generic:
    """The number 1 in an element type."""
    number = np.float32(1)
    return number if kind == "float32" else np.uint16(number.view(np.uint32) >> 16)


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", Pointer)]


@functools.lru_cache(maxsize=None)
def _argument_array(count: int) -> Any:
    """ctypes' type of several arguments, kept: the types are cycles of references."""
    return _Argument * count


class Call:
    """An operation bound to its arrays; calling it runs it."""

    __slots__ = ("_execute", "_primitive", "_count", "_arguments", "_kept")

    def __init__(self, kernel: Handle, arrays: Dict[int, Memory]) -> None:
        self._execute = library().dnnl_primitive_execute
        self._primitive, self._count = kernel.handle, len(arrays)
        arguments = [_Argument(number, array.handle) for number, array in arrays.items()]
        self._arguments = _argument_array(len(arrays))(*arguments)
        self._kept = (kernel, arrays)

    def __call__(self) -> None:
        status = self._execute(self._primitive, stream(), self._count, self._arguments)
        if status:
            raise RuntimeError(f"dnnl_primitive_execute returned status {status}")
