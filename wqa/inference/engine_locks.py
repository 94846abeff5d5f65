"""Locks of engines, which a fork of the process hands over free; name scopes after an interrupt."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import weakref
from typing import Any, Iterator, List

from mxnet.gluon.block import _BlockScope
from mxnet.name import NameManager

#: Lock of all that MXNet computes for rankers: networks share blocks, whose tracing is not safe in
#: several threads. A thread may take it while it holds that of an engine, never the reverse.
MXNET_LOCK = threading.RLock()

_numbers = itertools.count()
_locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: Locks that the fork in progress holds.
_held: List[Any] = []


def engine_lock(shared: bool) -> Any:
    """Make the lock of an engine, which the thread that computes holds.

    A fork waits until no other thread holds such a lock. So the child's copies of buffers and
    caches are whole, and its copy of the lock is free.

    Parameters
    ----------
    shared : bool
        Whether the lock is `MXNET_LOCK`; otherwise it is a new one.

    Returns
    -------
    threading.RLock
        The lock.
    """
    _register()
    if shared:
        return MXNET_LOCK
    lock = threading.RLock()
    _locks[next(_numbers)] = lock
    return lock


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
