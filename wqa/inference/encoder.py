"""The layers of an exit network on packed rows, computed by oneDNN."""

from __future__ import annotations

import collections
import math
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from wqa.inference.packed import (
    ATTENTIONS,
    STEPS,
    Attention,
    Batch,
    Compiler,
    Quantized,
    Watch,
    Weight,
    Workspace,
    round_up,
)
from wqa.inference.parameters import EmbeddingParameters, HeadParameters, LayerParameters
from wqa.models import onednn
from wqa.models.heads import ExitNetwork
from wqa.models.onednn import DST, SRC, WEIGHTS, Array, Call
from wqa.text import EncodedPair

#: Pairs whose heads run together.
HEAD_ROWS = 256


def as_float32(rows: np.ndarray) -> np.ndarray:
    """Encodings as float32; bfloat16 comes as its 16 bits."""
    return (
        rows.copy() if rows.dtype == np.float32 else (rows.astype(np.uint32) << 16).view(np.float32)
    )


class PackedEncoder:
    """The layers of an exit network on packed rows.

    Parameters
    ----------
    model : ExitNetwork
        With its parameters on the CPU; they are read, not kept in step.
    typed : bool
        Whether pairs have token types.
    kind : {"float32", "bfloat16"}
        Type of the encodings.
    rows : int
        Most tokens of a micro-batch.
    quantized : list of dict, optional
        `Quantized` products of each layer, for int8.
    """

    def __init__(
        self,
        model: ExitNetwork,
        typed: bool,
        kind: str,
        rows: int,
        quantized: Optional[Sequence[Dict[str, Quantized]]] = None,
    ) -> None:
        config = model.config
        self.config, self.kind = config, kind
        self._compiler, self._space = Compiler(), Workspace(round_up(rows))
        self._firsts = Workspace(max(HEAD_ROWS, round_up(rows)))
        self._work = (onednn.Scratch(), onednn.Scratch(), self._compiler.scratch)
        self._embeddings = EmbeddingParameters(model, typed)
        scale = 1 / math.sqrt(config.units // config.num_heads)
        made: Dict[Tuple[int, int], LayerParameters] = {}
        self._layers: List[LayerParameters] = []
        for place, layer in enumerate(model.backbone.layers[: model.exits[-1]]):
            key = (
                id(layer),
                place if quantized else 0,
            )  # a shared layer has its integers at each place
            if key not in made:
                made[key] = LayerParameters(layer, scale, quantized[place] if quantized else None)
            self._layers.append(made[key])
        self._heads = [HeadParameters(model.head(index)) for index in range(len(model.exits))]
        self._calls: Dict[tuple, Dict[str, List[Call]]] = {}
        self._attentions: collections.OrderedDict[tuple, Attention] = collections.OrderedDict()

    # Encodings

    def embed(self, pairs: Sequence[EncodedPair], batch: Batch) -> None:
        """Embeddings of a micro-batch become the current encodings."""
        table = self._embeddings
        sums, other = (self._space.data(name, table.width, "float32") for name in ("sums", "other"))
        table.sum(pairs, batch, sums, other)
        for call in self._embed_calls(batch.rows):
            call()

    def load(self, rows: Sequence[np.ndarray]) -> None:
        """Encodings that were kept become the current ones."""
        np.concatenate(rows, out=self.encodings[: sum(map(len, rows))])

    @property
    def encodings(self) -> np.ndarray:
        """Memory of the current encodings, (rows, C); bfloat16 as its 16 bits."""
        return self._space.data("x", self.config.units, self.kind)

    def layer(self, index: int, batch: Batch, watch: Optional[Watch] = None) -> None:
        """Run a layer on the current encodings.

        Parameters
        ----------
        index : int
            From 0.
        batch : Batch
        watch : callable, optional
            Is shown what enters each step.
        """
        calls = self._layer_calls(index, batch.rows, 0)
        for step in STEPS:
            if step == "merge":
                self._attend(batch, first=False)
            if watch is not None:
                watch(index, step, self._entering(step)[: batch.tokens])
            for call in calls[step]:
                call()

    def last_layer_first_rows(self, index: int, batch: Batch) -> np.ndarray:
        """Run a layer, but past keys and values for the first row of each pair alone.

        Parameters
        ----------
        index : int
        batch : Batch

        Returns
        -------
        numpy.ndarray
            (pairs, C), float32; the current encodings are left as they were.
        """
        count = len(batch.lengths)
        first = self._firsts.data("x", self.config.units, self.kind)
        np.take(self.encodings, batch.starts[:-1], axis=0, out=first[:count], mode="clip")
        calls = self._layer_calls(index, batch.rows, round_up(count))
        for step in STEPS:
            if step == "merge":
                self._attend(batch, first=True)
            for call in calls[step]:
                call()
        return as_float32(first[:count])

    def _entering(self, step: str) -> np.ndarray:
        name, width = {
            "project": ("x", self.config.units),
            "merge": ("context", self.config.units),
            "widen": ("x", self.config.units),
            "narrow": ("inner", self.config.hidden_size),
        }[step]
        return self._space.data(name, width, self.kind)

    def _attend(self, batch: Batch, first: bool) -> None:
        units, size = self.config.units, self.encodings.itemsize
        asking = self._firsts if first else self._space
        query, context = (
            asking.data(name, units, self.kind).ctypes.data for name in ("query", "context")
        )
        key, value = (
            self._space.data(name, units, self.kind).ctypes.data for name in ("key", "value")
        )
        for group in batch.groups:
            here = group.row * units * size
            there = group.pair * units * size if first else here
            self._attention(group.pairs, group.length, 1 if first else group.length)(
                query + there, key + here, value + here, context + there
            )

    def _attention(self, count: int, length: int, queries: int) -> Attention:
        key = (count, length, queries)
        found = self._attentions.get(key)
        if found is None:
            found = Attention(*key, self.config.num_heads, self.config.units, self.kind, self._work)
            self._attentions[key] = found
            if len(self._attentions) > ATTENTIONS:
                self._attentions.popitem(last=False)
        self._attentions.move_to_end(key)
        return found

    # What is compiled and bound

    def _embed_calls(self, rows: int) -> List[Call]:
        key = ("embed", rows)
        if key not in self._calls:
            table, space, units = self._embeddings, self._space, self.config.units
            sums, out = (
                space.array("sums", rows, table.width, "float32"),
                space.array("x", rows, units, self.kind),
            )
            if table.projection is None:
                calls = [
                    self._compiler.layer_norm(sums, *table.norm, out, self.config.layer_norm_eps)
                ]
            else:
                normed = space.array("other", rows, table.width, "float32")
                total = space.array("total", rows, units, "float32")
                calls = [
                    self._compiler.layer_norm(
                        sums, *table.norm, normed, self.config.layer_norm_eps
                    ),
                    self._compiler.product(normed, table.projection, total),
                    self._compiler.converted(total, out),
                ]
            self._calls[key] = {"embed": calls}
        return self._calls[key]["embed"]

    def _layer_calls(self, index: int, rows: int, firsts: int) -> Dict[str, List[Call]]:
        key = (index, rows, firsts)
        if key not in self._calls:
            layer, units = self._layers[index], self.config.units
            project: List[Call] = []
            for space, count, names in (
                (self._space, rows, ("key", "value") if firsts else ("query", "key", "value")),
                *([(self._firsts, firsts, ("query",))] if firsts else []),
            ):
                source = space.array("x", count, units, self.kind)
                source = self._rounded(project, source, layer.products["key"], space, "x8")
                for name in names:
                    out = space.array(name, count, units, self.kind)
                    project.append(self._compiler.product(source, layer.products[name], out))
            rest = (
                self._rest(layer, self._firsts, firsts)
                if firsts
                else self._rest(layer, self._space, rows)
            )
            self._calls[key] = {"project": project, **rest}
        return self._calls[key]

    def _rest(self, layer: LayerParameters, space: Workspace, rows: int) -> Dict[str, List[Call]]:
        config, compiler = self.config, self._compiler
        x, context = (space.array(name, rows, config.units, self.kind) for name in ("x", "context"))
        total = space.array("total", rows, config.units, "float32")
        steps: Dict[str, List[Call]] = {"merge": [], "widen": [], "narrow": []}
        source = self._rounded(steps["merge"], context, layer.products["output"], space, "context8")
        steps["merge"] += [
            compiler.product(source, layer.products["output"], total, residual=x),
            compiler.layer_norm(total, *layer.attention_norm, x, config.layer_norm_eps),
        ]
        source = self._rounded(steps["widen"], x, layer.products["inner"], space, "x8")
        factor = layer.products["outer"].factor
        inner = space.array(
            "inner", rows, config.hidden_size, "int8" if factor is not None else self.kind
        )
        steps["widen"].append(
            compiler.product(
                source, layer.products["inner"], inner, config.activation, factor=factor
            )
        )
        steps["narrow"] += [
            compiler.product(inner, layer.products["outer"], total, residual=x),
            compiler.layer_norm(total, *layer.ffn_norm, x, config.layer_norm_eps),
        ]
        return steps

    def _rounded(
        self, calls: List[Call], source: Array, weight: Weight, space: Workspace, name: str
    ) -> Array:
        """The source itself, or, for an 8-bit product, where a call that is added to ``calls``
        rounds it to."""
        if weight.factor is None:
            return source
        rows, width = source.layout.shape
        out = space.array(name, rows, width, "int8")
        calls.append(self._compiler.scaled(source, weight.factor, out))
        return out

    # Heads

    def pooled(self, exit: int, batch: Batch) -> np.ndarray:
        """What an exit's head reads of the current encodings.

        Parameters
        ----------
        exit : int
            From 0.
        batch : Batch

        Returns
        -------
        numpy.ndarray
            (pairs, C), float32: the first row of each pair, or the mean of positions 1..m (Soldaini
            and Moschitti 2020, section 4.3).
        """
        if self._heads[exit].takes_first:
            return as_float32(self.encodings[batch.starts[:-1]])
        count, units = len(batch.lengths), self.config.units
        pairs = round_up(count)
        chosen = self._firsts.data(f"chosen{batch.rows}", batch.rows, self.kind)
        chosen[:count] = 0
        one = np.float32(1).view(np.uint32) >> 16 if self.kind == "bfloat16" else np.float32(1)
        for row, (start, end) in enumerate(zip(batch.starts.tolist(), batch.starts[1:].tolist())):
            chosen[row, start + 1 : end] = one
        source = self._firsts.array(f"chosen{batch.rows}", pairs, batch.rows, self.kind)
        values, out = (
            self._space.array("x", batch.rows, units, self.kind),
            self._firsts.array("sums", pairs, units, "float32"),
        )
        key = ("means", pairs, batch.rows)
        if key not in self._calls:
            kernel = onednn.product(source.layout, values.layout, out.layout)
            call = kernel.bind(
                {SRC: source, WEIGHTS: values, DST: out}, scratch=self._compiler.scratch
            )
            self._calls[key] = {"means": [call]}
        self._calls[key]["means"][0]()
        return out.data[:count] / (batch.lengths - 1)[:, None].astype(np.float32)

    def scores(self, exit: int, pooled: np.ndarray) -> np.ndarray:
        """Log-odds by the head of an exit.

        Parameters
        ----------
        exit : int
            From 0.
        pooled : numpy.ndarray
            (pairs, C), float32.

        Returns
        -------
        numpy.ndarray
            (pairs,), float32.
        """
        return np.concatenate(
            [
                self._chunk_scores(exit, pooled[start : start + HEAD_ROWS])
                for start in range(0, len(pooled), HEAD_ROWS)
            ]
        )

    def _chunk_scores(self, exit: int, pooled: np.ndarray) -> np.ndarray:
        count, units, space = len(pooled), self.config.units, self._firsts
        rows = round_up(count)
        names, key = ("pooled", "hidden"), ("head", exit, rows)
        space.data("pooled", units, "float32")[:count] = pooled
        if key not in self._calls:
            calls: List[Call] = []
            layers = self._heads[exit].layers
            for place, (weight, activation) in enumerate(layers):
                source = space.array(names[place % 2], rows, units, "float32")
                out = space.array(
                    *(
                        ("score", rows, 1)
                        if place == len(layers) - 1
                        else (names[1 - place % 2], rows, units)
                    ),
                    "float32",
                )
                calls.append(self._compiler.product(source, weight, out, activation))
            self._calls[key] = {"head": calls}
        for call in self._calls[key]["head"]:
            call()
        return space.data("score", 1, "float32")[:count, 0].copy()

    def takes_first(self, exit: int) -> bool:
        """Whether an exit's head reads the first position alone."""
        return self._heads[exit].takes_first
