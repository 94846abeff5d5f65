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

from typing import List, NamedTuple, Optional, Sequence, Tuple

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


class _Results(NamedTuple):
    """The last score and exit of each candidate so far, (candidates,)."""

    scores: Value
    exits: Value


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
    values, candidates = {}, None
    for name, text in first.inputs.items():
        given = add_input(graph, name, text)
        candidates = given.sizes[0]
        values[name] = _with_a_row(graph, given, int(name in MASKS))
    ratios = graph.input("drop_ratios", "float32", (len(stages),))
    least = graph.input("least_scores", "float32", (len(stages),))
    graph.constant(np.full(len(stages), -np.inf, np.float32), least.name)  # its default
    hidden, scores = part_outputs(graph, first, values, parameters)
    indices = graph.steps(scores.sizes[0])
    lengths = graph.integers(0)
    for name in filter(MASKS.__contains__, first.inputs):
        lengths = graph.node("Add", graph.cast(values[name], "int64"), lengths)
    surviving = _Surviving(indices, hidden, lengths)
    results = _Results(scores, _filled(graph, indices, exits[0]))
    for number, (stage, layer) in enumerate(zip(stages[1:], exits[1:])):
        ratio = graph.node("Gather", ratios, graph.integers(number), result=("float32", (1,)))
        threshold = graph.node("Gather", least, graph.integers(number), result=("float32", (1,)))
        kept = _kept(graph, ratio, threshold, scores)
        surviving = _keep(graph, surviving, _ranks(graph, scores), kept)
        inputs = {"hidden": surviving.hidden, "valid_length": surviving.lengths}
        hidden, scores = part_outputs(graph, stage, inputs, parameters)
        surviving = surviving._replace(hidden=hidden)
        results = _Results(
            _replaced(graph, results.scores, surviving.indices, scores),
            _replaced(
                graph, results.exits, surviving.indices, _filled(graph, surviving.indices, layer)
            ),
        )
    ranks = _ranks(graph, results.scores, results.exits)
    order = _least(graph, ranks, graph.shape([results.scores.sizes[0]]))
    # Without the row that `_with_a_row` adds.
    bounds = graph.integers(0), graph.shape([candidates])
    for name, value in (("scores", results.scores), ("exits", results.exits), ("order", order)):
        result = (value.kind, (candidates,))
        graph.output(name, graph.node("Slice", graph.plain(value), *bounds, result=result))
    return graph


def _with_a_row(graph: Graph, value: Value, number: int) -> Value:
    """Rows of an input, or one row of a number: few operators take tensors without elements."""
    size, *others = value.sizes
    one = graph.integers(1)
    missing = graph.node("Sub", one, graph.node("Min", graph.shape([size]), one))
    parts = missing, graph.shape(others)
    sizes = graph.node("Concat", *parts, axis=0, result=("int64", (value.rank,)))
    result = (value.kind, (None, *others))
    row = graph.constant(np.array(number, value.kind))
    row = graph.node("Expand", row, sizes, result=result)
    return graph.node("Concat", value, row, axis=0, result=result)


def _filled(graph: Graph, like: Value, number: int) -> Value:
    """An integer for each candidate."""
    return graph.expanded(like._replace(name=graph.integers(number).name, stored=(1,)))


def _kept(graph: Graph, ratio: Value, least: Value, scores: Value) -> Value:
    """Number of candidates that go on, (1,).

    It is the number of shares n / k above the ratio, n from 1 to k: k - floor(alpha k) by the rule
    of `wqa.inference.dropping.dropped`. If fewer candidates have the least score, it is theirs.
    """
    [size] = scores.sizes
    count = graph.cast(graph.shape([size]), "float32")
    numbers = graph.node("Add", graph.steps(size), graph.integers(1), result=("int64", (size,)))
    shares = graph.node("Div", graph.cast(numbers, "float32"), count, result=("float32", (size,)))
    is_above = graph.node("Greater", shares, ratio, result=("bool", (size,)))
    result = ("int64", (1,))
    ones = graph.cast(is_above, "int64")
    kept = graph.node("ReduceSum", ones, graph.integers(0), keepdims=1, result=result)
    has_least = graph.node("GreaterOrEqual", scores, least, result=("bool", (size,)))
    ones = graph.cast(has_least, "int64")
    count = graph.node("ReduceSum", ones, graph.integers(0), keepdims=1, result=result)
    count = graph.node("Max", count, graph.integers(1), result=result)
    kept = graph.node("Min", kept, count, result=result)
    # ONNX has no errors of its own, but TopK refuses a negative number.
    return graph.node("Where", _is_ratio(graph, ratio), kept, graph.integers(-1), result=result)


def _is_ratio(graph: Graph, ratio: Value) -> Value:
    """Whether a number is in [0, 1), (1,)."""
    zero, one = graph.constant(np.float32(0)), graph.constant(np.float32(1))
    # Comparisons with NaN are false.
    is_least = graph.node("GreaterOrEqual", ratio, zero, result=("bool", (1,)))
    is_most = graph.node("Less", ratio, one, result=("bool", (1,)))
    return graph.node("And", is_least, is_most)


def _ranks(graph: Graph, scores: Value, exits: Optional[Value] = None) -> Value:
    """Number of candidates before each: of a later exit, a greater score, or a lower index."""
    [size] = scores.sizes
    pairs = ("bool", (size, size))
    steps = graph.steps(size)
    columns, rows = graph.unsqueeze(steps, 1), graph.unsqueeze(steps, 0)
    before = graph.node("Less", rows, columns, result=pairs)  # (k, k), the second before the first
    for values in (scores, exits):
        if values is not None:
            before = _before(graph, values, before, pairs)
    numbers = graph.cast(before, "int64")
    return graph.node(
        "ReduceSum", numbers, graph.integers(1), keepdims=0, result=("int64", (size,))
    )


def _before(graph: Graph, values: Value, ties: Value, pairs: Tuple) -> Value:
    """Which candidates have a greater value, or the same and are before in ``ties``."""
    columns, rows = graph.unsqueeze(values, 1), graph.unsqueeze(values, 0)
    is_greater = graph.node("Greater", rows, columns, result=pairs)
    is_equal = graph.node("Equal", rows, columns, result=pairs)
    both = graph.node("And", is_equal, ties, result=pairs)
    return graph.node("Or", is_greater, both, result=pairs)


def _least(graph: Graph, values: Value, count: Value) -> Value:
    """Indices of the ``count`` least values, of which no two are equal, in ascending order."""
    names = graph.nodes("TopK", [values.name, count.name], 2, axis=0, largest=0, sorted=1)
    return graph.value(names[1], "int64", (None,))


def _keep(graph: Graph, surviving: _Surviving, ranks: Value, count: Value) -> _Surviving:
    """The first candidates by their ranks, in their original order."""
    best = _least(graph, ranks, count)
    [size] = best.sizes
    kept = graph.node("Gather", best, _least(graph, best, count), result=("int64", (size,)))
    indices = graph.node("Gather", surviving.indices, kept, result=("int64", (size,)))
    lengths = graph.node("Gather", surviving.lengths, kept, result=("int64", (size,)))
    longest = graph.node("ReduceMax", lengths, axes=[0], keepdims=1, result=("int64", (1,)))
    sizes = (size, None, surviving.hidden.sizes[2])
    bounds: List[Value] = [graph.integers(0), longest, graph.integers(1)]
    result = ("float32", sizes)
    hidden = graph.node("Gather", graph.plain(surviving.hidden), kept, result=result)
    return _Surviving(indices, graph.node("Slice", hidden, *bounds, result=result), lengths)


def _replaced(graph: Graph, values: Value, indices: Value, new: Value) -> Value:
    """Values with those of some candidates replaced."""
    return graph.node("ScatterElements", values, indices, graph.plain(new), axis=0)
