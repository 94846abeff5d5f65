"""Networks: the base class of all systems.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, ClassVar, Dict, List, Mapping, NamedTuple, Optional, Tuple

from mxnet.gluon import HybridBlock, Parameter, ParameterDict, nn

from wqa.config import BackboneConfig
from wqa.config.encoders import check_length
from wqa.models.backbone import Backbone, EncoderLayer
from wqa.models.embeddings import break_cycles
from wqa.models.heads import Head, Stage
from wqa.text import PairInputs, Tokenizer


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Base class of the systems' configurations; fields become options of ``wqa train``.

    `wqa.config.systems.option` creates a field with the text of its option, ``without_option`` one
    that the training fills in.
    """

    #: Fields that runs of earlier versions record and that are not read any more, with the value
    #: that means what the network computes today; None for any value.
    RETIRED: ClassVar[Dict[str, Any]] = {}

    @property
    def computes(self) -> str:
        """Kind of the network's output.

        ``"scores"``: log-odds, which rank candidates. ``"spans"``: (B, L, 2) logits of the start
        and the end of an answer. ``"labels"``: (B, labels) logits.
        """
        return "scores"

    @property
    def starts_as(self) -> str:
        """Similarity by which the network of an encoder ranks before its first update.

        It is the rule of a `wqa.data.probe.BaselineName`, and empty where parts are new.
        """
        return ""

    def training_defaults(self) -> Dict[str, Any]:
        """Defaults of fields of `wqa.config.TrainingConfig` that are the system's own, by name."""
        return {}


#: Outputs of a stage that is exported.
ENCODINGS_AND_SCORES = ("last_hidden_state", "logits")


class GraphPart(NamedTuple):
    """A part of a network that is exported as a graph of its own.

    Attributes
    ----------
    name : str
        Name of the graph.
    compute : callable
        Takes symbols of the inputs and returns those of the outputs, as a block does.
    inputs : mapping of str to str
        Type and sizes of the inputs by their names, as `wqa.text.PairInputs.array_types` has them.
    outputs : tuple of str
        Names of the outputs.
    """

    name: str
    compute: Callable[..., Any]
    inputs: Mapping[str, str]
    outputs: Tuple[str, ...] = ("logits",)


class Network(HybridBlock):
    """Base class of the systems' networks.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32, and ``valid_length``, (B,),
    float32; the output is (B,) log-odds of the positive class, or what `computes` says.

    Parameters
    ----------
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    config : NetworkConfig, optional
        Configuration of the system, of the type `Config`; its defaults by default.
    """

    #: Type of the system's configuration.
    Config: Any = NetworkConfig
    #: Layers after which the network scores, if its stages are layers of one encoder.
    exits: Tuple[int, ...] = ()
    #: Backbone of a network of one encoder; None for others.
    backbone: Any = None
    #: Backbone that encodes candidates by themselves; None where there is none.
    document_encoder: Any = None
    #: Predictor of masked tokens, which starts from that of a pretrained encoder where it has one.
    predictor: Any = None
    #: Convolutions of a question and of a candidate, for a network on static word embeddings that
    #: `wqa.engines.sparse` computes. Empty for all others.
    text_filters: Tuple[Any, ...] = ()

    def __init__(
        self, backbone: Optional[BackboneConfig], config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        #: Sizes of the encoder, or None.
        self.config: Any = backbone
        #: Configuration of the system; defaults that depend on the encoder are filled in.
        self.own_config: Any = self.Config() if config is None else config

    def collect_params(self, select: Optional[str] = None) -> ParameterDict:
        self.apply(break_cycles)
        return super().collect_params(select)

    @property
    def computes(self) -> str:
        """Kind of the output, as `NetworkConfig.computes` says."""
        return self.own_config.computes

    @property
    def num_layers(self) -> int:
        """Number of layers of the full encoder; 0 if there is none."""
        return self.config.num_layers if self.config is not None else 0

    @property
    def max_positions(self) -> Optional[int]:
        """Greatest length of an input in tokens; None if there is no limit."""
        return self.config.max_positions if self.config is not None else None

    def text_inputs(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> PairInputs:
        """Build the collator of the network.

        Parameters
        ----------
        tokenizer : Tokenizer
            Tokenizer of the network.
        max_length : int
            Greatest length of an input in tokens, as the run records it.
        long_questions : {"error", "truncate", "skip"}
            What to do with over-long questions.

        Returns
        -------
        PairInputs

        Raises
        ------
        OptionError
            If ``max_length`` leaves no room for a text, or is above the encoder's positions.
        """
        check_length(max_length, self.max_positions)
        return PairInputs(tokenizer, max_length, long_questions)

    @property
    def encoders(self) -> List[Backbone]:
        """Backbones that are initialised from a pretrained encoder."""
        return [] if self.backbone is None else [self.backbone]

    @property
    def heads(self) -> List[Head]:
        """Heads on the encoder, one for each stage."""
        return []

    def constants(self) -> List[Parameter]:
        """Parameters that no training changes.

        Returns
        -------
        list of mxnet.gluon.Parameter
        """
        return []

    def members(self) -> List[Network]:
        """Networks inside this one that score by themselves, of which it combines the scores.

        Returns
        -------
        list of Network
            Networks that share the parameters; empty for a network without such parts.
        """
        return []

    def stages(self) -> List[HybridBlock]:
        """Parts of the network between which candidates can be dropped.

        Returns
        -------
        list of mxnet.gluon.HybridBlock
            The first takes the network's inputs, later stages the encodings of the stage before and
            the valid lengths. A stage returns encodings and scores. A network that is its own only
            stage returns scores alone.
        """
        return [*self.encoder_stages()] or [self]

    def encoder_stages(self) -> List[Stage]:
        """Stages of a network whose stages are all layers and a head.

        Returns
        -------
        list of Stage
            Empty for other networks, which MXNet alone can run.
        """
        return []

    def graph_parts(self, arrays: Mapping[str, str]) -> List[GraphPart]:
        """Parts that are exported as graphs of their own.

        Parameters
        ----------
        arrays : mapping of str to str
            Type and sizes of the network's inputs by their names.

        Returns
        -------
        list of GraphPart
            The network as a whole and, where there are several, its stages.
        """
        parts = [GraphPart("model", self, arrays)]
        stages = self.stages()
        if len(stages) > 1:
            encodings = f"float32 (B, L, {self.config.units})"
            for layer, stage in zip(self.exits, stages):
                parts.append(GraphPart(f"exit_{layer}", stage, arrays, ENCODINGS_AND_SCORES))
                arrays = {"hidden": encodings, "valid_length": arrays["valid_length"]}
        return parts

    def quantized_layers(self) -> List[EncoderLayer]:
        """Layers whose products are computed in 8 bits, in the order in which they are stored.

        Returns
        -------
        list of EncoderLayer
            Those of all stages.
        """
        layers: List[EncoderLayer] = []
        for stage in self.encoder_stages():
            layers += stage.all_layers()
        return layers

    def stage_work(self) -> List[float]:
        """Multiply-adds of each stage for one token, in products with weights.

        Returns
        -------
        list of float
            One number a stage.
        """
        blocks: List[HybridBlock] = []
        self.apply(blocks.append)
        dense = [block for block in blocks if isinstance(block, nn.Dense)]
        return [float(sum(math.prod(block.weight.shape) for block in dense))]

    def list_work(self) -> int:
        """Multiply-adds of a candidate beside those for its tokens, in products with weights.

        Returns
        -------
        int
            0 but for networks on lists.
        """
        return 0

    def full_work(self) -> float:
        """Multiply-adds of the full network for one token: of all layers of its encoder, if any.

        Returns
        -------
        float
        """
        if self.config is None:
            return sum(self.stage_work())
        return float(self.num_layers * self.config.layer_work)


class EncoderNetwork(Network):
    """An encoder by itself: a network whose only stage has no head.

    Parameters
    ----------
    backbone : Backbone
        Encoder with its parameters.
    """

    def __init__(self, backbone: Backbone, **kwargs) -> None:
        super().__init__(backbone.config, **kwargs)
        self.backbone = backbone

    def encoder_stages(self) -> List[Stage]:
        return [Stage(self.backbone.embeddings, self.backbone.layers, None)]
