"""BERT and its relatives as one configurable encoder whose layers are addressable, and its masks.

Names follow GluonNLP where it has one. Shapes: B pairs, L positions, C units, H attention heads, n
marks.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Union

from wqa.models.runtime import Tensor

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.models.embeddings import Embeddings, EngineHolder, RelativePositions, break_cycles

#: In place of the values of padding; far below any value, and finite in float32.
MASKED = -1e9
#: Added to the attention scores of padding; far below any score, and finite in float16 too.
MASKED_SCORE = -6e4


def attention_mask(
    F, hidden: Tensor, valid_length: Tensor, heads: int, bias: Optional[Tensor] = None
) -> Tensor:
    """Additive attention mask of padding, in full size for all layers.

    A layer then adds it element by element, which needs no gradient of the mask; a broadcast sum
    would compute one in every layer.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    hidden : Tensor
        (B, L, C) encodings, for their shape.
    valid_length : Tensor
        (B,) number of positions that are not padding, of any type.
    heads : int
        H, the number of attention heads.
    bias : Tensor, optional
        (H, L, L) that is added to the mask; gradients reach it.

    Returns
    -------
    Tensor
        (B * H, L, L) of the type of ``hidden``: 0 at real positions, `MASKED_SCORE` at padding.
    """
    rows = F.zeros_like(F.slice_axis(hidden, axis=2, begin=0, end=1))  # (B, L, 1)
    # Unlike a comparison, it takes lengths of another type than the encodings'.
    options = {"use_sequence_length": True, "value": MASKED_SCORE, "axis": 1}
    padding = F.SequenceMask(rows, valid_length, **options)  # (B, L, 1)
    mask = F.broadcast_add(rows, F.reshape(padding, (0, 1, -1)))  # (B, L, L)
    mask = F.expand_dims(mask, axis=1)  # (B, 1, L, L)
    if bias is None:
        mask = F.broadcast_axis(mask, axis=1, size=heads)  # (B, H, L, L)
        return F.BlockGrad(F.reshape(mask, (-3, 0, 0)))
    mask = F.broadcast_add(F.BlockGrad(mask), F.expand_dims(bias, axis=0))  # (B, H, L, L)
    return F.reshape(mask, (-3, 0, 0))


def real_positions(F, positions: Tensor, valid: Tensor) -> Tensor:
    """Tell real positions from padding.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    positions : Tensor
        (rows, L, ...) array, for its shape.
    valid : Tensor
        (rows,) number of real positions, from the first on.

    Returns
    -------
    Tensor
        (rows, L) float32: 1 at real positions, 0 at padding.
    """
    steps = F.cast(F.contrib.arange_like(positions, axis=1), "float32")
    steps = F.reshape(steps, (1, -1))  # (1, L)
    counts = F.reshape(valid, (-1, 1))  # (rows, 1)
    return F.broadcast_lesser(steps, counts)


def greatest(F, outputs: Tensor, real: Tensor) -> Tensor:
    """Maximum of filters over the real positions of a text.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    outputs : Tensor
        (B, filters, L) outputs of a convolution.
    real : Tensor
        (B, L): 1 at real positions, 0 at padding.

    Returns
    -------
    Tensor
        (B, filters); `MASKED` or less for a text without a real position.
    """
    mask = F.expand_dims((1 - real) * MASKED, axis=1)  # (B, 1, L)
    return F.max(F.broadcast_add(outputs, mask), axis=2)


def at_marks(F, hidden: Tensor, marks: Tensor) -> Tensor:
    """Encodings, (B, L, C), at ``marks``, (B, n), -1 where a mark is absent.

    Shapes: the result (B, n, C), 0 where a mark is absent.
    """
    steps = F.reshape(F.contrib.arange_like(hidden, axis=1), (1, 1, -1))  # (1, 1, L)
    is_marked = F.broadcast_equal(F.expand_dims(marks, axis=2), steps)  # (B, n, L)
    # A product with zeros and ones; that of an absent mark, which no position equals, is 0.
    return F.batch_dot(F.BlockGrad(is_marked), hidden)


def activate(F, hidden: Tensor, activation: str) -> Tensor:
    """Apply the activation of an encoder or a head."""
    if activation == "gelu":
        return F.LeakyReLU(hidden, act_type="gelu")
    if activation == "tanh":
        return F.Activation(hidden, act_type="tanh")
    if activation == "relu":
        return F.relu(hidden)
    cubic = hidden + 0.044715 * hidden * hidden * hidden
    scaled = math.sqrt(2 / math.pi) * cubic
    return 0.5 * hidden * (1 + F.tanh(scaled))


class EncoderLayer(HybridBlock):
    """One transformer layer: self-attention with one joint QKV product, then feed-forward.

    Inputs are ``hidden``, (B, L, C), and the mask of `attention_mask`, (B * H, L, L); the output
    has the shape of ``hidden``.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the layer, which all layers of an encoder share.
    relative : RelativePositions, optional
        Bias of the attention scores, which all layers of an encoder share. The caller adds it to
        the mask; engines read it here.
    """

    def __init__(
        self, config: BackboneConfig, relative: Optional[RelativePositions] = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        # No child: each stack of layers registers it once.
        object.__setattr__(self, "relative", relative)
        units = config.units
        norm = {"in_channels": units, "epsilon": config.layer_norm_eps}
        self.num_heads = config.num_heads
        self._scale = config.attention_scale
        self._activation = config.activation
        with self.name_scope():
            self.qkv = nn.Dense(3 * units, flatten=False, in_units=units)
            self.proj = nn.Dense(units, flatten=False, in_units=units)
            self.attention_norm = nn.LayerNorm(**norm)
            self.ffn_1 = nn.Dense(config.hidden_size, flatten=False, in_units=units)
            self.ffn_2 = nn.Dense(units, flatten=False, in_units=config.hidden_size)
            self.ffn_norm = nn.LayerNorm(**norm)
            self.dropout = nn.Dropout(config.dropout)
            self.attention_dropout = nn.Dropout(config.attention_dropout)

    def hybrid_forward(self, F, hidden: Tensor, mask: Tensor) -> Tensor:
        context = self._attend(F, self.qkv(hidden), mask)
        projected = self.dropout(self.proj(context))
        hidden = self.attention_norm(hidden + projected)
        inner = activate(F, self.ffn_1(hidden), self._activation)
        outputs = self.dropout(self.ffn_2(inner))
        return self.ffn_norm(hidden + outputs)

    def _attend(self, F, qkv: Tensor, mask: Tensor) -> Tensor:
        heads = self.num_heads
        qkv = F.reshape(qkv, (0, 0, 3, heads, -1))
        qkv = F.transpose(qkv, (2, 0, 3, 1, 4))  # (3, B, H, L, C / H)
        parts = F.split(qkv, num_outputs=3, axis=0, squeeze_axis=True)
        query, key, value = (F.reshape(part, (-3, 0, 0)) for part in parts)  # (B * H, L, C / H)
        scores = F.batch_dot(query * self._scale, key, transpose_b=True)  # (B * H, L, L)
        weights = self.attention_dropout(F.softmax(scores + mask))
        context = F.batch_dot(weights, value)  # (B * H, L, C / H)
        context = F.reshape(context, (-4, -1, heads, 0, 0))  # (B, H, L, C / H)
        context = F.transpose(context, (0, 2, 1, 3))  # (B, L, H, C / H)
        return F.reshape(context, (0, 0, -3))  # (B, L, C)


class LayerStack(HybridBlock):
    """Layers in sequence. A slice ``stack[i:j]`` shares their parameters.

    Inputs are ``hidden``, (B, L, C), and ``valid_length``, (B,); the output is (B, L, C). If only
    the first n positions are needed, an engine may return (B, n, C). A third input, ``marks``,
    (B, n), are the positions that the caller reads, -1 where one is absent; the output is then
    their encodings, (B, n, C), 0 where absent.

    Parameters
    ----------
    layers : sequence of EncoderLayer
        Layers in the order in which they run; a layer may occur several times.
    holder : EngineHolder, optional
        Engine of the encoder; MXNet by default.
    needed : int, optional
        Number of first positions of the output that are read; all by default.
    """

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        holder: Optional[EngineHolder] = None,
        needed: Optional[int] = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self._sequence = tuple(layers)
        self.needed = needed
        self._holder = holder or EngineHolder()
        for layer in dict.fromkeys(layers):
            self.register_child(layer)
        #: Bias of the attention scores of all layers; None for encoders without one.
        self.relative_positions = layers[0].relative if layers else None
        break_cycles(self)

    def __len__(self) -> int:
        return len(self._sequence)

    def __getitem__(self, key):
        if isinstance(key, slice):
            return LayerStack(self._sequence[key], self._holder)
        return self._sequence[key]

    def __add__(self, following: LayerStack) -> LayerStack:
        """These layers and then those of another stack of the same backbone."""
        return LayerStack(self._sequence + following._sequence, self._holder)

    def of_first_positions(self, count: int = 1) -> LayerStack:
        """The same layers, for a caller that reads first positions alone.

        Parameters
        ----------
        count : int
            Number of first positions of a pair that the caller reads.

        Returns
        -------
        LayerStack
            Layers that share the parameters.
        """
        return LayerStack(self._sequence, self._holder, count)

    def forward(self, hidden: Tensor, valid_length: Tensor, *marks: Tensor) -> Tensor:
        """Run the layers by the attached engine, or by MXNet."""
        if self._holder.accepts(hidden) and self._sequence:
            return self._holder.engine.layers(self, hidden, valid_length, *marks)
        return super().forward(hidden, valid_length, *marks)

    def mask(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        """The mask of the layers, with the bias by relative position if the encoder has one.

        Shapes: the result (B * H, L, L).
        """
        bias, heads = None, self._sequence[0].num_heads
        if self.relative_positions is not None:
            bias = self.relative_positions(hidden)
        return attention_mask(F, hidden, valid_length, heads, bias)

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor, *marks: Tensor) -> Tensor:
        if self._sequence:
            mask = self.mask(F, hidden, valid_length)
            for layer in self._sequence:
                hidden = layer(hidden, mask)
        return at_marks(F, hidden, *marks) if marks else hidden


class Backbone(HybridBlock):
    """A pretrained encoder: ``embeddings``, then ``layers``.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32, and ``valid_length``, (B,), of any
    type; the output is the last layer's, (B, L, C). The last two may be left out, or be None: all
    token types are then 0, and no position is padding. Lengths may also be a list or a NumPy array.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    """

    def __init__(self, config: BackboneConfig, **kwargs) -> None:
        super().__init__(**kwargs)
        self.config = config
        self._holder = EngineHolder()
        buckets, relative = config.family.relative_buckets, None
        with self.name_scope():
            self.embeddings = Embeddings(config, self._holder)
            if buckets:
                relative = RelativePositions(buckets, config.num_heads)
        object.__setattr__(self, "_relative", relative)  # a child of the layers
        self.layers = self.new_layers(config.num_layers)

    def new_layers(self, count: int) -> LayerStack:
        """Further layers of this encoder's sizes, which the attached engine computes too.

        Parameters
        ----------
        count : int
            Number of layers. They share their parameters where those of the encoder do.

        Returns
        -------
        LayerStack
            Layers that are not initialised. They are no part of the backbone: a block that calls
            them registers them.
        """
        with self.name_scope():
            # All layers of ALBERT share their parameters (Lan et al. 2020, section 3.1).
            if self.config.shared_layers:
                layers = [EncoderLayer(self.config, self._relative)] * count
            else:
                layers = [EncoderLayer(self.config, self._relative) for _ in range(count)]
            return LayerStack(layers, self._holder)

    def attach(self, engine: Any) -> None:
        """Attach an engine, which then computes the embeddings and layers.

        The engine computes blocks that run on arrays. MXNet computes a hybridized network.

        Parameters
        ----------
        engine : wqa.engines.onednn.GradientEngine or None
            Engine to attach; None to detach it.
        """
        self._holder.engine = engine

    def parameter_count(self) -> int:
        """Number of the encoder's parameters without the pooler; shared ones count once."""
        return sum(math.prod(parameter.shape) for parameter in self.collect_params().values())

    def forward(
        self,
        token_ids: Tensor,
        token_types: Optional[Tensor] = None,
        valid_length: Union[Tensor, np.ndarray, Sequence[int], None] = None,
    ) -> Tensor:
        """Encode token ids; what is left out is filled in, as compiled graphs need all inputs."""
        F = mx.nd if isinstance(token_ids, mx.nd.NDArray) else mx.sym
        if self._active:  # a graph does not call the embeddings, which check
            self.embeddings.check_ids(token_ids)
        if token_types is None:
            token_types = F.zeros_like(token_ids)
        return super().forward(token_ids, token_types, _lengths(F, token_ids, valid_length))

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        return self.layers(self.embeddings(token_ids, token_types), valid_length)

    def hidden_states(
        self,
        token_ids: mx.nd.NDArray,
        valid_length: Union[mx.nd.NDArray, np.ndarray, Sequence[int], None] = None,
        token_types: Optional[mx.nd.NDArray] = None,
    ) -> List[mx.nd.NDArray]:
        """Output of the embeddings and of every layer, for checks and probes.

        Parameters
        ----------
        token_ids : mxnet.nd.NDArray
            (B, L) int32 token ids.
        valid_length : mxnet.nd.NDArray, numpy.ndarray or sequence of int, optional
            (B,) number of positions that are not padding; L by default.
        token_types : mxnet.nd.NDArray, optional
            (B, L) int32 token types; all 0 by default.

        Returns
        -------
        list of mxnet.nd.NDArray
            Output of the embeddings, then of each layer, (B, L, C) each.
        """
        types = mx.nd.zeros_like(token_ids) if token_types is None else token_types
        states = [self.embeddings(token_ids, types)]
        lengths = _lengths(mx.nd, token_ids, valid_length)
        mask = self.layers.mask(mx.nd, states[0], lengths)
        for layer in self.layers:
            states.append(layer(states[-1], mask))
        return states


def _lengths(F, token_ids: Tensor, valid_length: Any) -> Tensor:
    """Valid lengths as an array or a symbol, (B,); the whole length where there are none."""
    if valid_length is None:
        return F.sum(F.ones_like(token_ids), axis=1)
    if isinstance(valid_length, (mx.nd.NDArray, mx.sym.Symbol)):
        return valid_length
    return mx.nd.array(valid_length, ctx=token_ids.context)
