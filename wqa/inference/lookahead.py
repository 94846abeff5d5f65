"""Reading of a source in a thread, so that the next group of items is prepared meanwhile."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import (
    Any,
    Callable,
    Generic,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from wqa.data import Question
from wqa.errors import ProcessError

#: Seconds for which a group waits for a source that gives nothing, while its reader waits.
GROUP_TIMEOUT = 0.1
#: Greatest seconds that the end of a `LookAhead` waits for its thread.
JOIN_TIMEOUT = 0.1

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


class LookAhead(Generic[Prepared]):
    """Groups of prepared items, read from a source in a thread while the caller works.

    A group ends before the item that exceeds the limit, so that groups depend on the items alone.
    It ends earlier where the caller waits and the source gives nothing for `GROUP_TIMEOUT` seconds:
    a source that is slow or live does not delay the items that are there. Groups of a sequence,
    whose items are all there, never end earlier.

    An exception of the source, or of the preparation, is raised after the groups of all items
    before it. At the end of the ``with`` block the thread is told to end. It is a daemon: where the
    source blocks, it ends when the source returns, and does not keep the process alive.
    """

    def __init__(
        self,
        source: Iterable[Item],
        prepare: Callable[[Item], Tuple[Prepared, int]],
        limit: int,
    ) -> None:
        timeout = math.inf if isinstance(source, Sequence) else GROUP_TIMEOUT
        self._pending = _Pending(limit, timeout)
        self._thread = threading.Thread(
            target=_read, args=(source, prepare, self._pending), name="wqa look-ahead", daemon=True
        )
        self._process = os.getpid()
        # Also where this object is freed, or the process exits, before the end of its block.
        self._end = weakref.finalize(self, _end, self._pending, self._thread, self._process)

    def __enter__(self) -> LookAhead[Prepared]:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def __iter__(self) -> Iterator[List[Prepared]]:
        while True:
            if os.getpid() != self._process:
                raise ProcessError(
                    "rank_all",
                    "was begun before the process was forked, and its thread is not in the child",
                    "a call in the process that reads the rankings",
                    "call rank_all in the child",
                )
            group = self._pending.take()
            if not group:
                return
            yield group


class _Pending:
    """Items that are prepared and not taken yet. The thread adds them, its reader takes them."""

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit, self._timeout, self._size = limit, timeout, 0
        self._items: List[Tuple[Any, int]] = []
        self._changed = threading.Condition()
        self._waiting_since: Optional[float] = None  # time since which the source gives nothing
        self._is_finished = self._is_ended = False
        self._error: Optional[BaseException] = None

    def wait_for_room(self) -> bool:
        """Wait until a whole group is no longer pending; False if nothing is read any more."""
        with self._changed:
            while self._size > self._limit and not self._is_ended:
                self._changed.wait()
            self._waiting_since = time.monotonic()
            return not self._is_ended

    def received(self) -> None:
        """Note that the source has given an item."""
        self._waiting_since = None

    def add(self, item: Any, size: int) -> None:
        """Add a prepared item. The reader is woken for the first item and for a whole group."""
        with self._changed:
            self._items.append((item, size))
            self._size += size
            if len(self._items) == 1 or self._size > self._limit:
                self._changed.notify_all()

    def finish(self, error: Optional[BaseException]) -> None:
        """Note that the source has no more items, or that it raised an error."""
        with self._changed:
            self._error, self._is_finished = error, True
            self._changed.notify_all()

    def end(self) -> None:
        """Tell the thread that nothing is read any more."""
        with self._changed:
            self._is_ended = True
            self._items.clear()
            self._changed.notify_all()

    def take(self) -> List[Any]:
        """Wait for a group and take it; empty after the last one."""
        with self._changed:
            while not (self._size > self._limit or self._is_finished):
                left = self._time_left()
                if left <= 0:
                    break
                self._changed.wait(left if math.isfinite(left) else None)
            if not self._items and self._error is not None:
                error, self._error = self._error, None  # no cycle with its traceback
                raise error
            return self._first_group()

    def _time_left(self) -> float:
        """Seconds after which a group that is not whole is taken; infinity without an item."""
        if not self._items:
            return math.inf
        since = self._waiting_since
        if since is None:
            return self._timeout
        return since + self._timeout - time.monotonic()

    def _first_group(self) -> List[Any]:
        count = total = 0
        for _, size in self._items:
            if count and total + size > self._limit:
                break
            count, total = count + 1, total + size
        group = [item for item, _ in self._items[:count]]
        del self._items[:count]
        self._size -= total
        self._changed.notify_all()
        return group


def _read(source: Iterable[Any], prepare: Callable[..., Any], pending: _Pending) -> None:
    """Read a source to its end; it holds no reference to the `LookAhead`, which may be freed."""
    failure: Optional[BaseException] = None
    try:
        iterator = iter(source)
        while pending.wait_for_room():
            try:
                item = next(iterator)
            except StopIteration:
                break
            pending.received()
            pending.add(*prepare(item))
    except BaseException as error:  # noqa: B036 - the reader raises it
        failure = error
    pending.finish(failure)


def _end(pending: _Pending, thread: threading.Thread, process: int) -> None:
    if os.getpid() != process:
        return  # a forked child has no such thread, and a lock may never be released
    pending.end()
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(JOIN_TIMEOUT)


def with_size(question: Question) -> Tuple[Question, int]:
    """Leave a question as it is; its size is its number of candidates, for `LookAhead`."""
    return question, len(question.candidates)
