"""Rules by which a stage drops candidates, and their costs.

A stage drops a share of its candidates, all but the best k, or those whose relevance is below a
threshold.

Costs are multiply-adds of products with weights, beside those of the full encoder, which runs for
every candidate.
"""

from __future__ import annotations

import math
import numbers
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from wqa.errors import OptionError, check_range, shorten

#: A drop ratio for all stages, or one a stage; None for a stage that keeps k.
DropRatio = Union[None, float, Sequence[Optional[float]]]
#: k for all stages, or one a stage; None for a stage with a drop ratio.
Keep = Union[None, int, Sequence[Optional[int]]]
#: A least relevance for all stages, or one a stage; None for a stage with another rule.
DropBelow = Union[None, float, Sequence[Optional[float]]]

T = TypeVar("T")


def dropped(alpha: float, k: int) -> int:
    """Number of candidates that an exit drops, floor(alpha k).

    Soldaini and Moschitti 2020, section 4.3.2. It is the most candidates whose share of k is at
    most ``alpha``, both as float32, as an exported cascade counts them: 0.29 of 100 is 29 and 2/3
    of 3 is 2, though the nearest binary fractions are smaller.
    """
    ratio = np.float32(alpha)
    number = math.floor(float(ratio) * k)
    # Below 2^24 candidates no share but the next one can round down to the ratio.
    if number + 1 < k and np.float32(number + 1) / np.float32(k) <= ratio:
        return number + 1
    return number


class Drop(NamedTuple):
    """The rule of one stage. ``Drop()`` drops nothing."""

    ratio: float = 0.0  # alpha, the share of candidates that is dropped, in [0, 1)
    keep: int = 0  # k, number of candidates that are kept; 0 to drop by the ratio
    below: float = 0.0  # least relevance of a candidate that is kept, in [0, 1)

    @property
    def discards(self) -> bool:
        """Whether the stage can drop a candidate."""
        return self.ratio > 0 or self.keep > 0 or self.below > 0

    def kept(self, candidates: int, relevances: Optional[np.ndarray] = None) -> int:
        """Number of candidates that the stage keeps.

        Parameters
        ----------
        candidates : int
            Number of candidates that the stage scores.
        relevances : numpy.ndarray, optional
            Calibrated relevance of each, for a rule with a least relevance. The best candidate is
            kept whatever it is.

        Returns
        -------
        int
            At most ``candidates``.
        """
        if self.keep:
            return min(self.keep, candidates)
        if self.below and relevances is not None:
            return min(max(int((relevances >= self.below).sum()), 1), candidates)
        return candidates - dropped(self.ratio, candidates)


def check_drops(
    stages: int, drop_ratio: DropRatio = None, keep: Keep = None, drop_below: DropBelow = None
) -> Tuple[Drop, ...]:
    """Check drop ratios, numbers to keep and least relevances, and make a rule of each stage.

    A stage has one of them; with none it drops nothing. The last stage always drops nothing.
    """
    ratios = _one_a_stage(drop_ratio, stages, "drop_ratio")
    numbers = _one_a_stage(keep, stages, "keep")
    least = _one_a_stage(drop_below, stages, "drop_below")
    # The last stage's are checked too, and so are those of a ranker of one stage.
    *drops, _ = map(_drop, ratios, numbers, least)
    return (*drops, Drop())


def _one_a_stage(
    values: Union[None, T, Sequence[Optional[T]]], stages: int, name: str
) -> List[Optional[T]]:
    """Entries of all stages; that of the last is None where it is left out."""
    if values is None or isinstance(values, numbers.Real):
        return [values] * stages
    is_list = isinstance(values, Iterable) and not isinstance(values, str)
    entries = list(values) if is_list else []  # type: ignore[arg-type]
    if len(entries) not in (stages - 1, stages) or not entries:
        problem = f"{len(entries)} values" if is_list else shorten(values)
        raise OptionError(name, problem, f"a number, or one for each of {stages} stages")
    return entries if len(entries) == stages else [*entries, None]


def _drop(ratio: Optional[float], keep: Optional[int], below: Optional[float]) -> Drop:
    given = {"drop_ratio": ratio, "keep": keep, "drop_below": below}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        values = " and ".join(map(shorten, named.values()))
        raise OptionError(" and ".join(named), f"{values} for one stage", "one of them a stage")
    for name, value in named.items():
        if name == "keep":
            check_range(name, value, 1)
            return Drop(keep=int(value))
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number or not 0 <= value < 1 or np.float32(value) == 1:
            hint = "to keep 5 candidates, give keep=5" if name == "drop_ratio" else ""
            expected = "a number from 0 up to, not including, 1"
            raise OptionError(name, shorten(value), expected, hint)
        return Drop(below=float(value)) if below is not None else Drop(ratio=float(value))
    return Drop()


def relative_cost(
    exits: Sequence[int],
    drop_ratio: Union[float, Sequence[float]] = 0.0,
    num_layers: Optional[int] = None,
    shared: bool = True,
    stage_layers: Optional[Sequence[float]] = None,
) -> float:
    """Relative cost per batch of a cascade or a sequence (Soldaini and Moschitti 2020, Table 3).

    It is the number of layers, weighted by the candidates that run them, over that of the full
    encoder. Embeddings, heads and the candidates' lengths do not count, and an exit drops a
    fraction alpha of the candidates, not a whole number of them.

    Parameters
    ----------
    exits : sequence of int
        rho(1), ..., rho(N): layers of a cascade's exits, or depths of the rankers of a sequence.
        A single number is a shallower ranker.
    drop_ratio : float or sequence of float
        alpha: one for all exits but the last, or one an exit.
    num_layers : int, optional
        Number of layers of the full encoder; by default that of the last exit.
    shared : bool
        Whether the exits share one encoder, as in a cascade. In a sequence of independent rankers
        (section 4.2) each ranker runs all of its layers.
    stage_layers : sequence of float, optional
        Number of layers that each stage runs, where they are not those between the exits: those of
        `Capabilities`.

    Returns
    -------
    float
        1 for the full encoder; 0.629 for a base encoder at 0.3, published as "-37 %".

    Raises
    ------
    OptionError
        If the exits, ratios or sizes do not fit.
    """
    depth = num_layers or (exits[-1] if exits else 0)
    order = list(exits)
    is_increasing = not shared or order == sorted(set(order))
    if not order or min(order) < 1 or max(order) > depth or not is_increasing:
        shown = ",".join(map(str, order)) or "nothing"
        raise OptionError("exits", shown, f"increasing layers from 1 to {depth}")
    if stage_layers is None:
        stage_layers = np.diff(order, prepend=0).tolist() if shared else order
    total, left = 0.0, 1.0
    for layers, drop in zip(stage_layers, check_drops(len(order), drop_ratio)):
        total += layers * left
        left -= drop.ratio * left
    return total / depth


class Cost(NamedTuple):
    """Cost of one question in multiply-adds, beside those of the full network.

    Multiply-adds of different systems are comparable. Those of a transformer layer are its products
    with weights, for each token; attention scores, normalisations, embeddings and heads do not
    count. Blank candidates cost nothing.
    """

    #: Relative cost expected from the drop ratios (Soldaini and Moschitti 2020, Table 3).
    paper: float
    #: Multiply-adds, each candidate counted as one token; for ratios over candidates.
    candidate_work: float
    #: The same, if every candidate ran through the full network.
    full_candidate_work: float
    #: Multiply-adds that ran on tokens; padding does not count.
    multiply_adds: float
    #: The same, if every candidate ran through the full network.
    full_multiply_adds: float

    @property
    def relative(self) -> float:
        """Share of the full network's multiply-adds that ran, each candidate counted alike."""
        return _ratio(self.candidate_work, self.full_candidate_work)

    @property
    def relative_tokens(self) -> float:
        """Share of the full network's multiply-adds that ran, candidates weighted by tokens."""
        return _ratio(self.multiply_adds, self.full_multiply_adds)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


#: The cost of a question whose candidates are all blank.
FREE = Cost(0.0, 0.0, 0.0, 0.0, 0.0)


def total(costs: Sequence[Cost]) -> Cost:
    """Add up the costs of several questions."""
    full = sum(cost.full_candidate_work for cost in costs)
    return combined(costs, full, sum(cost.full_multiply_adds for cost in costs))


def combined(costs: Sequence[Cost], full_candidate_work: float, full_multiply_adds: float) -> Cost:
    """Add up costs, beside the given multiply-adds of a full network."""
    planned = sum(cost.paper * cost.full_candidate_work for cost in costs)
    return Cost(
        _ratio(planned, full_candidate_work),
        sum(cost.candidate_work for cost in costs),
        full_candidate_work,
        sum(cost.multiply_adds for cost in costs),
        full_multiply_adds,
    )
