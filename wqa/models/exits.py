"""Encoders with a head after each exit, and training of a part of a network.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Tuple

from wqa.models.runtime import Tensor

from mxnet.gluon import Block, ParameterDict

from wqa.config import BackboneConfig
from wqa.config.encoders import check_exits
from wqa.config.systems import option
from wqa.errors import OptionError
from wqa.models.backbone import Backbone
from wqa.models.heads import Head, Stage, layers_before, score, scores_of_stages
from wqa.models.network import Network, NetworkConfig

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
        chosen = self.own_config.exits or self.default_exits(self.config)
        exits = check_exits(chosen, self.num_layers)
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
        pairs = zip((0, *self.exits), self.exits)
        return [float((end - start) * self.config.layer_work) for start, end in pairs]

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        head = self.heads[-1]
        layers = layers_before(head, self.backbone.layers[: self.exits[-1]])
        hidden = self.backbone.embeddings(token_ids, token_types)
        return score(F, head, layers(hidden, valid_length), valid_length)


class OneHeadNetwork(Network):
    """An encoder, ``backbone``, and one head, ``head``, which is behind all of its layers.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : NetworkConfig, optional
        Configuration of the system.

    Raises
    ------
    OptionError
        If there is no encoder.
    """

    def __init__(
        self, backbone: BackboneConfig, config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        if backbone is None:
            raise OptionError("backbone", "none", "the sizes of the network's encoder")
        with self.name_scope():
            self.backbone = Backbone(backbone)
            self.head = self.make_head()

    def make_head(self) -> Head:
        """A new head; the network's configurations are set already."""
        raise NotImplementedError

    @property
    def heads(self) -> List[Head]:
        return [self.head]

    def encoder_stages(self) -> List[Stage]:
        return [Stage(self.backbone.embeddings, self.backbone.layers, self.head, last=True)]

    def stage_work(self) -> List[float]:
        return [self.full_work()]


def train_only(network: Network, part: Block) -> ParameterDict:
    """Let only a part of a network have gradients.

    A `mxnet.gluon.Trainer` of all parameters raises a ``UserWarning`` about stale gradients, those
    of parameters that no loss depends on. One of the parameters that this function returns steps
    without it.

    Parameters
    ----------
    network : Network
        Network, initialised or not.
    part : mxnet.gluon.Block
        Part of the network, such as ``network.path(0)``, the ranker of the first exit, or a head.
        The network itself lets all parameters train again.

    Returns
    -------
    mxnet.gluon.ParameterDict
        Parameters of the part. The other parameters of the network, and its constants, have no
        gradients, which saves their memory.
    """
    chosen = part.collect_params()
    trained = {id(parameter) for parameter in chosen.values()}
    trained -= {id(parameter) for parameter in network.constants()}
    for parameter in network.collect_params().values():
        parameter.grad_req = "write" if id(parameter) in trained else "null"
    return chosen
