"""What a stage of a ranker discards: a share of its candidates, or all but the best k."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from wqa.errors import OptionError, shorten
from wqa.models.cascade import dropped

#: A drop ratio for all stages, or one a stage; None where the stage keeps a number instead.
DropRatio = Union[None, float, Sequence[Optional[float]]]
#: A number of candidates for all stages, or one a stage; None where the stage has a drop ratio.
Keep = Union[None, int, Sequence[Optional[int]]]

T = TypeVar("T")


class Drop(NamedTuple):
    """The rule of one stage. ``Drop()`` discards nothing."""

    ratio: float = 0.0  # alpha, the share that is discarded, in [0, 1)
    keep: int = 0  # k, how many candidates go on; 0: the ratio decides

    @property
    def discards(self) -> bool:
        """Whether the stage can discard a candidate at all."""
        return self.ratio > 0 or self.keep > 0

    def kept(self, candidates: int) -> int:
        """How many of so many candidates go on.

        Parameters
        ----------
        candidates : int
            Candidates that reach the end of the stage.

        Returns
        -------
        int
        """
        if self.keep:
            return min(self.keep, candidates)
        return candidates - dropped(self.ratio, candidates)


def check_drops(stages: int, drop_ratio: DropRatio = None, keep: Keep = None) -> Tuple[Drop, ...]:
    """One rule for each stage; the last stage, which ends the ranking, discards nothing.

    Parameters
    ----------
    stages : int
        Stages of the ranker, N.
    drop_ratio : float, or sequence of float or None, optional
        alpha, in [0, 1): one for all stages, or one a stage. The entry of the last stage may be
        left out; it has no effect.
    keep : int, or sequence of int or None, optional
        k, from 1: how many candidates go on, likewise. A stage has one of the two; a stage with
        neither discards nothing.

    Returns
    -------
    tuple of Drop
        N rules.

    Raises
    ------
    OptionError
        If a value is out of range, there are too many or too few, or a stage has both.
    """
    ratios = _one_a_stage(drop_ratio, stages, "drop_ratio")
    numbers = _one_a_stage(keep, stages, "keep")
    return tuple(map(_drop, ratios, numbers)) + (Drop(),)


def _one_a_stage(
    values: Union[None, T, Sequence[Optional[T]]], stages: int, name: str
) -> List[Optional[T]]:
    """Entries of the stages that can discard: all but the last."""
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
            "a number of candidates that go on is given as keep",
        )
    return Drop(ratio=float(ratio))
