"""The Multiple-Heads Student, MHS (Matsubara et al. 2022, section 3.3).

A body B_b of b layers, shared by k ranking heads H_h^i of h layers each, written Bb_kHh. Head i
learns from its own loss alone, the body from all of them: L = sum_i lambda_i L_i (equation 4). A
candidate's score is the mean over the heads (equation 5). The authors' code averages the heads'
probabilities, not their logits, and so does this one; the two order candidates differently. The
score is the log-odds of that mean.

Exits on the body, with the heads of a cascade, make the student the last exit of a cascade. No
paper has it.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
from typing import Any, Collection, Dict, List, Set, Tuple

from wqa.models.runtime import Tensor

import numpy as np

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_LAYERS, check_exits
from wqa.config.systems import option
from wqa.errors import EncoderError, OptionError, check_range
from wqa.inference.ensemble import log_odds_of_mean
from wqa.models.backbone import Backbone
from wqa.models.exits import ExitConfig, ExitNetwork
from wqa.models.heads import Branch, FirstPositionHead, Head, MeanHead, Stage
from wqa.models.network import Network
from wqa.pretrained.names import HUGGINGFACE, Names, array_names, huggingface_names, layer_names

#: Outputs of a head's classifier, as in the authors' code.
OUTPUTS = 2


@dataclasses.dataclass(frozen=True)
class MHSConfig(ExitConfig):
    """Configuration of a Multiple-Heads Student.

    Parameters
    ----------
    exits : tuple of int
        Layers of the body with a head of a cascade, counted from 1; none by default. The student
        itself is the exit after them.
    body : int
        b, the layers that all heads share; 0 for those of the encoder less ``head_layers``.
    heads : int
        k, the number of ranking heads.
    head_layers : int
        h, the layers of a head.
    head_weights : tuple of float
        lambda_1, ..., lambda_k, the weights of the heads' losses (equation 4); if empty, 1 each.

    Raises
    ------
    OptionError
        If a number is out of range, or the weights are not k numbers from 0 of which one is above.
    """

    exits: Tuple[int, ...] = option(
        (),
        "layers of the body with a head of a cascade, separated by commas, at which "
        "candidates can be dropped before the student (default: none)",
    )
    body: int = option(0, "layers that all heads share, 0 for the encoder's less those of a head")
    heads: int = option(3, "ranking heads")
    head_layers: int = option(1, "layers of a head")
    head_weights: Tuple[float, ...] = option(
        (), "weight of each head's loss, separated by commas (default: 1 each)"
    )

    def __post_init__(self) -> None:
        check_range("body", self.body, 0, MOST_LAYERS)
        check_range("heads", self.heads, 1, MOST_LAYERS)
        check_range("head_layers", self.head_layers, 1, MOST_LAYERS)
        weights = self.head_weights
        if weights and len(weights) != self.heads:
            expected = f"{self.heads}, one for each of the heads"
            raise OptionError("head_weights", f"{len(weights)} weights", expected)
        for weight in weights:
            check_range("head_weights", weight, 0.0)
        if weights and not any(weights):
            raise OptionError("head_weights", "0 for all heads", "a weight above 0")

    @property
    def exit_count(self) -> int:
        """Number of exits, of which the student is the last."""
        return len(self.exits) + 1

    def layers_of(self, backbone: BackboneConfig) -> int:
        """Number of layers that the network builds."""
        body = self.body or backbone.num_layers - self.head_layers
        return body + self.heads * self.head_layers


class MultipleHeads(Head):
    """The k ranking heads, and the mean of their probabilities (equation 5).

    Parameters
    ----------
    branches : sequence of Branch
        Layers and classifier of each head.
    """

    reads = "all"

    def __init__(self, branches: List[Branch], **kwargs) -> None:
        super().__init__(**kwargs)
        for number, branch in enumerate(branches, 1):
            self.register_child(branch, f"branch_{number}")

    def branches(self) -> List[Branch]:
        return list(self._children.values())

    def combine(self, scores: np.ndarray) -> np.ndarray:
        """Log-odds of the mean over heads of the probability of the positive class."""
        heads = scores.shape[1]
        return log_odds_of_mean(scores.T, (1 / heads,) * heads)

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        scores = _separate(F, self, hidden, valid_length)
        # log sum_i sigmoid(s_i) - log sum_i sigmoid(-s_i): no probability is rounded to 0 or 1.
        positive = -F.Activation(-scores, act_type="softrelu")  # log sigmoid(s_i), (B, k)
        negative = -F.Activation(scores, act_type="softrelu")
        return _log_sum_exp(F, positive) - _log_sum_exp(F, negative)


class SeparateHeads(Head):
    """The scores of the ranking heads, not combined: (B, k), for training.

    Parameters
    ----------
    heads : MultipleHeads
        Heads that it shares.
    """

    reads = "all"

    def __init__(self, heads: MultipleHeads, **kwargs) -> None:
        super().__init__(**kwargs)
        self.heads = heads

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        return _separate(F, self.heads, hidden, valid_length)


def _separate(F, heads: MultipleHeads, hidden: Tensor, valid_length: Tensor) -> Tensor:
    """Scores of all heads, (B, k)."""
    return F.stack(*[branch(hidden, valid_length) for branch in heads.branches()], axis=1)


def _log_sum_exp(F, values: Tensor) -> Tensor:
    """log sum_i exp(v_i) of each row, (B,)."""
    greatest = F.max(values, axis=1, keepdims=True)  # (B, 1)
    sums = F.sum(F.exp(F.broadcast_sub(values, greatest)), axis=1)  # (B,)
    return F.log(sums) + F.reshape(greatest, (-1,))


class MultipleHeadsStudent(ExitNetwork):
    """A body and k ranking heads; the score is the log-odds of the heads' mean probability.

    The network counts as one of b + h layers, the layer of its last exit. Its heads own their
    layers, and the encoder's layers above b + h do not exist in it.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the full encoder, of which the body has the first b layers.
    config : MHSConfig, optional
        Sizes of body and heads, and early exits.

    Raises
    ------
    OptionError
        If b + h is above the encoder's layers, or an early exit is not on the body.
    """

    Config = MHSConfig

    def choose_exits(self) -> Tuple[int, ...]:
        config, depth = self.own_config, self.num_layers
        body = config.body or depth - config.head_layers
        if body < 1:
            expected = f"fewer than {depth}, the layers of the encoder"
            raise OptionError("head_layers", config.head_layers, expected)
        last = body + config.head_layers
        if last > depth:
            problem = f"{body} + {config.head_layers} = {last} layers"
            expected = f"at most {depth}, the layers of the encoder"
            raise OptionError("body and head_layers", problem, expected)
        if config.exits:
            check_exits(config.exits, body)
        weights = config.head_weights or (1.0,) * config.heads
        self.own_config = dataclasses.replace(config, body=body, head_weights=weights)
        return (*config.exits, last)

    def make_backbone(self) -> Backbone:
        """The body: embeddings and the first b layers."""
        return Backbone(dataclasses.replace(self.config, num_layers=self.own_config.body))

    def make_head(self, layer: int) -> Head:
        """Classifier C at an early exit; the ranking heads after the body."""
        config = self.config
        if layer < self.exits[-1]:
            return MeanHead(config.units, config.head_dropout)
        branches = []
        for _ in range(self.own_config.heads):
            layers = self.backbone.new_layers(self.own_config.head_layers)
            classifier = FirstPositionHead(
                config.units, config.head_dropout, config.family, outputs=OUTPUTS
            )
            branches.append(Branch(layers, classifier))
        return MultipleHeads(branches)

    def separate_path(self) -> Stage:
        """The path from token ids to the scores of all heads, for training.

        Returns
        -------
        Stage
            Embeddings, body and heads. Its second output is (B, k), the log-odds of each head.
        """
        return Stage(self.backbone.embeddings, self.backbone.layers, SeparateHeads(self.heads[-1]))

    def members(self) -> List[Network]:
        """The rankers R_i(x) = H_h^i(B_b(x)), each the body and one head."""
        return [Member(self, branch) for branch in self.heads[-1].branches()]

    def stage_work(self) -> List[float]:
        *early, _ = super().stage_work()
        layers = self.own_config.layers_of(self.config) - sum(self.own_config.exits[-1:])
        return [*early, float(layers * self.config.layer_work)]


class Member(Network):
    """The body and one ranking head of a student, which scores by itself.

    Parameters
    ----------
    student : MultipleHeadsStudent
        Student whose parameters it shares.
    branch : Branch
        One of the student's heads.
    """

    def __init__(self, student: MultipleHeadsStudent, branch: Branch, **kwargs) -> None:
        super().__init__(student.config, **kwargs)
        self.exits = student.exits[-1:]
        self.backbone = student.backbone
        layers = self.backbone.layers + branch.layers
        self.path = Stage(self.backbone.embeddings, layers, branch.head, last=True)

    def encoder_stages(self) -> List[Stage]:
        return [self.path]

    def stage_work(self) -> List[float]:
        return [float(len(self.path.layers) * self.config.layer_work)]

    def hybrid_forward(self, F, *inputs: Tensor) -> Tensor:
        _, scores = self.path(*inputs)
        return scores


#: Starts of the names of the body's layers, of the heads, and of the encoder that repeats them.
BODY, HEADS, CORE = "cerberus_shared_encoder.layer", "cerberus_heads", "core_base_model"


class StudentLayout:
    """``cerberus_model.pt``, the checkpoint of the Multiple-Heads Student's authors.

    Their PyTorch code (amazon-science/wqa-cerberus, Matsubara et al. 2022) saves the state
    dictionary of a module that shares its layers between several names: ``embeddings`` and
    ``cerberus_shared_encoder.layer.N`` are the body, ``cerberus_heads.I.layer.J`` and
    ``cerberus_heads.I.classifier`` are head I. ``core_base_model`` is the encoder from which the
    student starts; it repeats the embeddings, the body and head 0. Inside, all names are those of
    Hugging Face's ELECTRA. The numbers of layers and heads are in the names alone. A file's tensors
    have plain names, which `names` uses, by `plain_names`.
    """

    system = "mhs"
    file_name = "cerberus_model.pt"
    family = "electra"

    def recognizes(self, tensors: Collection[str]) -> bool:
        """Whether a file is of this form."""
        return any(name.startswith(f"{HEADS}.") for name in tensors)

    def plain_names(self, tensors: Collection[str]) -> Dict[str, str]:
        """Plain names of a file's tensors."""
        family, plain = HUGGINGFACE[self.family], {name: name for name in tensors}
        # The repeated encoder alone has the projection of narrow embeddings.
        projection = rf"{CORE}\.(?:{family.prefix}\.)?({family.projection}\..*)"
        for name in tensors:
            match = re.fullmatch(projection, name)
            if match:
                plain.setdefault(match[1], name)
        return plain

    def options(self, path: pathlib.Path, tensors: Collection[str]) -> Dict[str, Any]:
        """Read the configuration of the system from the names of the tensors."""
        numbers: Dict[str, Set[int]] = collections.defaultdict(set)
        for name in tensors:
            for start in (BODY, HEADS, rf"{HEADS}\.\d{{1,6}}\.layer"):
                match = re.match(rf"({start})\.(\d{{1,6}})\.", name)
                if match:
                    numbers[match[1]].add(int(match[2]))
        options = {"body": len(numbers[BODY]), "heads": len(numbers[HEADS])}
        depths = [len(numbers[f"{HEADS}.{head}.layer"]) for head in range(options["heads"])]
        if len(set(depths)) > 1:
            problem = f"layers of the heads: {', '.join(map(str, depths))}"
            raise EncoderError(path, problem, "heads of one depth", "fetch the file again")
        return {**options, "head_layers": depths[0]}

    def names(self, network: Network) -> Names:
        """Names of the tensors of a network."""
        names: Names = {}
        for ours, theirs in huggingface_names(network.encoders[0].config).items():
            body = [re.sub(r"^encoder\.layer\.", f"{BODY}.", name) for name in theirs]
            names[f"backbone.{ours}"] = body
        family, last = HUGGINGFACE[self.family], f"head_{network.exits[-1]}"
        for head in range(network.own_config.heads):
            branch, start = f"{last}.branch_{head + 1}", f"{HEADS}.{head}"
            for layer in range(network.own_config.head_layers):
                tensors = f"{start}.layer.{layer}."
                names.update(layer_names(f"{branch}.layers.{layer}.", family.parts, tensors))
            for part, dense in family.classifier.items():
                names.update(array_names(f"{branch}.head.{part}", [f"{start}.{dense}"]))
        return names
