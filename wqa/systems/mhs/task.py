"""Training of the Multiple-Heads Student (Matsubara et al. 2022, section 3.3).

Each ranking head has a loss of its own, and their weighted sum is minimised (equation 4): a head
learns from its loss alone, embeddings and body from all of them. The loss of a head is that of
equation 1 with its own teacher, or the labels' alone where there are no teachers.

With early exits on the body an update draws one exit, uniformly, as that of a cascade does; the
last one trains all heads. An early exit stands for the whole student: with a teacher for each head
it learns from the mean of the losses with all of them.
"""

from __future__ import annotations

from typing import Any, Sequence

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx

from wqa.models.heads import FirstPositionHead, MeanHead
from wqa.training.schedules import ExitTask
from wqa.training.start import Origin, Start, fill_from
from wqa.training.task import Arrays


class MHSTask(ExitTask):
    """Labelled pairs for a `wqa.systems.mhs.network.MultipleHeadsStudent`.

    It takes the parameters of `PairTask`.
    """

    shape = ("body", "heads", "head_layers")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._paths[-1] = self.network.separate_path()

    @property
    def taught_scores(self) -> int:  # type: ignore[override]
        """Number of heads; with a teacher for each, head i learns from teacher i."""
        return self.network.own_config.heads

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network from a start of any kind.

        A student of the same shape gives all of its parts. Any other start gives embeddings, the
        first b layers to the body, and the next h layers to every head. The heads' classifiers are
        copies of a run's at layer b + h, if it has one, and new otherwise.
        """
        network: Any = self.network
        own, config = network.own_config, network.config
        *early, last = network.exits
        if start.has_shape(own, self.shape):
            return start.fill(network, devices)
        parts = {f"head_{layer}": MeanHead(config.units, config.head_dropout) for layer in early}
        classifier = FirstPositionHead(config.units, config.head_dropout, config.family)
        origin = Origin(config, {**parts, f"head_{last}": classifier})
        has_classifier = start.holds(origin, f"head_{last}")
        body, layers = network.backbone, origin.backbone.layers
        copies = [(body.embeddings, origin.backbone.embeddings), *zip(body.layers, layers)]
        copies += zip(network.heads[:-1], origin.heads)
        branches = network.heads[-1].branches()
        for branch in branches:
            copies += zip(branch.layers, layers[own.body :])
            # A pooler is the start's too; all else of a new classifier differs from head to head.
            if has_classifier or classifier.pooler is not None:
                copies.append((branch.head.dense, classifier.dense))
        line = fill_from(origin, network, copies, start, devices)
        if has_classifier:
            for branch in branches:
                _split_output(classifier, branch.head)
        numbers = ", ".join(map(str, range(own.body + 1, last + 1)))
        return f"{line or start.name}; every head starts from layers {numbers}"

    def losses(self, batch: Arrays, update: int) -> Arrays:
        scores = self.scores(batch, update)  # (rows, k), or (rows,) of an early exit
        if self.drawn_exit(update) < len(self._paths) - 1:
            return {"loss": self._early_loss(scores, batch, update)}
        losses = {}
        for index, weight in enumerate(self.network.own_config.head_weights):
            score = mx.nd.reshape(scores[:, index : index + 1], (-1,))
            loss = self.score_loss(score, batch, update, index)
            losses[f"head_{index + 1}"] = weight * loss
        if len(self._paths) == 1:
            return losses
        # The log averages losses over updates, and an update with another exit has no heads.
        return {"loss": mx.nd.add_n(*losses.values())}

    def _early_loss(self, scores: mx.nd.NDArray, batch: Arrays, update: int) -> mx.nd.NDArray:
        """Loss of an early exit: the mean of the losses that the heads' teachers give it."""
        count = 1  # without a teacher for each head, all of these losses are equal
        config = self.config
        if config.teachers and config.teaching == "each":
            count = self.taught_scores
        losses = []
        for index in range(count):
            losses.append(self.score_loss(scores, batch, update, index))
        return mx.nd.add_n(*losses) / count


def _split_output(source: FirstPositionHead, target: FirstPositionHead) -> None:
    """Fill two outputs whose difference is the one output of another classifier."""
    ctx = source.out.weight.list_ctx()[0]
    for name in ("weight", "bias"):
        halves = getattr(source.out, name).data(ctx) / 2
        both = mx.nd.concat(-halves, halves, dim=0)
        getattr(target.out, name).set_data(both)
