"""Training of the Multiple-Heads Student (Matsubara et al. 2022, section 3.3).

Each ranking head has a loss of its own, and their weighted sum is minimised (equation 4): a head
learns from its loss alone, embeddings and body from all of them. The loss of a head is that of
equation 1 with its own teacher, or the labels' alone where there are no teachers.

With early exits on the body an update draws one exit, uniformly, as that of a cascade does; the
last one trains all heads. An early exit stands for the whole student: with a teacher for each head
it learns from the mean of the losses with all of them.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx

from wqa.errors import OptionError
from wqa.models import Network
from wqa.models.exits import ExitConfig
from wqa.models.heads import FirstPositionHead
from wqa.systems.mhs.network import StudentStart
from wqa.training.schedules import ExitTask
from wqa.training.start import INITIAL_SIGMA, Start, copy_layers, copy_parameters
from wqa.training.task import Setup

#: Name of the system, for starts from a student.
SYSTEM = "mhs"
#: Fields of the configuration that a start from another student must share.
_SHAPE = ("body", "heads", "head_layers")


class MHSTask(ExitTask):
    """Labelled pairs for a `wqa.systems.mhs.network.MultipleHeadsStudent`.

    It takes the parameters of `PairTask`.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._paths[-1] = self.network.separate_path()

    @property
    def taught_scores(self) -> int:  # type: ignore[override]
        """Number of heads; with a teacher for each, head i learns from teacher i."""
        return self.network.own_config.heads

    @classmethod
    def make_network(cls, setup: Setup) -> Network:
        network = super().make_network(setup)
        run = setup.start.run_config()
        if run is not None and run.system == setup.system.name:
            wanted = [getattr(network.own_config, name) for name in _SHAPE]
            stored = [run.network.get(name) for name in _SHAPE]
            if stored != wanted:
                given = ", ".join(f"{name}={value}" for name, value in zip(_SHAPE, stored))
                raise OptionError(
                    "init",
                    f"a student of {_shape_name(stored)}",
                    f"one of {_shape_name(wanted)}",
                    f"give {given}, or start from another system's run",
                )
        return network

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network from a start of any kind.

        A student of the same shape gives all of its parts. Any other start gives embeddings, the
        first b layers to the body, and the next h layers to every head. The heads' classifiers are
        copies of a run's at layer b + h, if it has one, and new otherwise.
        """
        network, run = self.network, start.run_config()
        if run is not None and run.system == SYSTEM:
            return start.fill(network, devices)
        model = StudentStart(network.config, ExitConfig(network.exits))
        line = start.fill(model, devices)
        network.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=list(devices))
        last = network.exits[-1]
        _copy_start(model, network, start.holds(model, f"head_{last}"))
        body = network.own_config.body
        layers = ", ".join(str(layer + 1) for layer in range(body, last))
        noun = "layer" if last - body == 1 else "layers"
        return f"{line or start.name}; every head starts from {noun} {layers}"

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        scores = self.scores(batch, update)  # (rows, k), or (rows,) of an early exit
        if self.drawn_exit(update) < len(self._paths) - 1:
            return {"loss": self._early_loss(scores, batch, update)}
        losses = {}
        for index, weight in enumerate(self.network.own_config.head_weights):
            score = mx.nd.reshape(scores[:, index : index + 1], (-1,))
            losses[f"head_{index + 1}"] = weight * self.score_loss(score, batch, update, index)
        if len(self._paths) == 1:
            return losses
        # The log averages losses over updates, and an update with another exit has no heads.
        return {"loss": mx.nd.add_n(*losses.values())}

    def _early_loss(
        self, scores: mx.nd.NDArray, batch: Dict[str, mx.nd.NDArray], update: int
    ) -> mx.nd.NDArray:
        """Loss of an early exit: the mean of the losses that the heads' teachers give it."""
        count = 1  # without a teacher for each head, all of these losses are equal
        if self.config.teachers and self.config.teaching == "each":
            count = self.taught_scores
        losses = [self.score_loss(scores, batch, update, index) for index in range(count)]
        return mx.nd.add_n(*losses) / count


def _copy_start(model: StudentStart, network: Network, has_classifier: bool) -> None:
    """Copy what a start has filled into a student.

    ``has_classifier`` says whether the classifier is the start's, not new.
    """
    body = network.own_config.body
    copy_parameters(model.backbone.embeddings, network.backbone.embeddings)
    copy_layers(model.backbone.layers[:body], network.backbone.layers)
    for source, target in zip(model.heads, network.heads[:-1]):
        copy_parameters(source, target)
    classifier = model.heads[-1]
    for branch in network.heads[-1].branches():
        copy_layers(model.backbone.layers[body:], branch.layers)
        # A pooler is the start's too; all else of a new classifier differs from head to head.
        if has_classifier or classifier.pooler is not None:
            copy_parameters(classifier.dense, branch.head.dense)
        if has_classifier:
            _split_output(classifier, branch.head)


def _split_output(source: FirstPositionHead, target: FirstPositionHead) -> None:
    """Fill two outputs whose difference is the one output of another classifier."""
    for name in ("weight", "bias"):
        values = getattr(source.out, name).data(source.out.weight.list_ctx()[0])
        getattr(target.out, name).set_data(mx.nd.concat(-values / 2, values / 2, dim=0))


def _shape_name(shape: Sequence[object]) -> str:
    body, heads, layers = shape
    return f"B{body}_{heads}H{layers}"
