"""A bar of progress on standard error."""

from __future__ import annotations

import sys
from typing import Iterable, Optional, TypeVar

from wqa.errors import printable

Item = TypeVar("Item")


def with_bar(
    items: Iterable[Item],
    total: Optional[int],
    title: str,
    progress: bool = False,
    unit: str = "question",
) -> Iterable[Item]:
    """Show a bar on standard error while items are computed.

    Parameters
    ----------
    items : iterable
        Items that are computed one by one.
    total : int, optional
        Number of items; None where it is not known.
    title : str
        Text of the bar.
    progress : bool
        Show the bar if it takes longer than a second.
    unit : str
        Name of an item.

    Returns
    -------
    iterable
        The items.
    """
    from tqdm import tqdm

    return tqdm(
        items,
        total=total,
        desc=printable(title),
        unit=unit,
        delay=1,
        leave=False,
        disable=not progress,
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else 20,
    )
