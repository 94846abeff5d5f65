"""Threads that compute parts of a work; NumPy, SciPy and oneDNN release Python's lock meanwhile."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in this thread and in others.

    Each thread takes the next part that is left. Other calls may have all other threads; this one
    then computes by itself. Where a part fails, or this thread is interrupted, the others end after
    the part that they are at, and are waited for: what they read and write is the caller's.
    """
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    shared = _Shared(function, parts)
    try:
        for _ in range(min(threads, len(parts)) - 1):
            with contextlib.suppress(RuntimeError):  # the interpreter is about to end
                _pool(threads).submit(shared.help)
        shared.compute()
    finally:
        shared.end()
    if shared.error is not None:
        raise shared.error
    return shared.results


class _Shared(Generic[Part, Result]):
    """Parts of a call, which several threads compute."""

    def __init__(self, function: Callable[[Part], Result], parts: Sequence[Part]) -> None:
        self._function = function
        self._left: Iterator[Tuple[int, Part]] = iter(list(enumerate(parts)))
        self.results: List[Any] = [None] * len(parts)
        #: Error of a helper.
        self.error: Optional[BaseException] = None
        self._lock = threading.Lock()
        self._helpers = 0  # threads that compute a part, but the caller
        self._has_ended = self._is_awaited = False
        self._last_helper = threading.Lock()
        self._last_helper.acquire()  # until the last helper has ended

    def compute(self) -> None:
        """Compute parts in the calling thread until none is left, or one has failed."""
        for number, part in self._left:  # each part goes to one thread
            if self._has_ended:
                return
            self.results[number] = self._function(part)

    def help(self) -> None:
        """`compute` in another thread."""
        with self._lock:
            if self._has_ended:
                return
            self._helpers += 1
        try:
            self.compute()
        except BaseException as error:
            self.error, self._has_ended = error, True
        finally:
            with self._lock:
                self._helpers -= 1
                if self._is_awaited and not self._helpers:
                    self._last_helper.release()

    def end(self) -> None:
        """Let no thread begin another part, and wait for those that have begun one."""
        interrupt = None
        while True:
            try:
                with self._lock:
                    self._has_ended = True
                    if not self._helpers:
                        break
                    self._is_awaited = True
                self._last_helper.acquire()
            except KeyboardInterrupt as error:  # after the helpers, which use the caller's memory
                interrupt = error
        if interrupt is not None:
            raise interrupt


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    _forget_at_forks()
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="wqa engine")


@functools.lru_cache(maxsize=None)
def _forget_at_forks() -> None:
    """A forked child has no threads beside its own, and starts new ones."""
    os.register_at_fork(after_in_child=_pool.cache_clear)
