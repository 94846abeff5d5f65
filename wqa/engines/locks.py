"""Locks of engines and MXNet's thread, which survive a fork; name scopes after an interrupt."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, List, TypeVar

from mxnet.gluon.block import _BlockScope
from mxnet.name import NameManager

#: Lock of all that MXNet computes for rankers: networks share blocks, whose tracing is not safe in
#: several threads. A thread may take it while it holds that of an engine, never the reverse.
MXNET_LOCK = threading.RLock()

Result = TypeVar("Result")

_numbers = itertools.count()
_locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: Locks that the fork in progress holds.
_held: List[Any] = []


def engine_lock(shared: bool) -> Any:
    """Make the lock of an engine, which the thread that computes holds.

    A fork waits until no other thread holds such a lock. So the child's copies of buffers and
    caches are whole, and its copy of the lock is free.
    """
    _register()
    if shared:
        return MXNET_LOCK
    lock = threading.RLock()
    _locks[next(_numbers)] = lock
    return lock


def in_mxnet_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by MXNet: in the main thread, or in one other thread.

    MXNet keeps some megabytes for each thread that computes, also after the thread has ended. So
    all threads but the main one share a single thread.
    """
    if threading.current_thread() is threading.main_thread():
        return function(*arguments)
    return _mxnet_thread().submit(function, *arguments).result()


@functools.lru_cache(maxsize=None)
def _mxnet_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="wqa MXNet")


@contextlib.contextmanager
def name_scope_kept() -> Iterator[None]:
    """Restore Gluon's name scopes of the thread, in which an interrupt can leave a block."""
    scopes = (_BlockScope._current, NameManager._current)  # local to the thread
    before = [dict(vars(scope)) for scope in scopes]
    try:
        yield
    finally:
        for scope, values in zip(scopes, before):
            vars(scope).clear()
            vars(scope).update(values)


@functools.lru_cache(maxsize=None)
def _register() -> None:
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
    os.register_at_fork(after_in_child=_mxnet_thread.cache_clear)


def _acquire() -> None:
    # Always in one order, so that two threads may fork at once; that of MXNet is the last.
    references = sorted(_locks.valuerefs(), key=lambda reference: reference.key)
    for lock in [*(reference() for reference in references), MXNET_LOCK]:
        if lock is not None:
            lock.acquire()
            _held.append(lock)


def _release() -> None:
    while _held:
        _held.pop().release()
