"""Operators that change shapes, select, and make positions."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Sequence

import numpy as np

from wqa.engines.onnx.graph import Graph, Size, Value
from wqa.engines.onnx.operators import Node, Translate, dense, refusal


def reshape(graph: Graph, node: Node) -> Value:
    """`Reshape` with MXNet's codes.

    The first two axes are joined, and taken apart again, without a node: see `Value`.
    """
    node.check(reverse=(False,))
    value = node.inputs[0]
    codes = node.attribute("shape", ())
    codes = (codes,) if isinstance(codes, int) else codes
    joins = codes[0] == -3 and not any(codes[1:]) and value.rank == len(codes) + 1
    if joins and not value.merged:
        return value._replace(merged=True)
    if value.merged and _takes_apart(codes, value):
        return value._replace(merged=False)
    array, shape = graph.array(value), node.sizes
    if array is not None:
        return graph.constant(np.reshape(array, shape), f"{value.name}.{shape}")  # type: ignore
    return graph.reshape(graph.plain(value), shape)


def _takes_apart(codes: Sequence[int], value: Value) -> bool:
    """Whether codes split the first axis as it was before it was merged, and copy the others."""
    is_split = codes[:2] == (-4, -1) and len(codes) == len(value.sizes) + 1
    return is_split and codes[2] == value.sizes[1] and not any(codes[3:])


def reshape_like(graph: Graph, node: Node) -> Value:
    """Axes of the first input in the shape of axes of the second."""
    return graph.reshape(node.inputs[0], node.sizes)


def expand_dims(graph: Graph, node: Node) -> Value:
    """One more axis of size 1."""
    value = _not_merged(graph, node.inputs[0])
    return graph.unsqueeze(value, node.attribute("axis", 0) % (value.rank + 1))


def _not_merged(graph: Graph, value: Value) -> Value:
    """A value with its first axis in one."""
    return graph.plain(value) if value.merged else value


def broadcast(graph: Graph, node: Node) -> Value:
    """A value repeated along axes, which ONNX's operators do by themselves."""
    value = _not_merged(graph, node.inputs[0])
    return value._replace(sizes=node.sizes)


def transpose(graph: Graph, node: Node) -> Value:
    """Axes in another order."""
    value = node.inputs[0]
    axes = node.attribute("axes", ()) or range(value.rank)[::-1]
    return graph.permute(value, list(axes))


def swap_axes(graph: Graph, node: Node) -> Value:
    """Two axes, each in the other's place."""
    value = node.inputs[0]
    axes = list(range(value.rank))
    first, second = node.axis("dim1", 0), node.axis("dim2", 0)
    axes[first], axes[second] = second, first
    return graph.permute(value, axes)


def slice_axis(graph: Graph, node: Node) -> Value:
    """A range along an axis."""
    value = node.inputs[0]
    axis, begin, end = node.axis(), node.attribute("begin", 0), node.attribute("end", None)
    stop = np.iinfo(np.int64).max if end is None else end
    bounds = [graph.integers(number) for number in (begin or 0, stop, axis)]
    return graph.node("Slice", value, *bounds, sizes=node.sizes)


def split(graph: Graph, node: Node) -> List[Value]:
    """Equal parts along an axis."""
    value = node.inputs[0]
    axis, count = node.axis(default=1), node.attribute("num_outputs", 1)
    names = graph.nodes("Split", [value.name], count, axis=axis)
    parts = [graph.value(name, value.kind, node.sizes) for name in names]
    if not node.attribute("squeeze_axis", False):
        return parts
    axes = graph.integers(axis)
    return [graph.node("Squeeze", part, axes, sizes=node.sizes) for part in parts]


def split_channel(graph: Graph, node: Node) -> List[Value]:
    """Equal parts; those of a joint product of queries, keys and values as a product each.

    The runtimes know attention by three products, and the joint one would be copied.
    """
    before: List[Node] = []
    source: Any = node
    for op in ("transpose", "Reshape", "FullyConnected"):
        source = source.sources[0]
        if source is None or source.op != op:
            return split(graph, node)
        before.append(source)
    if not _divides_units(node, *before):
        return split(graph, node)
    permuted, shaped, projection = before
    value = projection.inputs[0]
    count, divided = node.attribute("num_outputs", 1), value.rank - 1
    axes = []
    for axis in permuted.attribute("axes", ())[1:]:
        axes.append(axis - 1 if axis > divided else axis)
    parts = []
    for index in range(count):
        weights = []
        for weight in projection.inputs[1:]:
            part = np.split(graph.constants[weight.name], count)[index]
            weights.append(graph.constant(part, f"{weight.name}.{index}"))
        product = dense(graph, value, *weights)
        sizes: List[Size] = [*value.sizes[:-1], *shaped.sizes[divided + 1 :]]
        parts.append(graph.permute(graph.reshape(product, sizes), axes))
    return parts


def _divides_units(node: Node, permuted: Node, shaped: Node, projection: Node) -> bool:
    """Whether a split divides the units of a dense layer, which a reshape made its first axis."""
    count, last = node.attribute("num_outputs", 1), projection.inputs[0].rank - 1
    codes = (*(0,) * last, count)
    is_first = node.axis(default=1) == 0 and permuted.attribute("axes", ())[:1] == (last,)
    squeezes = node.attribute("squeeze_axis", False)
    return shaped.attribute("shape", ())[: last + 1] == codes and is_first and squeezes


def concat(graph: Graph, node: Node) -> Value:
    """Values one after another along an axis."""
    return graph.node("Concat", *node.inputs, axis=node.axis("dim", 1), sizes=node.sizes)


def stack(graph: Graph, node: Node) -> Value:
    """Values along a new axis."""
    axis = node.attribute("axis", 0) % (node.inputs[0].rank + 1)
    values = [graph.unsqueeze(value, axis) for value in node.inputs]
    return graph.node("Concat", *values, axis=axis, sizes=node.sizes)


def cumulative_sum(graph: Graph, node: Node) -> Value:
    """Sums of the values up to each, along an axis."""
    value = node.inputs[0]
    total = graph.node("CumSum", value, graph.constant(np.int64(node.axis())))
    return graph.cast(total, node.kind)


def take(graph: Graph, node: Node) -> Value:
    """Rows by their numbers; those outside are the first and the last, as MXNet clips."""
    node.check(mode=("clip",))
    rows, indices = node.inputs
    axis, indices = node.axis(default=0), graph.cast(indices, "int64")
    zero, one = graph.constant(np.int64(0)), graph.integers(1)
    last = graph.node("Sub", graph.shape([rows.sizes[axis]]), one)
    indices = graph.node("Max", indices, zero)
    indices = graph.node("Min", indices, last, sizes=indices.sizes)
    return graph.node("Gather", rows, indices, axis=axis, sizes=node.sizes)


def embedding(graph: Graph, node: Node) -> Value:
    """Rows of a table by ids."""
    ids, table = node.inputs
    return graph.node("Gather", table, graph.cast(ids, "int64"), sizes=node.sizes)


def arange_like(graph: Graph, node: Node) -> Value:
    """The numbers from 0 up to the size of an axis, or of the whole value in its shape."""
    node.check(start=(0.0,), step=(1.0,), repeat=(1,))
    value = _not_merged(graph, node.inputs[0])
    if node.attribute("axis", None) is not None:
        return graph.steps(value.sizes[node.axis()], node.kind)
    shape = graph.shape(value.sizes)
    count = graph.node("ReduceProd", shape, keepdims=0, sizes=())
    ends = graph.constant(np.int64(0)), count, graph.constant(np.int64(1))
    steps = graph.node("Range", *ends, sizes=(None,))
    numbers = graph.node("Reshape", steps, shape, sizes=value.sizes)
    return graph.cast(numbers, node.kind)


def sequence_mask(graph: Graph, node: Node) -> Value:
    """A value whose positions behind the length of each sequence are replaced by a number."""
    _check_lengths(node)
    value, lengths = _not_merged(graph, node.inputs[0]), graph.plain(node.inputs[1])
    axis = node.axis(default=0)  # of the positions; sequences have the other one of the first two
    steps = graph.steps(value.sizes[axis])
    lengths = graph.cast(lengths, "int64")
    others = range(2, value.rank)
    steps = graph.unsqueeze(steps, 1 - axis, *others)
    lengths = graph.unsqueeze(lengths, axis, *others)
    is_real = graph.node("Less", steps, lengths)
    number = graph.constant(np.array(node.attribute("value", 0.0), value.kind))
    stored = (*value.sizes[:2], *value.stored[2:])
    masked = graph.node("Where", is_real, value, number, kind=value.kind, sizes=stored)
    return value._replace(name=masked.name, stored=stored)


def sequence_reverse(graph: Graph, node: Node) -> Value:
    """Sequences, (length, sequences, ...), from their last position to their first."""
    node.check(axis=(0,))
    _check_lengths(node)
    value = node.inputs[0]
    lengths = graph.cast(node.inputs[1], "int64")
    return graph.node("ReverseSequence", value, lengths, time_axis=0, batch_axis=1)


def _check_lengths(node: Node) -> None:
    if not node.attribute("use_sequence_length", False):
        raise refusal(f"{node.op} without lengths")


def reduction(graph: Graph, node: Node, kind: str) -> Value:
    """A sum or maximum over axes."""
    node.check(exclude=(False,))
    value = node.inputs[0]
    axes = node.attribute("axis", None)
    if axes in (None, ()):
        total = graph.node(kind, value, keepdims=1, sizes=(1,) * value.rank)
        return graph.reshape(total, node.sizes)
    axes = [axis % value.rank for axis in ((axes,) if isinstance(axes, int) else axes)]
    keeps = int(node.attribute("keepdims", False))
    if kind == "ReduceSum":  # the only one whose axes are an input in this opset
        return graph.node(kind, value, graph.integers(*axes), keepdims=keeps, sizes=node.sizes)
    return graph.node(kind, value, axes=axes, keepdims=keeps, sizes=node.sizes)


#: Translations by MXNet's names of operators.
SHAPES: Dict[str, Translate] = {
    "Concat": concat,
    "Embedding": embedding,
    "Reshape": reshape,
    "SequenceMask": sequence_mask,
    "SequenceReverse": sequence_reverse,
    "SliceChannel": split_channel,
    "SwapAxis": swap_axes,
    "_contrib_arange_like": arange_like,
    "_np_cumsum": cumulative_sum,
    "broadcast_axis": broadcast,
    "broadcast_like": broadcast,
    "expand_dims": expand_dims,
    "max": functools.partial(reduction, kind="ReduceMax"),
    "reshape_like": reshape_like,
    "slice_axis": slice_axis,
    "stack": stack,
    "sum": functools.partial(reduction, kind="ReduceSum"),
    "take": take,
    "transpose": transpose,
}

#: Operators whose inputs are stored as MXNet has them; others read them as they are stored.
PLAIN = {
    *("Concat", "Convolution", "Embedding", "FullyConnected", "LayerNorm", "SequenceReverse"),
    *("SliceChannel", "SwapAxis", "_np_cumsum", "max", "reshape_like", "slice_axis", "stack"),
    *("L2Normalization", "sum", "take", "transpose", "where"),
}
