"""The joint model that MSPP pre-trains (Di Liello et al. 2022, sections 3.2 and 3.3).

One encoder reads a question s_0 and k candidates s_1, ..., s_k at once. Token types 0..k tell the
segments apart. E_i is the encoding of the special token before segment i, and four heads read them:
IE_1 (E_0) and AE_1 (the average of E_0, ..., E_k) give one label to the whole input, IE_k (E_i) and
AE_k (E_0 and E_i) one score to each candidate.

The paper calls its heads linear layers. In the authors' code they are that of RoBERTa's classifier:
dropout, a dense layer with tanh, dropout, an output layer. So are these.

Pre-training (sections 3.4 and 4.1) trains the joint model, with a head for each candidate, and a
predictor of masked tokens beside it. Both read one pass of the encoder.

Fact verification (section 3.1) puts a claim in place of the question and its evidence in place of
the candidates. IE_1 or AE_1 tells whether the evidence supports the claim or refutes it.

Shapes: B inputs, L positions, k candidates, n = k + 1 marks, M masked positions of an input, C
units, V tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Sequence, Tuple

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.config.encoders import check_length
from wqa.errors import EncoderError, OptionError, shorten
from wqa.models import Network
from wqa.models.backbone import activate
from wqa.models.exits import OneHeadNetwork
from wqa.models.heads import Head
from wqa.pretrained.names import Names, array_names
from wqa.pretrained.source import DirectoryLayout, Source
from wqa.systems.mspp.config import HEADS, SINGLE_LABEL, ClaimConfig, MSPPConfig, PretrainingConfig
from wqa.systems.mspp.inputs import JointInputs
from wqa.text import Tokenizer


class TokenPredictor(HybridBlock):
    """Predicts masked tokens from their encodings (Devlin et al. 2019, section 3.1).

    Inputs are encodings, (N, C), and the table of word embeddings, (V, E); the output is (N, V)
    logits.
    """

    def __init__(self, config: BackboneConfig, **kwargs) -> None:
        super().__init__(**kwargs)
        width = config.embedding_size or config.units  # E
        self._tokens, self._activation = config.vocab_size, config.activation
        with self.name_scope():
            self.dense = nn.Dense(width, in_units=config.units)
            self.layer_norm = nn.LayerNorm(in_channels=width, epsilon=config.layer_norm_eps)
            self.bias = self.params.get("bias", shape=(config.vocab_size,), init="zeros")

    def hybrid_forward(self, F, rows: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        rows = self.layer_norm(activate(F, self.dense(rows), self._activation))  # (N, E)
        return F.FullyConnected(rows, table, bias, num_hidden=self._tokens)


class SegmentHead(Head):
    """Base class of the heads on the embeddings of segments.

    Inputs are E_0, ..., E_k, (B, n, C), and which segments are there, (B, n).
    """

    reads = "marks"

    def __init__(self, config: Any, width: int, outputs: int, dropout: float, **kwargs) -> None:
        super().__init__(**kwargs)
        self.marks = config.k + 1
        with self.name_scope():
            # New for all families: no encoder is trained to sum up a segment among several here.
            self.dense = nn.Dense(width, activation="tanh", flatten=False, in_units=width)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(outputs, flatten=False, in_units=width)

    def classify(self, rows: Tensor) -> Tensor:
        """Logits of rows, (..., width): (..., outputs)."""
        return self.out(self.dropout(self.dense(self.dropout(rows))))


class CandidateHead(SegmentHead):
    """IE_k or AE_k: the log-odds of each candidate, (B, k), 0 where it is missing.

    The outputs are two classes. A score is the second less the first.
    """

    def __init__(self, config: Any, units: int, dropout: float, **kwargs) -> None:
        self._joins_question = config.head == "AE_k"
        width = 2 * units if self._joins_question else units
        super().__init__(config, width, 2, dropout, **kwargs)

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        rows = F.slice_axis(segments, axis=1, begin=1, end=None)  # (B, k, C)
        if self._joins_question:
            question = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            question = F.broadcast_axis(question, axis=1, size=self.marks - 1)
            rows = F.concat(question, rows, dim=2)  # (B, k, 2 C)
        wrong, right = F.split(self.classify(rows), num_outputs=2, axis=2, squeeze_axis=True)
        is_there = F.slice_axis(present, axis=1, begin=1, end=None)  # (B, k)
        return (right - wrong) * is_there


class InputHead(SegmentHead):
    """IE_1 or AE_1: the logits of the labels of the whole input, (B, labels).

    AE_1 averages the segments that are there, as a missing one has no embedding.
    """

    def __init__(self, config: Any, units: int, dropout: float, **kwargs) -> None:
        super().__init__(config, units, config.labels, dropout, **kwargs)
        self._aggregates = config.head == "AE_1"
        self._averages = config.aggregation == "mean"

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        # It changes nothing, but a hybridized block warns of an input that it does not use.
        is_there = F.expand_dims(present, axis=2)  # (B, n, 1)
        segments = F.broadcast_mul(segments, is_there)  # (B, n, C)
        if not self._aggregates:
            row = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            return self.classify(F.reshape(row, (-3, 0)))
        row = F.sum(segments, axis=1)  # (B, C)
        if self._averages:
            row = F.broadcast_div(row, F.sum(present, axis=1, keepdims=True))
        return self.classify(row)


class JointTransformer(OneHeadNetwork):
    """An encoder of a question and k candidates with one of the four heads.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32, ``positions``, (B, L), int32, for
    ``positions="slots"`` alone, ``marks``, (B, k + 1), and ``valid_length``, (B,), float32. The
    output is (B, k) log-odds for IE_k and AE_k, and (B, labels) logits for IE_1 and AE_1.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder, of any family. Its token-type table gets k + 1 rows.
    config : MSPPConfig, optional
        Head, and form of the inputs.

    Raises
    ------
    OptionError
        If there is no encoder, or an input may have more tokens than the encoder has positions.
    """

    Config = MSPPConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[MSPPConfig] = None, **kwargs
    ) -> None:
        own = config or self.Config()
        if backbone is not None:
            positions = backbone.max_positions
            segments = own.k + 1
            length = own.segment_length * segments
            if length > positions:
                problem = f"{own.segment_length} x ({own.k} + 1) = {length} tokens"
                expected = f"at most {positions}, the positions of the encoder"
                hint = f"take segment_length={positions // segments} or less, or fewer candidates"
                raise OptionError("segment_length and k", problem, expected, hint)
            backbone = dataclasses.replace(backbone, token_types=segments)
        super().__init__(backbone, own, **kwargs)
        self.exits = (backbone.num_layers,)

    def make_head(self) -> Head:
        """The head that the configuration names."""
        own = self.own_config
        head = InputHead if own.head in SINGLE_LABEL else CandidateHead
        return head(own, self.config.units, self.config.head_dropout)

    def text_inputs(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> JointInputs:
        """Joint inputs, whose segments have L tokens; ``max_length`` is at least L."""
        check_length(max_length, self.max_positions)
        own = self.own_config
        if max_length < own.segment_length:
            problem = f"{max_length}, and segments have segment_length={own.segment_length}"
            raise OptionError("max_length", problem, f"at least {own.segment_length}")
        form = (own.segment_length, own.k, own.positions, own.missing)
        return JointInputs(tokenizer, *form, long_questions, own.marks)

    def hybrid_forward(self, F, token_ids: Tensor, token_types: Tensor, *inputs: Tensor) -> Tensor:
        *positions, marks, valid_length = inputs
        hidden = self.backbone.embeddings(token_ids, token_types, *positions)
        rows = self.backbone.layers(hidden, valid_length, marks)
        return self.head(rows, marks >= 0)


class PredictingTransformer(JointTransformer):
    """A joint model that is pre-trained: it predicts masked tokens too.

    Inputs and output are those of the joint model, as which it ranks.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : PretrainingConfig, optional
        Configuration of the joint model and of its losses.
    """

    Config = PretrainingConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[PretrainingConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        with self.name_scope():
            self.predictor = TokenPredictor(self.config)

    def scores_and_likelihoods(
        self, inputs: Sequence[Any], masked: Any, masked_ids: Any
    ) -> Tuple[Any, Any]:
        """Score the candidates and predict the masked tokens, by one pass of the encoder.

        Parameters
        ----------
        inputs : sequence of mxnet.nd.NDArray
            Inputs of the joint model.
        masked, masked_ids : mxnet.nd.NDArray
            (B, M) masked positions, and float32 ids of the tokens that stood there.

        Returns
        -------
        scores : mxnet.nd.NDArray
            (B, k) log-odds of the candidates.
        likelihoods : mxnet.nd.NDArray
            (B, M) logarithms of the probabilities of the tokens.
        """
        token_ids, token_types, *positions, marks, valid_length = inputs
        hidden = self.backbone.embeddings(token_ids, token_types, *positions)
        read = mx.nd.concat(marks, masked, dim=1)  # (B, n + M)
        rows = self.backbone.layers(hidden, valid_length, read)
        count = self.head.marks
        segments = mx.nd.slice_axis(rows, axis=1, begin=0, end=count)
        scores = self.head(segments, marks >= 0)
        rows = mx.nd.slice_axis(rows, axis=1, begin=count, end=None)  # (B, M, C)
        flat = rows.reshape((-3, 0))  # (B M, C)
        # The table is an input, as a block that shared the parameter would be saved with a copy.
        table = self.backbone.embeddings.word.weight.data(rows.context)
        logits = self.predictor(flat, table)  # (B M, V)
        logarithms = mx.nd.log_softmax(logits, axis=-1)
        likelihoods = mx.nd.pick(logarithms, masked_ids.reshape((-1,)))
        return scores, likelihoods.reshape(masked_ids.shape)


class ClaimTransformer(JointTransformer):
    """A joint model that gives a label to a claim with its evidence.

    Inputs are those of the joint model. The output is (B, labels) logits.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ClaimConfig, optional
        Head, form of the inputs, and names of the labels.
    """

    Config = ClaimConfig


#: Start of the names of the head's tensors.
HEAD = "classifier.classifier"


class JointLayout(DirectoryLayout):
    """Directories of the joint models of MSPP's authors.

    Their PyTorch code (amazon-science/wqa-multi-sentence-inference) saves classes
    ``JointRoberta...`` as Hugging Face's library does. ``config.json`` is that of RoBERTa with
    ``k``, ``sentence_msl`` (L) and ``head_type``, and the token-type table has k + 1 rows. The head
    is one classifier inside another. A model from pre-training also holds the head of masked
    language modelling, which nothing here takes.
    """

    system = "mspp"

    def recognizes(self, files: Source) -> bool:
        # One of masked language modelling alone is an encoder with k + 1 token types.
        has_head = any(name.startswith("classifier.") for name in files.shapes())
        return has_head and "sentence_msl" in files.settings and "head_type" in files.settings

    def options(self, files: Source) -> Dict[str, Any]:
        path, settings = files.where / "config.json", files.settings
        head = settings["head_type"]
        if head not in HEADS:
            expected = "one of " + ", ".join(HEADS)
            raise EncoderError(path, f"head_type {shorten(head)}", expected)
        options: Dict[str, Any] = {"head": head}
        for ours, theirs in (("k", "k"), ("segment_length", "sentence_msl")):
            value = settings.get(theirs)
            if type(value) is not int:
                problem = f"{theirs} {shorten(value)}"
                raise EncoderError(path, problem, "a whole number", "fetch the file again")
            options[ours] = value
        labels = files.shapes().get(f"{HEAD}.out_proj.bias", (0,))[0]
        if head in SINGLE_LABEL:
            options["labels"] = labels
        elif labels != 2:
            problem = f"a head {head} of {labels} labels"
            raise EncoderError(path, problem, "2: wrong and right candidates")
        # What the model was trained with, so that it keeps its scores.
        return {**options, "positions": "tokens", "missing": "visible", "aggregation": "sum"}

    def max_length(self, network: Network) -> int:
        return network.own_config.segment_length

    def names(self, network: Network) -> Names:
        return {
            **array_names("head.dense", [f"{HEAD}.dense"]),
            **array_names("head.out", [f"{HEAD}.out_proj"]),
        }
