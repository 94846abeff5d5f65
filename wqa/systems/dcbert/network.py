"""DC-BERT (Zhang et al. 2020, section 2): question and document are encoded apart.

One encoder reads the question, another one the document. Rows of a global position table and of a
type table are added to both encodings, and K transformer layers run on the joint sequence. A
classifier on the first encodings of both texts gives the score (equation 1). As documents do not
depend on questions, they can be encoded ahead of time.

In two variants linear layers or an LSTM replace the transformer layers (Table 3). Classifiers after
several interaction layers are exits, as in a cascade. No paper has them.

Shapes: B pairs, N positions of a question, M of a document, L = N + M, C units.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

from wqa.models.runtime import Tensor

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_LAYERS, check_exits
from wqa.config.systems import option
from wqa.errors import OptionError, check_choice, check_range
from wqa.models.backbone import Backbone, EncoderLayer, LayerStack
from wqa.models.embeddings import break_cycles
from wqa.models.heads import Head, Stage
from wqa.models.network import ENCODINGS_AND_SCORES, GraphPart, Network, NetworkConfig
from wqa.systems.dcbert.interactions import (
    LSTM_LAYERS,
    FirstRows,
    LinearHead,
    LSTMInteraction,
    PairHead,
    PairRows,
    StagedInteraction,
)
from wqa.text import SplitInputs, Tokenizer

#: Least length of a question: its special tokens, and one token of the text.
LEAST_QUESTION = 3


@dataclasses.dataclass(frozen=True)
class DCBERTConfig(NetworkConfig):
    """Configuration of DC-BERT.

    Parameters
    ----------
    layers : int
        K, the number of interaction layers, at most those of the encoder.
    exits : tuple of int
        Interaction layers with a classifier, counted from 1. The last one always has one.
    question_length : int
        Greatest length of a question in tokens, special tokens included. Documents take the global
        positions from this one on.
    interaction : {"transformer", "linear", "lstm"}
        What runs on the encodings: transformer layers, or a variant of Table 3.
    classifier : {"concatenation", "comparison"}
        What the classifier reads: [o; o'] (equation 1), or o * o' and |o - o'| as well, beyond the
        paper.
    document_pairs : int
        Pairs of one document that a training batch keeps together. A batch encodes each of its
        texts once. With 1 pairs are shuffled apart. The paper does not say how it makes batches.

    Raises
    ------
    OptionError
        If a number is out of range, an exit is no interaction layer, a name is unknown, or a
        variant without transformer layers has several layers.
    """

    layers: int = option(1, "interaction layers")
    exits: Tuple[int, ...] = option(
        (), "interaction layers with a classifier, separated by commas (default: the last)"
    )
    question_length: int = option(64, "greatest length of a question in tokens")
    interaction: str = option("transformer", "what runs on the encodings of both texts")
    classifier: str = option(
        "concatenation", "what the classifier reads; comparison adds product and difference"
    )
    document_pairs: int = option(
        1, "pairs of one document that a training batch keeps together, to encode it once"
    )

    #: Values that some fields are limited to.
    CHOICES = {
        "interaction": ("transformer", "linear", "lstm"),
        "classifier": ("concatenation", "comparison"),
    }

    RETIRED: ClassVar[Dict[str, Any]] = {"joining": "sum", "row_scale": None, "trained_exits": None}

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        least = {"layers": 1, "question_length": LEAST_QUESTION, "document_pairs": 1}
        for name, smallest in least.items():
            check_range(name, getattr(self, name), smallest, MOST_LAYERS)
        for name in ("layers", "classifier"):
            value = getattr(self, name)
            if self.interaction != "transformer" and value != getattr(DCBERTConfig, name):
                with_it = f"{value} with interaction {self.interaction}"
                raise OptionError(name, with_it, 'interaction="transformer"')
        if self.exits:
            check_exits(self.exits, self.layers)


class DecoupledPath(HybridBlock):
    """Both encoders and an interaction: from token ids to the scores of its exits.

    Inputs are ``question_ids``, (B, N), int32, ``question_valid``, (B,), ``document_ids``, (B, M),
    int32, and ``document_valid``, (B,); the output is (B, n) log-odds. Texts of several pairs are
    encoded once if the inputs hold each once, (Q, N) and (D, M), and ``question_rows`` and
    ``document_rows``, both (B,), say which row each pair reads.

    Parameters
    ----------
    network : DecoupledTransformer
        Network whose encoders it shares.
    interaction : HybridBlock
        An interaction of the network.
    """

    def __init__(self, network: DecoupledTransformer, interaction: HybridBlock) -> None:
        super().__init__()
        self.question_encoder = network.question_encoder
        self.document_encoder = network.document_encoder
        self.interaction = interaction
        # `FirstRows` reads nothing else of the encodings.
        self._reads_first = network.own_config.interaction == "linear"
        break_cycles(self)

    def hybrid_forward(self, F, *texts: Tensor) -> Tensor:
        question_ids, question_valid, document_ids, document_valid, *rows = texts
        question = self._encode(F, self.question_encoder, question_ids, question_valid)
        document = self._encode(F, self.document_encoder, document_ids, document_valid)
        encoded = [question, question_valid, document, document_valid]
        if rows:
            question_rows, document_rows = rows
            of_array = (question_rows, question_rows, document_rows, document_rows)
            encoded = [F.take(array, index) for array, index in zip(encoded, of_array)]
        return self.interaction(*encoded)

    def _encode(self, F, encoder: Backbone, token_ids: Tensor, valid_length: Tensor) -> Tensor:
        """Encodings of texts, (texts, length, C), or the first ones where no others are read."""
        # Each encoder reads one text, whose token types are 0. Types tell the texts apart later.
        hidden = encoder.embeddings(token_ids, F.zeros_like(token_ids))
        layers = encoder.layers
        if self._reads_first:
            layers = layers.of_first_positions()
        return layers(hidden, valid_length)


class DecoupledTransformer(Network):
    """Two encoders, global rows and interaction layers, with a classifier after each exit.

    Inputs are ``question_ids``, (B, N), int32, ``question_valid``, (B,), ``document_ids``, (B, M),
    int32, and ``document_valid``, (B,); the output is (B,) log-odds of the last exit.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of both encoders.
    config : DCBERTConfig, optional
        Interaction, its exits, and the greatest length of a question.

    Raises
    ------
    OptionError
        If there is no encoder, there are more interaction layers than the encoder has, or a
        question leaves no position for a document.
    """

    Config = DCBERTConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[DCBERTConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        if backbone is None:
            raise OptionError("backbone", "none", "the sizes of the network's encoders")
        own, depth, positions = self.own_config, self.num_layers, backbone.max_positions
        if own.layers > depth:
            raise OptionError("layers", own.layers, f"at most {depth}, the layers of the encoder")
        most = positions - LEAST_QUESTION
        if own.question_length > most:
            expected = f"at most {most}, as documents take the next of the {positions} positions"
            raise OptionError("question_length", own.question_length, expected)
        self.exits = tuple(sorted({*own.exits, own.layers}))
        self.own_config = dataclasses.replace(own, exits=self.exits)
        with self.name_scope():
            self.question_encoder = Backbone(backbone)
            self.document_encoder = Backbone(backbone)
            if own.interaction == "transformer":
                sizes = (backbone.max_positions, backbone.units)
                self.position_weight = self.params.get("position_weight", shape=sizes)
                self.type_weight = self.params.get("type_weight", shape=(2, backbone.units))
                self.interaction = self.document_encoder.new_layers(own.layers)
            for layer in self.exits:
                self.register_child(self._make_head(), f"head_{layer}")

    def _make_head(self) -> HybridBlock:
        units, has_pooler = self.config.units, self.config.family.has_pooler
        if self.own_config.interaction == "linear":
            return LinearHead(units, has_pooler)
        if self.own_config.interaction == "lstm":
            return LSTMInteraction(units, has_pooler)
        return PairHead(units, self.own_config.classifier == "comparison")

    @property
    def max_positions(self) -> int:
        """Greatest length of a document in tokens, whatever the question."""
        return self.config.max_positions - self.own_config.question_length

    def text_inputs(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> SplitInputs:
        """Inputs of questions and documents apart; ``max_length`` is that of a document."""
        length = self.own_config.question_length
        positions = self.config.max_positions
        if length + max_length > positions:
            problem = f"{length} + {max_length} = {length + max_length} tokens"
            expected = f"at most {positions}, the positions of the encoder"
            raise OptionError("question_length and max_length", problem, expected)
        return SplitInputs(tokenizer, max_length, length, long_questions)

    @property
    def encoders(self) -> List[Backbone]:
        return [self.question_encoder, self.document_encoder]

    @property
    def heads(self) -> List[Head]:
        """Classifiers of the exits; none for the LSTM variant, which is one block."""
        if self.own_config.interaction == "lstm":
            return []
        return self._exit_blocks()

    def _exit_blocks(self) -> List[Any]:
        return [self._children[f"head_{layer}"] for layer in self.exits]

    def poolers(self) -> List[nn.Dense]:
        """Layers of the variants that start from an encoder's pooler, if it has one."""
        layers = []
        for block in self._exit_blocks():
            layers += [getattr(block, f"{text}_pooler", None) for text in ("question", "document")]
        return [layer for layer in layers if layer is not None]

    def join(self) -> HybridBlock:
        """Block that makes the sequence on which the stages run.

        Returns
        -------
        HybridBlock
            `PairRows`, or `FirstRows` in the linear variant.
        """
        if self.own_config.interaction == "linear":
            return FirstRows()
        return PairRows(self, self.own_config.question_length)

    def _layers(self, start: int, end: int) -> LayerStack:
        if self.own_config.interaction == "linear":
            return self.document_encoder.layers[:0]
        return self.interaction[start:end]

    def encoder_stages(self) -> List[Stage]:
        """Interaction layers and a classifier each, on the sequence of `join`.

        Returns
        -------
        list of Stage
            One stage an exit; none for the LSTM variant.
        """
        stages = []
        starts = (0, *self.exits)
        for index, head in enumerate(self.heads):
            layers = self._layers(starts[index], self.exits[index])
            stages.append(Stage(None, layers, head, last=index == len(self.exits) - 1))
        return stages

    def quantized_layers(self) -> List[EncoderLayer]:
        """Layers of the question encoder, of the document encoder, and of the interaction."""
        layers: List[EncoderLayer] = []
        for encoder in self.encoders:
            layers += list(encoder.layers)
        return layers + super().quantized_layers()

    def interaction_path(self, index: Optional[int] = None) -> HybridBlock:
        """The network after the encoders, to one exit or to all.

        Parameters
        ----------
        index : int, optional
            Index of the exit that scores, from 0; all exits by default.

        Returns
        -------
        HybridBlock
            Takes the encodings of questions and documents, each followed by its valid lengths, and
            returns the scores of the exits, (B, n).
        """
        if self.own_config.interaction == "lstm":
            return self._exit_blocks()[0]
        if index is None:
            return StagedInteraction(self.join(), self.encoder_stages())
        layers = self._layers(0, self.exits[index])
        return StagedInteraction(self.join(), [Stage(None, layers, self.heads[index], last=True)])

    def path(self, index: Optional[int] = None) -> DecoupledPath:
        """The network from token ids to the scores of one exit or of all.

        Parameters
        ----------
        index : int, optional
            As `interaction_path` takes it.

        Returns
        -------
        DecoupledPath
        """
        return DecoupledPath(self, self.interaction_path(index))

    def graph_parts(self, arrays: Mapping[str, str]) -> List[GraphPart]:
        """Both encoders, the interaction, and its stages."""
        parts, units = parts_apart(self), self.config.units
        encodings = parts[-1].inputs
        stages: List[Any] = list(self.encoder_stages())
        if len(stages) > 1:
            stages[0] = functools.partial(_joined, self.join(), stages[0])
            for layer, stage in zip(self.exits, stages):
                parts.append(GraphPart(f"exit_{layer}", stage, encodings, ENCODINGS_AND_SCORES))
                encodings = {"hidden": f"float32 (B, L, {units})", "valid_length": "float32 (B,)"}
        return parts

    def stage_work(self) -> List[float]:
        """Multiply-adds of each exit's layers for one token of the joint sequence."""
        units, kind = self.config.units, self.own_config.interaction
        if kind == "linear":
            return [0.0]  # a head alone
        if kind == "lstm":
            # Both directions of a layer have 4 gates, of a 2 C wide input and a C wide state.
            return [float(LSTM_LAYERS * 2 * 4 * units * 3 * units)]
        depths = [end - start for start, end in zip((0, *self.exits), self.exits)]
        return [float(depth * self.config.layer_work) for depth in depths]

    def hybrid_forward(self, F, *texts: Tensor, **tables: Tensor) -> Tensor:
        # The blocks of the path share the tables.
        path = self.path(len(self.exits) - 1)
        return F.reshape(path(*texts), (-1,))


def parts_apart(network: Any) -> List[GraphPart]:
    """Both encoders, so that encodings can be stored, and the interaction."""
    text = {"token_ids": "int32 (B, L)", "valid_length": "float32 (B,)"}
    parts = []
    for name, encoder in zip(("question", "document"), network.encoders):
        compute = functools.partial(_encode, encoder)
        parts.append(GraphPart(name, compute, text, ("last_hidden_state",)))
    units = network.config.units
    encodings = {
        "question": f"float32 (B, N, {units})",
        "question_valid": "float32 (B,)",
        "document": f"float32 (B, M, {units})",
        "document_valid": "float32 (B,)",
    }
    return [*parts, GraphPart("interaction", network.interaction_path(), encodings)]


def _joined(join: HybridBlock, stage: Stage, *encodings: Tensor) -> Any:
    """The first stage, from the encodings of questions and documents."""
    return stage(*join(*encodings))


def _encode(encoder: Backbone, token_ids: Tensor, valid_length: Tensor) -> Tensor:
    """Encodings of texts whose token types are all 0."""
    return encoder(token_ids, None, valid_length)
