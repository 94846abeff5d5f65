"""NumPy's BLAS on one thread, while threads of a ranker or a training share the work.

NumPy's wheels bring an OpenBLAS that divides every product of more than some 260,000 multiply-adds
among threads of its own. Products of a list are not much larger, so that waking the threads takes
longer than it saves, and two threads that share a batch would wait for each other's.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import threading
from typing import Callable, Iterator, List, NamedTuple, Optional

import numpy as np


def count_threads() -> int:
    """Number of threads that compute by default: ``OMP_NUM_THREADS``, as MXNet takes it.

    Returns
    -------
    int
    """
    return int(os.environ["OMP_NUM_THREADS"])  # `wqa.models` sets and checks it


#: Suffixes of OpenBLAS's names, of 64-bit indices or not.
_SUFFIXES = ("64_", "")


class _OpenBlas(NamedTuple):
    """Functions of an OpenBLAS."""

    get: Callable[[], int]
    set: Callable[[int], None]


class _Users:
    """How many compute now, and the number of threads before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.threads = 1


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy's OpenBLAS compute on the calling threads alone; another BLAS stays as it is."""
    blas = _openblas()
    if blas is None:
        yield
        return
    users = _users()
    with users.lock:
        if not users.count:
            users.threads = blas.get()
            blas.set(1)
        users.count += 1
    try:
        yield
    finally:
        with users.lock:
            users.count -= 1
            if not users.count:
                blas.set(users.threads)


@functools.lru_cache(maxsize=None)
def _users() -> _Users:
    # A fork waits for the engines, so that nothing computes meanwhile; a child has its own lock.
    os.register_at_fork(after_in_child=_users.cache_clear)
    return _Users()


@functools.lru_cache(maxsize=None)
def _openblas() -> Optional[_OpenBlas]:
    """OpenBLAS of a NumPy from a wheel."""
    for path in _libraries():
        library = ctypes.CDLL(str(path))  # loaded already
        for suffix in _SUFFIXES:
            name = f"openblas_set_num_threads{suffix}"
            if hasattr(library, name):
                getter = getattr(library, f"openblas_get_num_threads{suffix}")
                return _OpenBlas(getter, getattr(library, name))
    return None


def _libraries() -> List[pathlib.Path]:
    package = pathlib.Path(np.__file__).parent
    return sorted((package.parent / "numpy.libs").glob("libopenblas*"))
