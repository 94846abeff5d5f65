"""Heads, which turn encodings into the log-odds of the positive class, and networks made of exits.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.config import FAMILIES, BackboneConfig, Family
from wqa.errors import OptionError
from wqa.models.backbone import Backbone, Embeddings, LayerStack, attention_mask
from wqa.models.runtime import Tensor


class MeanHead(HybridBlock):
    """Classifier C on the mean of the encodings of positions 1..m.

    Three dense layers of the encoder's width, each with tanh and dropout, then one output
    (Soldaini and Moschitti 2020, sections 4.3 and 5.2). The paper leaves open whether its third
    layer is already the output; here the output is a layer of its own, so that all three have the
    encoder's width.

    Inputs are ``hidden``, (B, L, C), and ``valid_length``, (B,); the output is (B,).
    """

    def __init__(self, units: int, dropout: float = 0.1, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.HybridSequential()
            # BERT's 0.02 would shrink the signal threefold in each of the three new layers.
            for _ in range(3):
                self.dense.add(
                    nn.Dense(
                        units,
                        activation="tanh",
                        in_units=units,
                        weight_initializer=mx.init.Xavier(),
                    ),
                    nn.Dropout(dropout),
                )
            self.out = nn.Dense(1, in_units=units, weight_initializer=mx.init.Xavier())

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        steps = F.reshape(F.contrib.arange_like(hidden, axis=1), (1, -1))  # (1, L)
        length = F.reshape(valid_length, (-1, 1))  # (B, 1)
        # Position 0 is the start token, which the paper's sum over l = 1..m leaves out.
        real = F.broadcast_mul(F.broadcast_lesser(steps, length), steps > 0)
        weights = F.broadcast_div(real, length - 1)  # (B, L)
        mean = F.batch_dot(F.expand_dims(F.BlockGrad(weights), axis=1), hidden)  # (B, 1, C)
        return self.classify(F, F.reshape(mean, (-3, 0)))

    def classify(self, F, mean: Tensor) -> Tensor:
        """Scores of mean encodings, (B, C)."""
        return F.reshape(self.out(self.dense(mean)), (-1,))


class FirstPositionHead(HybridBlock):
    """Classifier D on the first position's encoding: dense, activation, dropout, one output.

    Where the family has a pooler (BERT, ALBERT), the dense layer starts from its weights (section
    4.1). Otherwise (RoBERTa, ELECTRA) the dense layer is new, and dropout comes before it as well,
    as in these families' reference classifiers.

    Inputs are ``hidden``, (B, L, C), and ``valid_length``, (B,), which it does not need; the
    output is (B,).
    """

    def __init__(
        self, units: int, dropout: float = 0.1, family: Family = FAMILIES["bert"], **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self._gelu, self._has_pooler = family.head_activation == "gelu", family.has_pooler
        with self.name_scope():
            self.dense = nn.Dense(units, in_units=units)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(1, in_units=units)

    @property
    def pooler(self) -> Optional[nn.Dense]:
        """The dense layer that takes the pretrained pooler, None where the family has none."""
        return self.dense if self._has_pooler else None

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        return self.classify(F, F.reshape(F.slice_axis(hidden, axis=1, begin=0, end=1), (-3, 0)))

    def classify(self, F, first: Tensor) -> Tensor:
        """Scores of the first positions' encodings, (B, C)."""
        first = self.dense(first if self._has_pooler else self.dropout(first))
        first = (
            F.LeakyReLU(first, act_type="gelu")
            if self._gelu
            else F.Activation(first, act_type="tanh")
        )
        return F.reshape(self.out(self.dropout(first)), (-1,))


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
            "--exits", ",".join(map(str, exits)) or "nothing", "increasing layer numbers from 1"
        )
    if exits[-1] > num_layers:
        raise OptionError(
            "--exits", f"layer {exits[-1]}", f"at most {num_layers}, the layers of the encoder"
        )
    return exits


class Stage(HybridBlock):
    """Consecutive layers and the head after them.

    With ``embeddings`` the inputs are ``token_ids``, ``token_types`` (B, L) and ``valid_length``
    (B,); without, ``hidden`` (B, L, C) and ``valid_length``. The outputs are the encodings after
    the last layer, (B, L, C), and the scores, (B,).
    """

    def __init__(
        self,
        embeddings: Optional[Embeddings],
        layers: LayerStack,
        head: HybridBlock,
        heads: int,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self._heads = heads
        self.embeddings, self.layers, self.head = embeddings, layers, head

    def hybrid_forward(self, F, *inputs: Tensor) -> Tuple[Tensor, Tensor]:
        *start, valid_length = inputs
        hidden = self.embeddings(*start) if self.embeddings is not None else start[0]
        hidden = self.layers(hidden, attention_mask(F, hidden, valid_length, self._heads))
        return hidden, self.head(hidden, valid_length)


class ExitNetwork(HybridBlock):
    """An encoder with a head after each of its exits; a monolithic ranker has one exit.

    The block itself computes the score of the last exit. `path` gives one ranker for training;
    `stage` gives the part between two exits for ranking. Both share this block's parameters.

    Parameters
    ----------
    config : BackboneConfig
    exits : sequence of int
        Layers after which a head stands, counted from 1; the system's default where empty.
    """

    def __init__(self, config: BackboneConfig, exits: Sequence[int] = (), **kwargs) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.exits = check_exits(exits or self.default_exits(config), config.num_layers)
        with self.name_scope():
            self.backbone = Backbone(config)
            for layer in self.exits:
                self.register_child(self.make_head(config), f"head_{layer}")

    @staticmethod
    def default_exits(config: BackboneConfig) -> Tuple[int, ...]:
        """Exits of an encoder when none are named."""
        return (config.num_layers,)

    @staticmethod
    def make_head(config: BackboneConfig) -> HybridBlock:
        """One exit's head."""
        raise NotImplementedError

    def head(self, index: int) -> HybridBlock:
        """Head of an exit, ``index`` from 0."""
        return self._children[f"head_{self.exits[index]}"]

    def path(self, index: int) -> Stage:
        """From tokens to the score of one exit, ``index`` from 0."""
        return Stage(
            self.backbone.embeddings,
            self.backbone.layers[: self.exits[index]],
            self.head(index),
            self.config.num_heads,
        )

    def stage(self, index: int) -> Stage:
        """From the exit before, or from tokens, to the score of an exit, ``index`` from 0."""
        if index == 0:
            return self.path(0)
        layers = self.backbone.layers[self.exits[index - 1] : self.exits[index]]
        return Stage(None, layers, self.head(index), self.config.num_heads)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        hidden = self.backbone.embeddings(token_ids, token_types)
        mask = attention_mask(F, hidden, valid_length, self.config.num_heads)
        return self.head(len(self.exits) - 1)(
            self.backbone.layers[: self.exits[-1]](hidden, mask), valid_length
        )
