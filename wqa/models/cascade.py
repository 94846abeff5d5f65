"""The Cascade Transformer (Soldaini and Moschitti 2020, section 4.3).

One encoder, with a classifier C after each of its layers rho(1) < rho(2) < ... < rho(N). While
ranking, each classifier discards a share alpha of the candidates that are left, and only the
survivors' encodings go on to the next layers. While training, one of the N rankers R_i is drawn
for each mini-batch, and its loss reaches every layer below it, the embeddings included.
"""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import List, Sequence, Tuple, Union

from wqa.config import BackboneConfig
from wqa.errors import OptionError, shorten
from wqa.models.heads import MeanHead
from wqa.models.network import ExitConfig, ExitNetwork


@dataclasses.dataclass(frozen=True)
class CascadeConfig(ExitConfig):
    """Configuration of a cascade.

    Parameters
    ----------
    exits : tuple of int
        rho(1), ..., rho(N); 4, 6, 8, 10, 12 for a base encoder where it is empty.
    """

    exits: Tuple[int, ...] = dataclasses.field(
        default=(),
        metadata={
            "help": "layers with a head, separated by commas (default: every second from the "
            "fourth of twelve, or in proportion)"
        },
    )


class CascadeTransformer(ExitNetwork):
    """Rankers R_1, ..., R_N on one shared encoder, each with a classifier on the mean encoding.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : CascadeConfig, optional
        The exits.
    """

    Config = CascadeConfig

    @staticmethod
    def default_exits(backbone: BackboneConfig) -> Tuple[int, ...]:
        """rho(i) = 4 + 2 (i - 1) (section 4.2); encoders under 12 layers start at a third of their
        depth.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        tuple of int
        """
        depth = backbone.num_layers
        return tuple(range(depth, max(1, min(4, depth // 3)) - 1, -2))[::-1]

    @staticmethod
    def make_head(backbone: BackboneConfig) -> MeanHead:
        """Classifier C.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        MeanHead
        """
        return MeanHead(backbone.units, backbone.head_dropout)


def dropped(alpha: float, k: int) -> int:
    """How many of ``k`` candidates an exit discards: floor(alpha k) (section 4.3.2).

    ``alpha`` counts as the decimal that it prints as: 0.29 of 100 is 29, though the nearest
    binary fraction to 0.29 lies below it.

    Parameters
    ----------
    alpha : float
        Drop ratio, in [0, 1).
    k : int
        Candidates that reach the exit.

    Returns
    -------
    int
        At most ``k - 1`` for ``k`` above 0.
    """
    return math.floor(Decimal(repr(float(alpha))) * k)


def drop_ratios(alpha: Union[float, Sequence[float]], exits: int) -> List[float]:
    """One drop ratio for each exit; the last exit, which ends the ranking, drops nothing.

    Parameters
    ----------
    alpha : float or sequence of float
        One for all exits, or one an exit (the last may be left out; it has no effect).
    exits : int
        N.

    Returns
    -------
    list of float
        N ratios, the last 0.

    Raises
    ------
    OptionError
        If a ratio is outside [0, 1), or there are too many or too few.
    """
    ratios: List[float] = [alpha] * exits if isinstance(alpha, (int, float)) else list(alpha)
    if len(ratios) not in (exits - 1, exits):
        raise OptionError(
            "drop_ratio", f"{len(ratios)} ratios", f"one, or one for each of the {exits} exits"
        )
    for ratio in ratios:
        if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not 0 <= ratio < 1:
            raise OptionError(
                "drop_ratio", shorten(ratio), "a number from 0 up to, not including, 1"
            )
    return [float(ratio) for ratio in ratios[: exits - 1]] + [0.0]
