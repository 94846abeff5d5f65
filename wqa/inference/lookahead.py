"""Reading of a source in a thread, so that the next group of items is prepared meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from typing import Any, Callable, Iterable, Iterator, List, Tuple, TypeVar

from wqa.data import Question
from wqa.errors import ProcessError

#: Seconds after which the thread looks whether its reader has ended.
POLL = 0.1

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


def read_ahead(
    source: Iterable[Item], prepare: Callable[[Item], Tuple[Prepared, int]], limit: int
) -> Iterator[List[Prepared]]:
    """Read groups of items in a thread, while the caller works on the group before.

    A group ends before the item that exceeds the limit, so that groups depend on the items alone.
    An exception of the source, or of the preparation, is raised after the groups of all items
    before it. The thread is a daemon: where the source blocks, it does not keep the process alive.

    Parameters
    ----------
    source : iterable
        Items.
    prepare : callable
        Takes an item, and returns what is made of it, and its size.
    limit : int
        Greatest size of a group; a larger item is a group of its own.

    Yields
    ------
    list
        What is made of the items of a group.
    """
    process = os.getpid()
    groups: queue.Queue[Any] = queue.Queue(maxsize=1)
    ended = threading.Event()
    arguments = (source, prepare, limit, groups, ended)
    thread = threading.Thread(target=_read, args=arguments, name="wqa look-ahead", daemon=True)

    def end() -> None:
        ended.set()
        thread.join(POLL)

    atexit.register(end)
    thread.start()
    try:
        while True:
            if os.getpid() != process:
                problem = "was begun before the process was forked, whose child has no such thread"
                expected = "a call in the process that reads the rankings"
                raise ProcessError("rank_all", problem, expected, "call rank_all in the child")
            group = groups.get()
            if isinstance(group, BaseException):
                raise group
            if group is None:
                return
            yield group
    finally:
        group = None  # no cycle with the traceback of an error
        ended.set()
        atexit.unregister(end)


def _read(
    source: Iterable[Any],
    prepare: Callable[[Any], Tuple[Any, int]],
    limit: int,
    groups: queue.Queue[Any],
    ended: threading.Event,
) -> None:
    """Read a source to its end: its groups, then None, or the exception that ended it."""

    def put(entry: Any) -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                groups.put(entry, timeout=POLL)
                return

    group: List[Any] = []
    total = 0
    last = None
    try:
        for item in source:
            prepared, size = prepare(item)
            if group and total + size > limit:
                put(group)
                group, total = [], 0
            group.append(prepared)
            total += size
            if ended.is_set():
                return
    except BaseException as error:  # noqa: B036 - the reader raises it
        last = error
    if group:
        put(group)
    put(last)


def with_size(question: Question) -> Tuple[Question, int]:
    """Leave a question as it is; its size is its number of candidates, for `read_ahead`."""
    return question, len(question.candidates)
