"""What a ranking costs, beside what the full encoder would: as planned, and as it ran."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Union

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.cascade import drop_ratios, dropped


def relative_cost(
    exits: Sequence[int],
    drop_ratio: Union[float, Sequence[float]] = 0.0,
    num_layers: Optional[int] = None,
    shared: bool = True,
    batch_size: Optional[int] = None,
) -> float:
    """Relative cost per batch of a cascade or a sequence of rankers (Soldaini and Moschitti 2020,
    Table 3).

    Layers run, weighted by the candidates that run them, over those of the full encoder. Embeddings
    and heads are not counted, nor is anything for a candidate's length.

    Parameters
    ----------
    exits : sequence of int
        rho(1), ..., rho(N): layers of a cascade's exits, or of the rankers of a sequence. One alone
        is a shallower ranker.
    drop_ratio : float or sequence of float
        alpha: one for every exit but the last, or one an exit.
    num_layers : int, optional
        Layers of the full encoder; those of the last exit by default.
    shared : bool
        Whether the exits share one encoder, as in a cascade; in a sequence of independent rankers
        (section 4.2) each one runs all of its layers.
    batch_size : int, optional
        b: whole candidates, of which each exit discards floor(alpha k) (section 4.3.2). Without it
        fractions of candidates are, as in the published column.

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
    if (
        not order
        or min(order) < 1
        or max(order) > depth
        or (shared and order != sorted(set(order)))
    ):
        raise OptionError(
            "exits", ",".join(map(str, order)) or "nothing", f"increasing layers from 1 to {depth}"
        )
    if batch_size is not None and batch_size < 1:
        raise OptionError("batch_size", batch_size, "a whole number above 0")
    total, left, below = 0.0, 1.0 if batch_size is None else batch_size, 0
    start = left
    for rho, alpha in zip(order, drop_ratios(drop_ratio, len(order))):
        total += (rho - below) * left
        left -= alpha * left if batch_size is None else dropped(alpha, int(left))
        below = rho if shared else 0
    return total / (depth * start)


def layer_work(config: BackboneConfig) -> int:
    """Multiply-adds of one layer's products for one token, attention's own left out.

    Parameters
    ----------
    config : BackboneConfig

    Returns
    -------
    int
    """
    return config.units * (4 * config.units + 2 * config.hidden_size)


class Cost(NamedTuple):
    """Cost of one question, in layers times what ran through them; blank candidates cost nothing.

    ``paper`` is the relative cost that the drop ratios promise (Soldaini and Moschitti 2020,
    Table 3); the other fields count what ran.
    """

    paper: float  # relative, 1 is the full encoder
    candidate_layers: float  # layers x candidates
    full_candidate_layers: float
    token_layers: float  # layers x tokens, without padding
    padded_token_layers: float  # layers x tokens, with the padding of this question's rows
    full_token_layers: float  # without padding

    @property
    def relative(self) -> float:
        """Layers x candidates that ran, over the full encoder's."""
        return (
            self.candidate_layers / self.full_candidate_layers
            if self.full_candidate_layers
            else 0.0
        )

    @property
    def relative_tokens(self) -> float:
        """Layers x tokens that ran, over the full encoder's, padding in neither."""
        return self.token_layers / self.full_token_layers if self.full_token_layers else 0.0


def total(costs: Sequence[Cost]) -> Cost:
    """Add the costs of several questions up.

    Parameters
    ----------
    costs : sequence of Cost

    Returns
    -------
    Cost
        Sums; ``paper`` is the mean weighted by candidates.
    """
    sums = [sum(column) for column in list(zip(*costs))[1:]]
    paper = sum(cost.paper * cost.full_candidate_layers for cost in costs)
    return Cost(paper / sums[1] if sums[1] else 0.0, *sums)
