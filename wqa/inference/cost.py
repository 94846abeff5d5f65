"""What a ranking cost, beside what the full encoder would have."""
from __future__ import annotations

from typing import NamedTuple, Sequence


class Cost(NamedTuple):
    """Cost of one question, in layers times what ran through them; blank candidates cost nothing.

    ``paper`` is the relative cost that the drop ratios promise (Soldaini and Moschitti 2020,
    Table 3); the other fields count what ran.
    """

    paper: float               # relative, 1 is the full encoder
    candidate_layers: int      # layers x candidates
    full_candidate_layers: int
    token_layers: int          # layers x tokens, without padding
    padded_token_layers: int   # layers x tokens, with the padding of this question's rows
    full_token_layers: int     # without padding

    @property
    def relative(self) -> float:
        """Layers x candidates that ran, over the full encoder's."""
        return self.candidate_layers / self.full_candidate_layers if self.full_candidate_layers else 0.0

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
