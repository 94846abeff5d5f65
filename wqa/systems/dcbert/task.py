"""Training of DC-BERT (Zhang et al. 2020, section 2), end to end.

Each pair is encoded as its two texts; the losses reach both encoders, the global rows and the
interaction layers. The labels of retrieved documents are distant: a document that contains an exact
answer is positive. With several exits an update trains one of them, as that of a cascade.

A batch encodes a text of several pairs once, so that these pairs share its dropout mask.
``document_pairs`` keeps pairs of one document together.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.errors import OptionError
from wqa.models import Backbone, Network
from wqa.models.heads import FirstPositionHead
from wqa.text import bucketed, plan_batches
from wqa.training.schedules import ExitTask
from wqa.training.start import Origin, Start, fill_from
from wqa.training.task import Arrays, PairTask


class DCBERTTask(ExitTask):
    """Labelled pairs for a `wqa.systems.dcbert.network.DecoupledTransformer`.

    It takes the parameters of `PairTask`.
    """

    # Documents take the global positions from ``question_length`` on.
    shape = ("layers", "interaction", "question_length", "classifier")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        together = self.network.own_config.document_pairs
        #: Number of each pair's document.
        self._documents = self.pairs.candidates if together > 1 else np.zeros(0, np.int32)
        if together > 1 and self.config.shuffle == "question":
            expected = "shuffle pair, where pairs of one document stay together"
            raise OptionError("document_pairs and shuffle", f"{together} and question", expected)

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network from a start of any kind.

        A run of the same shape gives all of its parts. Any other start gives its encoder to both
        encoders, its last layers to the interaction, and its position and type rows to the global
        tables. The classifiers are new.
        """
        network: Any = self.network
        if start.has_shape(network.own_config, self.shape):
            return start.fill(network, devices)
        config, depth = network.config, network.num_layers
        head = FirstPositionHead(config.units, config.head_dropout, config.family)
        origin = Origin(config, {f"head_{depth}": head})
        copies = [(encoder, origin.backbone) for encoder in network.encoders]
        copies += [(pooler, head.dense) for pooler in network.poolers()]
        has_layers = network.own_config.interaction == "transformer"
        if has_layers:
            last = origin.backbone.layers[-network.own_config.layers :]
            copies += zip(network.interaction, last)
        fill_from(origin, network, copies, start, devices)
        if has_layers:
            _copy_tables(origin.backbone, network)
        run = start.run_config()
        if run is None:
            return ""
        return f"both encoders, and what starts from them, of {start.name} ({run.system})"

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        together = self.network.own_config.document_pairs
        if together == 1:
            return super().plan(tokens, rng)
        lengths = self.pairs.lengths
        longest = lengths.max(axis=0).tolist()
        widest = sum(map(bucketed, longest))
        size = max(1, min(together, tokens // widest))
        groups, widths = _groups(self._documents, lengths, size, rng)
        plan = []
        for batch in plan_batches(widths, tokens // size, rng):
            plan.append(np.concatenate([groups[index] for index in batch]))
        return plan

    def network_inputs(self, batch: Arrays) -> List[mx.nd.NDArray]:
        return _each_once(batch)

    def scores(self, batch: Arrays, update: int) -> mx.nd.NDArray:
        path = self._paths[self.drawn_exit(update)]
        return path(*self.network_inputs(batch)).reshape((-1,))


class SimilarityTask(PairTask):
    """Labelled pairs for a `wqa.systems.dcbert.similarity.SimilarityNetwork`.

    It takes the parameters of `PairTask`.
    """

    taught_scores = 1

    def network_inputs(self, batch: Arrays) -> List[mx.nd.NDArray]:
        return _each_once(batch)


def _each_once(batch: Arrays) -> List[mx.nd.NDArray]:
    """Inputs of a path that hold each text of a batch once, and the rows that each pair reads."""
    texts, rows = [], []
    for name in ("question", "document"):
        ids, valid, of_pair = _distinct(batch[f"{name}_ids"], batch[f"{name}_valid"])
        texts += [ids, valid]
        rows.append(of_pair)
    return texts + rows


def _groups(
    documents: np.ndarray, lengths: np.ndarray, size: int, rng: Optional[np.random.Generator]
) -> Tuple[List[np.ndarray], np.ndarray]:
    """Divide pairs into groups of at most ``size`` pairs of one document.

    Returns the pairs of each group, and the tokens of both texts of its longest pair, (groups, 2).
    The latter are those of all pairs of the document, so that they do not depend on the shuffle.
    """
    order = np.arange(len(documents)) if rng is None else rng.permutation(len(documents))
    order = order[np.argsort(documents[order], kind="stable")]
    starts = np.flatnonzero(np.diff(documents[order])) + 1
    groups, widths = [], []
    for pairs in np.split(order, starts):
        for first in range(0, len(pairs), size):
            groups.append(pairs[first : first + size])
            widths.append(lengths[pairs].max(axis=0))
    return groups, np.stack(widths)


def _distinct(
    ids: mx.nd.NDArray, valid: mx.nd.NDArray
) -> Tuple[mx.nd.NDArray, mx.nd.NDArray, mx.nd.NDArray]:
    """Distinct texts of a batch, (T, L), their valid lengths, and the text of each row, (B,)."""
    keys = np.column_stack([ids.asnumpy(), valid.asnumpy()])
    _, rows, of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    options = {"ctx": ids.context, "dtype": "int32"}
    rows = mx.nd.array(rows, **options)
    of_row = mx.nd.array(of_row, **options)
    return mx.nd.take(ids, rows), mx.nd.take(valid, rows), of_row


def _copy_tables(backbone: Backbone, network: Network) -> None:
    """Copy an encoder's position and type rows to the global tables."""
    config = backbone.config
    ctx = network.position_weight.list_ctx()[0]
    positions = backbone.embeddings.position_weight.data(ctx)[config.first_position :]
    types = backbone.embeddings.token_type.weight.data(ctx)
    if backbone.embeddings.projection is not None:
        # The encoder adds its narrow rows before the projection. Here they are added after it, so
        # they are projected once. The projection's bias is in the encodings already.
        weight = backbone.embeddings.projection.weight.data(ctx)  # (C, E)
        positions = mx.nd.dot(positions, weight, transpose_b=True)
        types = mx.nd.dot(types, weight, transpose_b=True)
    network.position_weight.set_data(positions)
    # RoBERTa has one type of tokens. It becomes that of questions, and that of documents is new.
    rows = network.type_weight.data(ctx).copy()
    known = min(len(types), len(rows))
    rows[:known] = types[:known]
    network.type_weight.set_data(rows)
