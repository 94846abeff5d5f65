"""Training of DC-BERT (Zhang et al. 2020, section 2), end to end.

Each pair is encoded as its two texts; the losses reach both encoders, the global rows and the
interaction layers. The labels of retrieved documents are distant: a document that contains an exact
answer is positive. With several exits an update trains one of them or all, as that of a cascade.

A batch encodes a text of several pairs once, so that these pairs share its dropout mask.
``document_pairs`` keeps pairs of one document together.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.errors import OptionError
from wqa.models import Backbone, Network
from wqa.models.exits import ExitNetwork
from wqa.models.heads import FirstPositionHead
from wqa.text import bucketed, plan_batches
from wqa.training.schedules import ExitTask
from wqa.training.start import INITIAL_SIGMA, Start, copy_layers, copy_parameters
from wqa.training.task import Setup

#: Name of the system, for starts from a run of it.
SYSTEM = "dcbert"
#: Fields of the configuration that a start from such a run must share. Documents take the global
#: positions from ``question_length`` on.
_SHAPE = ("layers", "interaction", "question_length", "joining", "classifier")


class DCBERTTask(ExitTask):
    """Labelled pairs for a `wqa.systems.dcbert.network.DecoupledTransformer`.

    It takes the parameters of `PairTask`.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._documents: Optional[np.ndarray] = None  # of each pair, from the first plan on
        self._trains_all = self.network.own_config.trained_exits == "all"
        if self._trains_all:
            self._paths = [self.network.path()]
        if self.network.own_config.document_pairs > 1 and self.config.shuffle == "question":
            raise OptionError(
                "document_pairs and shuffle",
                f"{self.network.own_config.document_pairs} and question",
                "shuffle pair where pairs of one document stay together, whatever their questions",
                "give document_pairs=1, or shuffle=pair",
            )

    @classmethod
    def make_network(cls, setup: Setup) -> Network:
        network = super().make_network(setup)
        run = setup.start.run_config()
        if run is not None and run.system == setup.system.name:
            for name in _SHAPE:
                # Runs of earlier versions lack the newer fields.
                stored = run.network.get(name, getattr(type(network.own_config), name))
                wanted = getattr(network.own_config, name)
                if stored != wanted:
                    raise OptionError(
                        "init",
                        f"a run with {name}={stored}",
                        f"one with {name}={wanted}",
                        f"give {name}={stored}, or start from an encoder",
                    )
        return network

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network from a start of any kind.

        A run of the same shape gives all of its parts. Any other start gives its encoder to both
        encoders, its last layers to the interaction, and its position and type rows to the global
        tables. The classifiers are new.
        """
        network, run = self.network, start.run_config()
        if run is not None and run.system == SYSTEM:
            return start.fill(network, devices)
        model = _Source(network.config)
        start.fill(model, devices)
        network.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=list(devices))
        for encoder in network.encoders:
            copy_parameters(model.backbone, encoder)
        if network.own_config.interaction == "transformer":
            first = network.num_layers - network.own_config.layers
            copy_layers(model.backbone.layers[first:], network.interaction)
            _copy_tables(model.backbone, network)
        pooler = model.heads[0].pooler
        for target in network.poolers():
            copy_parameters(pooler, target)
        if run is None:
            return ""
        return f"both encoders, and what starts from them, of {start.name} ({run.system})"

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        together = self.network.own_config.document_pairs
        if together == 1:
            return super().plan(tokens, rng)
        lengths = self.pairs.lengths
        widest = sum(bucketed(length) for length in lengths.max(axis=0).tolist())
        size = max(1, min(together, tokens // widest))
        if self._documents is None:
            self._documents = self.pairs.candidates
        groups, widths = _groups(self._documents, lengths, size, rng)
        plan = []
        for batch in plan_batches(widths, tokens // size, rng):
            plan.append(np.concatenate([groups[index] for index in batch]))
        return plan

    def network_inputs(self, batch: Dict[str, mx.nd.NDArray]) -> List[mx.nd.NDArray]:
        texts, rows = [], []
        for name in ("question", "document"):
            ids, valid, of_pair = _distinct(batch[f"{name}_ids"], batch[f"{name}_valid"])
            texts += [ids, valid]
            rows.append(of_pair)
        return texts + rows

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        if not self._trains_all:
            return super().losses(batch, update)
        scores = self._paths[0](*self.network_inputs(batch))  # (rows, N)
        losses = {}
        for index, layer in enumerate(self.network.exits):
            column = mx.nd.slice_axis(scores, axis=1, begin=index, end=index + 1)
            losses[f"exit_{layer}"] = self.score_loss(column.reshape((-1,)), batch, update)
        return losses

    def scores(self, batch: Dict[str, mx.nd.NDArray], update: int) -> mx.nd.NDArray:
        return self._paths[self.drawn_exit(update)](*self.network_inputs(batch)).reshape((-1,))


class _Source(ExitNetwork):
    """An encoder, and a classifier whose dense layer a pooler initialises."""

    def make_head(self, layer: int) -> FirstPositionHead:
        return FirstPositionHead(self.config.units, self.config.head_dropout, self.config.family)


def _groups(
    documents: np.ndarray,
    lengths: np.ndarray,
    size: int,
    rng: Optional[np.random.Generator],
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
    rows = mx.nd.array(rows, ctx=ids.context, dtype="int32")
    of_row = mx.nd.array(of_row, ctx=ids.context, dtype="int32")
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
    scale = network.own_config.row_scale
    network.position_weight.set_data(scale * positions)
    # RoBERTa has one type of tokens. It becomes that of questions, and that of documents is new.
    rows = network.type_weight.data(ctx).copy()
    known = min(len(types), len(rows))
    rows[:known] = scale * types[:known]
    network.type_weight.set_data(rows)
