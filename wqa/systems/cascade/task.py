"""Training of the Cascade Transformer by the paper's rule, and by others beyond the paper.

The paper draws the exit of an update uniformly (Soldaini and Moschitti 2020, section 4.3.1), so
that each of N exits gets an N-th of the updates. The other rules give the last exits more of them.
"""

from __future__ import annotations

from typing import Any

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx

from wqa.models.heads import scores_of_stages
from wqa.training.losses import cross_entropy
from wqa.training.schedules import ExitTask
from wqa.training.task import Arrays


class CascadeTask(ExitTask):
    """Labelled pairs for a `wqa.systems.cascade.network.CascadeTransformer`.

    The configuration of the network says which exits an update trains, and how much early exits
    learn from the last one. Every exit learns from the teachers, if there are any: the loss that
    ``distillation`` replaces a share of is then that of equation 1 of Matsubara et al. 2022.

    It takes the parameters of `PairTask`.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        config = self.network.own_config
        self._distillation = config.distillation
        self._stages = self.network.encoder_stages() if config.trained_exits == "all" else []

    def hybridize(self, active: bool) -> None:
        super().hybridize(active)
        for stage in self._stages:
            stage.hybridize(active)

    def losses(self, batch: Arrays, update: int) -> Arrays:
        if not self._stages:
            return super().losses(batch, update)
        *early, last = scores_of_stages(self._stages, *self.network_inputs(batch))
        target = mx.nd.sigmoid(mx.nd.BlockGrad(last))
        losses = {}
        for layer, scores in zip(self.network.exits, early):
            loss = self.score_loss(scores, batch, update)
            if self._distillation:
                share = self._distillation
                loss = (1 - share) * loss + share * cross_entropy(scores, target)
            losses[f"exit_{layer}"] = loss
        losses[f"exit_{self.network.exits[-1]}"] = self.score_loss(last, batch, update)
        return losses
