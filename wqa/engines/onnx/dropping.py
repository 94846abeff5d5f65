"""A network with exits as one ONNX graph, which drops candidates between its stages.

The inputs are the pairs of one question with its candidates, ``drop_ratios`` and ``least_scores``.
After each exit but the last, k - floor(alpha k) candidates go on (Soldaini and Moschitti 2020,
section 4.3.2), without those whose score is less than the exit's least: the later layers run on
their encodings alone, cut to the longest of them. One candidate always goes on. ``least_scores``
may be left out. A least relevance p of calibrated scores is the score T log(p / (1 - p)), T the
exit's temperature. The outputs are ``scores``, the last of each candidate, ``exits``, the layer at
which it was scored, and ``order``, all as `wqa.inference.Ranking` has them.

Ties keep the original order. The runtimes' TopK need not, so the rank of each candidate is counted
by comparisons, and TopK gets ranks, which do not tie.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import numpy as np

from wqa.engines.onnx.graph import Graph, Value
from wqa.engines.onnx.networks import Parameters, add_input, part_outputs
from wqa.engines.onnx.sessions import MASKS
from wqa.models.network import GraphPart


class _Surviving(NamedTuple):
    """Candidates that the exits before have not dropped.

    Shapes: `indices` (k,), `hidden` (k, L, C), `lengths` (k,).
    """

    indices: Value
    hidden: Value
    lengths: Value


def dropping_graph(
    stages: Sequence[GraphPart], exits: Sequence[int], parameters: Parameters
) -> Graph:
    """Graph of a network with exits, with the drops between them inside.

    Parameters
    ----------
    stages : sequence of GraphPart
        Stages of the network; the first takes its inputs, the others ``hidden`` and
        ``valid_length``.
    exits : sequence of int
        Layer after which each stage scores.
    parameters : dict of str to (str, numpy.ndarray)
        Parameters of the network, as `wqa.engines.onnx.networks.parameters_of` returns them.

    Returns
    -------
    Graph
        Inputs of the first stage, ``drop_ratios`` and ``least_scores``, both (N,) float32, of which
        the last is not read.
        Outputs ``scores``, float32, ``exits`` and ``order``, int64, each (candidates,).
    """
    graph = Graph()
    first = stages[0]
    values, lengths_of_texts = {}, []
    candidates = None
    for name, text in first.inputs.items():
        given = add_input(graph, name, text)
        candidates = given.sizes[0]
        values[name] = _with_a_row(graph, given, int(name in MASKS))
        if name in MASKS:
            lengths_of_texts.append(values[name])
    ratios = graph.input("drop_ratios", "float32", (len(stages),))
    least = graph.input("least_scores", "float32", (len(stages),))
    graph.constant(np.full(len(stages), -np.inf, np.float32), least.name)  # its default
    hidden, scores = part_outputs(graph, first, values, parameters)
    indices = graph.steps(scores.sizes[0])
    lengths = graph.integers(0)
    for length in lengths_of_texts:
        lengths = graph.node("Add", graph.cast(length, "int64"), lengths)
    surviving = _Surviving(indices, hidden, lengths)
    all_scores = scores
    all_exits = _filled(graph, indices, exits[0])
    for number, (stage, layer) in enumerate(zip(stages[1:], exits[1:])):
        ratio = graph.node("Gather", ratios, graph.integers(number), sizes=(1,))
        threshold = graph.node("Gather", least, graph.integers(number), sizes=(1,))
        kept = _kept(graph, ratio, threshold, scores)
        surviving = _keep(graph, surviving, _ranks(graph, scores), kept)
        inputs = {"hidden": surviving.hidden, "valid_length": surviving.lengths}
        hidden, scores = part_outputs(graph, stage, inputs, parameters)
        surviving = surviving._replace(hidden=hidden)
        all_scores = _replaced(graph, all_scores, surviving.indices, scores)
        layers = _filled(graph, surviving.indices, layer)
        all_exits = _replaced(graph, all_exits, surviving.indices, layers)
    ranks = _ranks(graph, all_scores, all_exits)
    order = _least(graph, ranks, graph.shape(all_scores.sizes))
    # Without the row that `_with_a_row` adds.
    bounds = graph.integers(0), graph.shape([candidates])
    outputs = {"scores": all_scores, "exits": all_exits, "order": order}
    for name, value in outputs.items():
        value = graph.plain(value)
        value = graph.node("Slice", value, *bounds, sizes=(candidates,))
        graph.output(name, value)
    return graph


def _with_a_row(graph: Graph, value: Value, number: int) -> Value:
    """Rows of an input, or one row of a number: few operators take tensors without elements."""
    size, *others = value.sizes
    one = graph.integers(1)
    rows = graph.shape([size])
    at_most_one = graph.node("Min", rows, one)
    missing = graph.node("Sub", one, at_most_one)
    parts = missing, graph.shape(others)
    shape = graph.node("Concat", *parts, axis=0, sizes=(value.rank,))
    sizes = (None, *others)
    row = graph.constant(np.array(number, value.kind))
    row = graph.node("Expand", row, shape, sizes=sizes)
    return graph.node("Concat", value, row, axis=0, sizes=sizes)


def _filled(graph: Graph, like: Value, number: int) -> Value:
    """An integer for each candidate."""
    name = graph.integers(number).name
    return graph.expanded(like._replace(name=name, stored=(1,)))


def _kept(graph: Graph, ratio: Value, least: Value, scores: Value) -> Value:
    """Number of candidates that go on, (1,).

    It is the number of shares n / k above the ratio, n from 1 to k: k - floor(alpha k) by the rule
    of `wqa.inference.dropping.dropped`. If fewer candidates have the least score, it is theirs.
    """
    [size] = scores.sizes
    candidates = graph.shape([size])
    candidates = graph.cast(candidates, "float32")
    numbers = graph.node("Add", graph.steps(size), graph.integers(1))
    numbers = graph.cast(numbers, "float32")
    shares = graph.node("Div", numbers, candidates)
    is_above = graph.node("Greater", shares, ratio)
    kept = _count(graph, is_above, axis=0, keepdims=1)
    has_least = graph.node("GreaterOrEqual", scores, least)
    count = _count(graph, has_least, axis=0, keepdims=1)
    count = graph.node("Max", count, graph.integers(1))
    kept = graph.node("Min", kept, count)
    # ONNX has no errors of its own, but TopK refuses a negative number.
    is_ratio = _is_ratio(graph, ratio)
    return graph.node("Where", is_ratio, kept, graph.integers(-1), kind="int64")


def _count(graph: Graph, flags: Value, axis: int, keepdims: int) -> Value:
    """How many flags are true along an axis."""
    numbers = graph.cast(flags, "int64")
    sizes = (1,) if keepdims else flags.sizes[:1]
    axes = graph.integers(axis)
    return graph.node("ReduceSum", numbers, axes, keepdims=keepdims, sizes=sizes)


def _is_ratio(graph: Graph, ratio: Value) -> Value:
    """Whether a number is in [0, 1), (1,)."""
    zero = graph.constant(np.float32(0))
    one = graph.constant(np.float32(1))
    # Comparisons with NaN are false.
    is_least = graph.node("GreaterOrEqual", ratio, zero)
    is_most = graph.node("Less", ratio, one)
    return graph.node("And", is_least, is_most)


def _ranks(graph: Graph, scores: Value, exits: Optional[Value] = None) -> Value:
    """Number of candidates before each: of a later exit, a greater score, or a lower index."""
    steps = graph.steps(scores.sizes[0])
    columns = graph.unsqueeze(steps, 1)
    rows = graph.unsqueeze(steps, 0)
    before = graph.node("Less", rows, columns)  # (k, k), the second before the first
    for values in (scores, exits):
        if values is not None:
            before = _before(graph, values, before)
    return _count(graph, before, axis=1, keepdims=0)


def _before(graph: Graph, values: Value, ties: Value) -> Value:
    """Which candidates have a greater value, or the same and are before in ``ties``."""
    columns = graph.unsqueeze(values, 1)
    rows = graph.unsqueeze(values, 0)
    is_greater = graph.node("Greater", rows, columns)
    is_equal = graph.node("Equal", rows, columns)
    both = graph.node("And", is_equal, ties)
    return graph.node("Or", is_greater, both)


def _least(graph: Graph, values: Value, count: Value) -> Value:
    """Indices of the ``count`` least values, of which no two are equal, in ascending order."""
    names = graph.nodes("TopK", [values.name, count.name], 2, axis=0, largest=0, sorted=1)
    return graph.value(names[1], "int64", (None,))


def _keep(graph: Graph, surviving: _Surviving, ranks: Value, count: Value) -> _Surviving:
    """The first candidates by their ranks, in their original order."""
    best = _least(graph, ranks, count)
    [size] = best.sizes
    in_order = _least(graph, best, count)
    kept = graph.node("Gather", best, in_order)
    indices = graph.node("Gather", surviving.indices, kept, sizes=(size,))
    lengths = graph.node("Gather", surviving.lengths, kept, sizes=(size,))
    longest = graph.node("ReduceMax", lengths, axes=[0], keepdims=1, sizes=(1,))
    sizes = (size, None, surviving.hidden.sizes[2])
    bounds = graph.integers(0), longest, graph.integers(1)
    hidden = graph.plain(surviving.hidden)
    hidden = graph.node("Gather", hidden, kept, sizes=sizes)
    hidden = graph.node("Slice", hidden, *bounds, sizes=sizes)
    return _Surviving(indices, hidden, lengths)


def _replaced(graph: Graph, values: Value, indices: Value, new: Value) -> Value:
    """Values with those of some candidates replaced."""
    return graph.node("ScatterElements", values, indices, graph.plain(new), axis=0)
