"""Networks: the base class of all systems, and encoders with a head after each exit.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mxnet.gluon import HybridBlock, Parameter, ParameterDict, nn

from wqa.config import BackboneConfig
from wqa.config.encoders import check_exits, check_length
from wqa.config.systems import option
from wqa.errors import OptionError
from wqa.models.backbone import Backbone, EncoderLayer, break_cycles
from wqa.models.heads import Head, Stage, layers_before, score, scores_of_stages
from wqa.models.runtime import Tensor
from wqa.text import PairEncoder, Tokenizer


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Base class of the systems' configurations; fields become options of ``wqa train``.

    `wqa.config.systems.option` creates a field with the text of its option, ``without_option`` one
    that the training fills in.
    """

    @property
    def computes(self) -> str:
        """Kind of the network's output.

        ``"scores"``: log-odds, which rank candidates. ``"spans"``: (B, L, 2) logits of the start
        and the end of an answer. ``"labels"``: (B, labels) logits. ``"paragraphs"``: (B, k)
        log-odds, and (B, M, C) encodings of masked positions.
        """
        return "scores"

    def training_defaults(self) -> Dict[str, Any]:
        """Defaults of fields of `wqa.config.TrainingConfig` that are the system's own, by name."""
        return {}

    def layers_of(self, backbone: BackboneConfig) -> int:
        """Number of layers that the network builds; files are checked against it.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        int
        """
        return backbone.num_layers


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
    #: Backbone that encodes candidates by themselves; None where there is none.
    document_encoder: Any = None
    #: Predictor of masked tokens, which starts from that of a pretrained encoder where it has one.
    predictor: Any = None
    #: Convolutions of a question and of a candidate, for a network on static word embeddings that
    #: `wqa.engines.sparse` computes. Empty for all others.
    text_filters: Sequence[Any] = ()

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

    def text_encoder(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> PairEncoder:
        """Make the encoder of the network's inputs.

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
        PairEncoder

        Raises
        ------
        OptionError
            If ``max_length`` leaves no room for a text, or is above the encoder's positions.
        """
        check_length(max_length, self.max_positions)
        return PairEncoder(tokenizer, max_length, long_questions)

    @property
    def encoders(self) -> List[Backbone]:
        """Backbones that are initialised from a pretrained encoder."""
        return []

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
        return [self]

    def encoder_stages(self) -> List[Stage]:
        """Stages of a network whose stages are all layers and a head.

        Returns
        -------
        list of Stage
            Empty for other networks, which MXNet alone can run.
        """
        return []

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
        return [float(sum(_dense_work(self)))]

    def full_work(self) -> float:
        """Multiply-adds of the full network for one token.

        Returns
        -------
        float
        """
        return sum(self.stage_work())


def _dense_work(block: HybridBlock) -> List[int]:
    """Multiply-adds of each dense layer inside a block, for one row."""
    work = []
    if isinstance(block, nn.Dense):
        rows, width = block.weight.shape
        work.append(rows * width)
    for child in block._children.values():
        work += _dense_work(child)
    return work


#: Exits that an update may train: one, drawn uniformly or by depth, or all.
TRAINED_EXITS = ("uniform", "depth", "all")


@dataclasses.dataclass(frozen=True)
class ExitConfig(NetworkConfig):
    """Configuration of networks with exits.

    Parameters
    ----------
    exits : tuple of int
        Layers with a head, counted from 1; if empty, the system's default.
    """

    exits: Tuple[int, ...] = option(
        (), "layers with a head, separated by commas (default: as the papers)"
    )


class ExitNetwork(Network):
    """An encoder with a head after each of its exits; a monolithic ranker has one exit.

    The network computes the score of the last exit, and `exit_scores` those of all. `path` returns
    one ranker, for training, and `stage` the part between two exits, for ranking. Both share the
    parameters of the network.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ExitConfig, optional
        Exits of the network.

    Raises
    ------
    OptionError
        If there is no encoder, or an exit is not one of its layers.
    """

    Config: Any = ExitConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[ExitConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        if backbone is None:
            raise OptionError("backbone", "none", "the sizes of the network's encoder")
        self.exits = self.choose_exits()
        with self.name_scope():
            self.backbone = self.make_backbone()
            for layer in self.exits:
                self.register_child(self.make_head(layer), f"head_{layer}")

    def choose_exits(self) -> Tuple[int, ...]:
        """Choose the exits, check them, and fill in what `own_config` leaves to the encoder.

        Returns
        -------
        tuple of int
            Layers after which the network scores, ascending.

        Raises
        ------
        OptionError
            If an exit is not a layer of the encoder.
        """
        exits = self.own_config.exits or self.default_exits(self.config)
        exits = check_exits(exits, self.num_layers)
        self.own_config = dataclasses.replace(self.own_config, exits=exits)
        return exits

    def make_backbone(self) -> Backbone:
        """A new encoder; ``config``, ``own_config`` and ``exits`` of the network are set already.

        Returns
        -------
        Backbone
            Embeddings and the layers that all heads share.
        """
        return Backbone(self.config)

    @staticmethod
    def default_exits(backbone: BackboneConfig) -> Tuple[int, ...]:
        """Default exits of an encoder.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        tuple of int
            Layers, ascending.
        """
        return (backbone.num_layers,)

    def make_head(self, layer: int) -> Head:
        """A new head; the network's configurations and ``backbone`` are set already.

        Parameters
        ----------
        layer : int
            Layer that the head follows, from 1.

        Returns
        -------
        Head
            A head that is not initialised.
        """
        raise NotImplementedError

    @property
    def encoders(self) -> List[Backbone]:
        return [self.backbone]

    @property
    def heads(self) -> List[Head]:
        return [self._children[f"head_{layer}"] for layer in self.exits]

    def head(self, index: int) -> Head:
        """Head of an exit.

        Parameters
        ----------
        index : int
            Index of the exit, from 0.

        Returns
        -------
        Head
        """
        return self.heads[index]

    def path(self, index: int) -> Stage:
        """The ranker from token ids to the score of one exit.

        Parameters
        ----------
        index : int
            Index of the exit that scores.

        Returns
        -------
        Stage
            Embeddings, all layers up to the exit, and its head.
        """
        layers = self.backbone.layers[: self.exits[index]]
        return Stage(self.backbone.embeddings, layers, self.head(index), last=True)

    def stage(self, index: int) -> Stage:
        """The part of the network from the exit before to the score of an exit.

        Parameters
        ----------
        index : int
            Index of the exit at the end.

        Returns
        -------
        Stage
            The layers between the exits, and the head; with embeddings for the first exit.
        """
        start = self.exits[index - 1] if index else 0
        layers = self.backbone.layers[start : self.exits[index]]
        embeddings = None if index else self.backbone.embeddings
        return Stage(embeddings, layers, self.head(index), last=index == len(self.exits) - 1)

    def stages(self) -> List[HybridBlock]:
        return list(self.encoder_stages())

    def encoder_stages(self) -> List[Stage]:
        return [self.stage(index) for index in range(len(self.exits))]

    def exit_scores(
        self, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> List[Tensor]:
        """Scores of all exits, from one pass through the layers.

        Parameters
        ----------
        token_ids, token_types : Tensor
            (B, L) int32 token ids and types.
        valid_length : Tensor
            (B,) number of positions that are not padding.

        Returns
        -------
        list of Tensor
            (B,) log-odds of each exit. Gradients reach all layers and heads.
        """
        return scores_of_stages(self.encoder_stages(), token_ids, token_types, valid_length)

    def stage_work(self) -> List[float]:
        depths = [end - start for start, end in zip((0, *self.exits), self.exits)]
        return [float(depth * self.config.layer_work) for depth in depths]

    def full_work(self) -> float:
        return float(self.num_layers * self.config.layer_work)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        head = self.heads[-1]
        layers = layers_before(head, self.backbone.layers[: self.exits[-1]])
        hidden = self.backbone.embeddings(token_ids, token_types)
        return score(F, head, layers(hidden, valid_length), valid_length)
