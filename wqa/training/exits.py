"""Training of networks with exits (Soldaini and Moschitti 2020, section 4.3.1).

Each update draws one of the N rankers R_i, uniformly. The gradient of its loss reaches every layer
below the exit, and the embeddings. The update does not change the layers and heads above the exit.
A monolithic ranker is the case N = 1.
"""

from __future__ import annotations

from typing import Any, Dict

import mxnet as mx

from wqa.training.schedules import exit_of_update
from wqa.training.task import PairTask


class ExitTask(PairTask):
    """Labelled pairs for an `wqa.models.network.ExitNetwork`, one exit an update.

    It takes the parameters of `PairTask`. The exits are one ranker at several depths: whichever an
    update trains learns from the teachers as the only score of a student does.
    """

    taught_scores = 1

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._paths = [self.network.path(index) for index in range(len(self.network.exits))]
        trained = getattr(self.network.own_config, "trained_exits", "uniform")
        self._depths = self.network.exits if trained == "depth" else None

    def hybridize(self, active: bool) -> None:
        for path in self._paths:
            path.hybridize(active)

    def scores(self, batch: Dict[str, mx.nd.NDArray], update: int) -> mx.nd.NDArray:
        _, scores = self._paths[self.drawn_exit(update)](*self.inputs(batch))
        return scores

    def drawn_exit(self, update: int) -> int:
        """Draw the exit that an update trains, by depth where ``trained_exits`` is ``"depth"``.

        Parameters
        ----------
        update : int
            Number of the update, from 1.

        Returns
        -------
        int
            Index of the exit, from 0.
        """
        exits = len(self.network.exits)
        return exit_of_update(self.config.seed, update, exits, self._depths)
