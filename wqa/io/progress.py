"""A bar of progress on standard error."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, Optional, TypeVar

from tqdm import tqdm

from wqa.errors import printable

Item = TypeVar("Item")


#: Share of the items, and seconds with some items, after which the time that is left is shown.
_SHARE, _SECONDS, _SOME = 0.05, 60, 10


class Bar(tqdm):
    """Bar that shows no time that is left until enough is done to estimate it.

    Rankers read ahead and compile kernels, so the first items may come late and together. The speed
    is the mean since the start.
    """

    @property
    def format_dict(self) -> Dict[str, Any]:
        """What the line of the bar is made of; tqdm shows a question mark for a rate of 0."""
        values = super().format_dict
        done, total = self.n - self.initial, self.total or 0
        is_known = done >= _SHARE * (total - self.initial)
        is_known |= done >= _SOME and values["elapsed"] >= _SECONDS
        return {**values, "rate": None if is_known else 0.0}


def progress_bar(total: int, title: str, unit: str, progress: bool, initial: int = 0) -> Any:
    """Make a bar on standard error that its caller updates, and that stays when it is done."""
    return Bar(
        total=total,
        initial=initial,
        desc=printable(title),
        unit=unit,
        delay=1,
        disable=not progress,
        mininterval=_seconds_between(),
        file=sys.stderr,
    )


def _seconds_between() -> float:
    """Least time between two states of a bar, longer in a file than on a terminal."""
    return 0.5 if sys.stderr.isatty() else 20


def with_bar(
    items: Iterable[Item],
    total: Optional[int],
    title: str,
    progress: bool = False,
    unit: str = "question",
) -> Iterable[Item]:
    """Show a bar on standard error while items are computed."""
    return Bar(
        items,
        total=total,
        desc=printable(title),
        unit=unit,
        delay=1,
        leave=False,
        disable=not progress,
        file=sys.stderr,
        mininterval=_seconds_between(),
    )
