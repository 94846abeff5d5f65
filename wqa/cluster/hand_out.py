"""Handing out of partitions, with a limited number of attempts for each."""

from __future__ import annotations

import collections
from typing import Deque, Dict, Iterable, Optional

from wqa.cluster.partition_files import Manifest
from wqa.errors import ClusterError

#: Attempts to compute a partition.
ATTEMPTS = 3
#: Attempts that fail one after another, of any partitions, after which nothing is handed out.
MOST_IN_A_ROW = 24
#: Partitions that an error names.
_NAMED = 5


class HandOut:
    """Partitions that are to be computed, and what became of them."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._waiting: Deque[int] = collections.deque(indices)
        self._out = 0
        self._attempts: Dict[int, int] = {}
        self._failed: Dict[int, str] = {}
        self._in_a_row = 0
        self.computed = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is handed out, and nothing waits."""
        return not self._out and (not self._waiting or self._is_hopeless)

    @property
    def _is_hopeless(self) -> bool:
        return self._in_a_row >= MOST_IN_A_ROW

    def take(self) -> Optional[int]:
        """Take the next partition."""
        if not self._waiting or self._is_hopeless:
            return None
        self._out += 1
        return self._waiting.popleft()

    def succeed(self, index: int) -> None:
        """Note that a partition is computed."""
        self._out -= 1
        self._in_a_row = 0
        self.computed += 1

    def fail(self, index: int, error: str) -> None:
        """Note that an attempt has failed. The partition waits behind the others for the next
        one.
        """
        self._out -= 1
        self._in_a_row += 1
        self._attempts[index] = self._attempts.get(index, 0) + 1
        self._failed[index] = error
        if self._attempts[index] < ATTEMPTS:
            self._waiting.append(index)

    def put_back(self, index: int) -> None:
        """Note that a partition was not tried, as the worker had died. It is the next one."""
        self._out -= 1
        self._in_a_row += 1
        self._waiting.appendleft(index)

    def raise_failed(self, manifest: Manifest, data: str) -> None:
        """Raise an error if partitions have failed."""
        given_up = [index for index, count in self._attempts.items() if count >= ATTEMPTS]
        left = sorted({*given_up, *self._waiting})
        if not left:
            return
        named = []
        for index in left[:_NAMED]:
            part = manifest.partitions[index]
            lines = f"lines {part.line} to {part.line + part.read - 1} of {data}"
            reason = self._failed.get(index, "not tried, as everything failed")
            named.append(f"partition {index}, {lines}: {reason}")
        if len(left) > _NAMED:
            named.append(f"and {len(left) - _NAMED} more")
        how = "failed, as every attempt did" if self._is_hopeless else f"failed {ATTEMPTS} times"
        raise ClusterError(
            f"{len(left)} of {len(manifest.partitions)} partitions",
            f"{how}: " + "; ".join(named),
            mend="what is computed stays; mend the cause, then run the command again",
        )
