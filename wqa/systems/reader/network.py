"""The span reader, BERT's model for question answering (Devlin et al. 2019, section 4.2).

A question and a document are one input, ``[CLS] q [SEP] d [SEP]``. A dense layer on the encoding
T_i of each position gives two logits, S . T_i of the start of the answer and E . T_i of its end.
The score of a span from i to j >= i is their sum. Position 0 stands for no answer, as in SQuAD 2.0
(section 4.3). The reader of DC-BERT's pipeline is such a model (Zhang et al. 2020, section 3).

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Dict, List, Mapping, Tuple

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import nn

from wqa.config.systems import option
from wqa.errors import check_range
from wqa.models import Network
from wqa.models.exits import OneHeadNetwork
from wqa.models.heads import Head
from wqa.models.network import GraphPart, NetworkConfig
from wqa.pretrained.names import Names, array_names
from wqa.pretrained.source import DirectoryLayout, Source


@dataclasses.dataclass(frozen=True)
class ReaderConfig(NetworkConfig):
    """Configuration of the span reader.

    Parameters
    ----------
    stride : int
        Tokens between the starts of neighbouring windows of a document that is longer than the
        room which its question leaves; 0 for half of that room.
    negatives : float
        Windows without an answer to train on, for each window with one. Their target is
        position 0. A question gives those of its first candidates, which a retriever confuses with
        an answer; these are what the reader reads after it. 0 trains on windows with an answer
        alone.
    read : int
        Candidates of a development question that are read, the first of them; 0 for all.

    Raises
    ------
    OptionError
        If a value is below 0.
    """

    stride: int = option(0, "tokens between windows of a long document; 0: half of the room")
    negatives: float = option(1.0, "windows without an answer for each one with an answer")
    read: int = option(10, "candidates of a development question to read; 0: all")

    RETIRED: ClassVar[Dict[str, Any]] = {"positives": None}

    @property
    def computes(self) -> str:
        return "spans"

    def __post_init__(self) -> None:
        check_range("stride", self.stride, 0)
        check_range("negatives", self.negatives, 0.0)
        check_range("read", self.read, 0)


class SpanHead(Head):
    """Logits of each position as the start and as the end of an answer.

    The input is (..., C), the output (..., 2).

    Parameters
    ----------
    units : int
        C, the encoder's width.
    """

    reads = "tokens"

    def __init__(self, units: int, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.out = nn.Dense(2, flatten=False, in_units=units)

    def chain(self) -> List[Tuple[nn.Dense, str]]:
        return [(self.out, "")]

    def hybrid_forward(self, F, hidden: Tensor) -> Tensor:
        return self.out(hidden)


class SpanReader(OneHeadNetwork):
    """An encoder with a `SpanHead`.

    Inputs are those of `Network`; the output is (B, L, 2) logits. Those of the question's positions
    and of padding have no meaning.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ReaderConfig, optional
        Settings of training and reading; the parameters do not depend on them.

    Raises
    ------
    OptionError
        If there is no encoder.
    """

    Config = ReaderConfig

    def make_head(self) -> SpanHead:
        """The two logits of each position."""
        return SpanHead(self.config.units)

    def hybrid_forward(self, F, *inputs: Tensor) -> Tensor:
        return self.head(self.backbone(*inputs))  # (B, L, 2)

    def graph_parts(self, arrays: Mapping[str, str]) -> List[GraphPart]:
        """The network, with the two logits of a position apart."""
        compute = functools.partial(_start_and_end, self)
        return [GraphPart("model", compute, arrays, ("start_logits", "end_logits"))]


def _start_and_end(network: SpanReader, *inputs: Tensor) -> Tensor:
    """Logits of each position as the start and as the end of an answer, (B, L) each."""
    return mx.sym.split(network(*inputs), num_outputs=2, axis=2, squeeze_axis=True)


class SpanLayout(DirectoryLayout):
    """A head of spans, with a logit of the start and one of the end."""

    system = "reader"

    def recognizes(self, files: Source) -> bool:
        return files.has_spans()

    def max_length(self, network: Network) -> int:
        return 384  # of BERT's inputs on SQuAD

    def names(self, network: Network) -> Names:
        return array_names("head.out", ["qa_outputs"])
