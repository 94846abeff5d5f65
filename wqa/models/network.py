"""Networks: what every system's has in common, and encoders with a head after each of their exits.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Sequence, Tuple

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.backbone import Backbone, Embeddings, LayerStack
from wqa.models.heads import Head, score
from wqa.models.runtime import Tensor


def check_exits(exits: Sequence[int], num_layers: int) -> Tuple[int, ...]:
    """Check the layers rho(1), ..., rho(N) of a cascade.

    Parameters
    ----------
    exits : sequence of int
        Layers after which a head stands, counted from 1.
    num_layers : int
        Layers of the encoder.

    Returns
    -------
    tuple of int

    Raises
    ------
    OptionError
        If they do not increase, or leave 1 to ``num_layers``.
    """
    exits = tuple(exits)
    if not exits or exits[0] < 1 or any(low >= high for low, high in zip(exits, exits[1:])):
        raise OptionError(
            "exits", ",".join(map(str, exits)) or "nothing", "increasing layer numbers from 1"
        )
    if exits[-1] > num_layers:
        raise OptionError(
            "exits", f"layer {exits[-1]}", f"at most {num_layers}, the layers of the encoder"
        )
    return exits


class Stage(HybridBlock):
    """Consecutive layers and the head after them.

    With ``embeddings`` the inputs are ``token_ids`` and ``token_types``, (B, L), int32, and
    ``valid_length``, (B,); without, ``hidden``, (B, L, C), and ``valid_length``. The outputs are
    the encodings after the last layer, (B, L, C), and the scores, (B,).

    Parameters
    ----------
    embeddings : Embeddings or None
        What comes before the layers.
    layers : LayerStack
        The layers.
    head : Head
        Head after the last layer.
    last : bool
        Whether nothing but the head reads the last layer's output.
    """

    def __init__(
        self,
        embeddings: Optional[Embeddings],
        layers: LayerStack,
        head: Head,
        last: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if last and head.reads == "first":
            layers = layers.of_first_positions()
        self.embeddings, self.layers, self.head, self.last = embeddings, layers, head, last

    def hybrid_forward(self, F, *inputs: Tensor) -> Tuple[Tensor, Tensor]:
        *start, valid_length = inputs
        hidden = self.embeddings(*start) if self.embeddings is not None else start[0]
        hidden = self.layers(hidden, valid_length)
        return hidden, score(F, self.head, hidden, valid_length)


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Base of the systems' own configurations; its fields become options of ``wqa train``.

    A field's ``metadata`` may hold ``help``, the option's text.
    """


class Network(HybridBlock):
    """Base of every system's network.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32, and ``valid_length``, (B,),
    float32; the output is (B,) log-odds of the positive class.

    Parameters
    ----------
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    config : NetworkConfig, optional
        The system's own configuration, of the type `Config`; its defaults where it is left out.
    """

    #: Type of the system's own configuration.
    Config: Any = NetworkConfig
    #: Layers after which the network scores, where its stages are layers of one encoder.
    exits: Tuple[int, ...] = ()

    def __init__(
        self, backbone: Optional[BackboneConfig], config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        #: Sizes of the encoder, or None.
        self.config: Any = backbone
        #: The system's own configuration, defaults that depend on the encoder filled in.
        self.own_config: Any = self.Config() if config is None else config

    @property
    def num_layers(self) -> int:
        """Layers of the full encoder; 0 where there is none."""
        return self.config.num_layers if self.config is not None else 0

    @property
    def max_positions(self) -> Optional[int]:
        """Greatest length of an input in tokens; None where there is no limit."""
        return self.config.max_positions if self.config is not None else None

    @property
    def encoders(self) -> List[Backbone]:
        """The parts that start from a pretrained encoder."""
        return []

    @property
    def heads(self) -> List[Head]:
        """Heads on the encoder, one a stage."""
        return []

    def stages(self) -> List[HybridBlock]:
        """Parts of the network between which candidates can be dropped.

        Returns
        -------
        list of mxnet.gluon.HybridBlock
            The first takes the network's inputs, each later one the encodings of the stage before
            it and the valid lengths. Each gives encodings and scores; the network itself, where it
            is the only stage, gives scores alone.
        """
        return [self]

    def encoder_stages(self) -> List[Stage]:
        """The same stages where each of them is layers and a head.

        Returns
        -------
        list of Stage
            Empty for a network that is made of other things, which MXNet alone can run.
        """
        return []

    def stage_work(self) -> List[float]:
        """Multiply-adds of each stage for one token, those of products with weights.

        Returns
        -------
        list of float
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
    """Multiply-adds for one row of each dense layer inside a block."""
    children = list(block._children.values())
    work = [block.weight.shape[0] * block.weight.shape[1]] if isinstance(block, nn.Dense) else []
    for child in children:
        work += _dense_work(child)
    return work


@dataclasses.dataclass(frozen=True)
class ExitConfig(NetworkConfig):
    """Configuration of networks with exits.

    Parameters
    ----------
    exits : tuple of int
        Layers after which a head stands, counted from 1; the system's default where it is empty.
    """

    exits: Tuple[int, ...] = dataclasses.field(
        default=(),
        metadata={"help": "layers with a head, separated by commas (default: as the papers)"},
    )


class ExitNetwork(Network):
    """An encoder with a head after each of its exits; a monolithic ranker has one exit.

    The block itself computes the score of the last exit. `path` gives one ranker for training;
    `stage` gives the part between two exits for ranking. Both share this block's parameters.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ExitConfig, optional
        The exits.
    """

    Config: Any = ExitConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[ExitConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        exits = self.own_config.exits or self.default_exits(backbone)
        self.exits = check_exits(exits, backbone.num_layers)
        self.own_config = dataclasses.replace(self.own_config, exits=self.exits)
        with self.name_scope():
            self.backbone = Backbone(backbone)
            for layer in self.exits:
                self.register_child(self.make_head(backbone), f"head_{layer}")

    @staticmethod
    def default_exits(backbone: BackboneConfig) -> Tuple[int, ...]:
        """Exits of an encoder when none are named.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        tuple of int
        """
        return (backbone.num_layers,)

    @staticmethod
    def make_head(backbone: BackboneConfig) -> Head:
        """A new head for one exit.

        Parameters
        ----------
        backbone : BackboneConfig
            Sizes of the encoder.

        Returns
        -------
        Head
        """
        raise NotImplementedError

    @property
    def encoders(self) -> List[Backbone]:
        """The part that starts from a pretrained encoder."""
        return [self.backbone]

    @property
    def heads(self) -> List[Head]:
        """Head of each exit."""
        return [self._children[f"head_{layer}"] for layer in self.exits]

    def head(self, index: int) -> Head:
        """Head of an exit.

        Parameters
        ----------
        index : int
            Exit, from 0.

        Returns
        -------
        Head
        """
        return self.heads[index]

    def path(self, index: int) -> Stage:
        """The ranker from tokens to the score of one exit.

        Parameters
        ----------
        index : int
            Exit, from 0.

        Returns
        -------
        Stage
        """
        layers = self.backbone.layers[: self.exits[index]]
        return Stage(self.backbone.embeddings, layers, self.head(index), last=True)

    def stage(self, index: int) -> Stage:
        """The part from the exit before, or from tokens, to the score of an exit.

        Parameters
        ----------
        index : int
            Exit, from 0.

        Returns
        -------
        Stage
        """
        start = self.exits[index - 1] if index else 0
        layers = self.backbone.layers[start : self.exits[index]]
        embeddings = None if index else self.backbone.embeddings
        return Stage(embeddings, layers, self.head(index), last=index == len(self.exits) - 1)

    def stages(self) -> List[HybridBlock]:
        return [self.stage(index) for index in range(len(self.exits))]

    def encoder_stages(self) -> List[Stage]:
        return [self.stage(index) for index in range(len(self.exits))]

    def stage_work(self) -> List[float]:
        depths = [end - start for start, end in zip((0, *self.exits), self.exits)]
        return [float(depth * self.config.layer_work) for depth in depths]

    def full_work(self) -> float:
        return float(self.num_layers * self.config.layer_work)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        hidden = self.backbone.embeddings(token_ids, token_types)
        hidden = self.backbone.layers[: self.exits[-1]](hidden, valid_length)
        return score(F, self.heads[-1], hidden, valid_length)
