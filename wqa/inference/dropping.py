"""Rules by which a stage drops candidates: by a drop ratio, or down to the best k."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from wqa.errors import OptionError, shorten

#: A drop ratio for all stages, or one a stage; None for a stage that keeps k.
DropRatio = Union[None, float, Sequence[Optional[float]]]
#: k for all stages, or one a stage; None for a stage with a drop ratio.
Keep = Union[None, int, Sequence[Optional[int]]]

T = TypeVar("T")


def dropped(alpha: float, k: int) -> int:
    """Number of candidates that an exit drops, floor(alpha k).

    Soldaini and Moschitti 2020, section 4.3.2. ``alpha`` is read as a decimal: 0.29 of 100 is 29,
    though the nearest binary fraction to 0.29 is smaller.
    """
    return math.floor(Decimal(repr(float(alpha))) * k)


class Drop(NamedTuple):
    """The rule of one stage. ``Drop()`` drops nothing."""

    ratio: float = 0.0  # alpha, the share of candidates that is dropped, in [0, 1)
    keep: int = 0  # k, number of candidates that are kept; 0 to drop by the ratio

    @property
    def discards(self) -> bool:
        """Whether the stage can drop a candidate."""
        return self.ratio > 0 or self.keep > 0

    def kept(self, candidates: int) -> int:
        """Number of candidates that the stage keeps.

        Parameters
        ----------
        candidates : int
            Number of candidates that the stage scores.

        Returns
        -------
        int
            At most ``candidates``.
        """
        if self.keep:
            return min(self.keep, candidates)
        return candidates - dropped(self.ratio, candidates)


def check_drops(stages: int, drop_ratio: DropRatio = None, keep: Keep = None) -> Tuple[Drop, ...]:
    """Check drop ratios and numbers to keep, and make a rule of each stage.

    A stage has one of the two; with neither it drops nothing. The last stage always drops nothing.
    """
    ratios = _one_a_stage(drop_ratio, stages, "drop_ratio")
    numbers = _one_a_stage(keep, stages, "keep")
    return tuple(map(_drop, ratios, numbers)) + (Drop(),)


def _one_a_stage(
    values: Union[None, T, Sequence[Optional[T]]], stages: int, name: str
) -> List[Optional[T]]:
    """Entries of all stages but the last."""
    if values is None or isinstance(values, (bool, int, float)):
        return [values] * (stages - 1)
    entries = list(values)  # type: ignore[arg-type]
    if isinstance(values, str) or len(entries) not in (stages - 1, stages) or not entries:
        raise OptionError(
            name, f"{len(entries)} values", f"one, or one for each of {stages} stages"
        )
    return entries[: stages - 1]


def _drop(ratio: Optional[float], keep: Optional[int]) -> Drop:
    if ratio is not None and keep is not None:
        raise OptionError(
            "drop_ratio and keep", f"{ratio} and {keep} for one stage", "one of the two a stage"
        )
    if keep is not None:
        if type(keep) is not int or keep < 1:
            raise OptionError("keep", shorten(keep), "a whole number above 0")
        return Drop(keep=keep)
    if ratio is None:
        return Drop()
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio < 1:
        raise OptionError(
            "drop_ratio",
            shorten(ratio),
            "a number from 0 up to, not including, 1",
            "to keep a number of candidates, pass keep",
        )
    return Drop(ratio=float(ratio))


def drop_ratios(alpha: Union[float, Sequence[float]], stages: int) -> List[float]:
    """Check drop ratios alone, and give that of each stage; the last drops nothing."""
    if alpha is None or isinstance(alpha, (list, tuple)) and None in alpha:
        raise OptionError("drop_ratio", "none for a stage", "a number for each stage")
    return [drop.ratio for drop in check_drops(stages, alpha)]
