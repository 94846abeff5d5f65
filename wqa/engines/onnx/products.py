"""Operators with weights, products of matrices, softmax, normalization, convolutions, recurrence.

Weights are constants, and are transposed and divided when the graph is written.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.node import Node, Translate, refusal
from wqa.engines.onnx.shapes import split
from wqa.engines.onnx.values import Size, Value

#: ONNX's name of a recurrent layer, and the gates of MXNet in its order.
RECURRENT: Dict[str, Tuple[str, Sequence[int]]] = {
    "rnn_relu": ("RNN", (0,)),
    "rnn_tanh": ("RNN", (0,)),
    "lstm": ("LSTM", (0, 3, 1, 2)),  # input, output, forget, cell
    "gru": ("GRU", (1, 0, 2)),  # update, reset, hidden
}


def fully_connected(graph: Graph, node: Node) -> Value:
    """A dense layer."""
    value = graph.plain(node.inputs[0])
    if value.rank > 2 and node.attribute("flatten", True):
        value = graph.reshape(value, [value.sizes[0], node.inputs[1].sizes[1]])
    return _dense(graph, value, *node.inputs[1:])


def _dense(graph: Graph, value: Value, weight: Value, bias: Optional[Value] = None) -> Value:
    """Product with a transposed matrix, and a sum. Shapes: `weight` (out, in), `bias` (out,)."""
    array = graph.array(weight)
    if array is None:
        transposed = graph.permute(graph.plain(weight), [1, 0])
    else:
        transposed = graph.constant(array.T, f"{weight.name}.transposed")
    sizes = (*value.sizes[:-1], weight.sizes[0])
    product = graph.node("MatMul", value, transposed, result=(value.kind, sizes))
    if bias is None:
        return product
    return graph.node("Add", product, graph.plain(bias))


def split_channel(graph: Graph, node: Node) -> List[Value]:
    """Equal parts; those of a joint product of queries, keys and values as a product each.

    The runtimes know attention by three products, and the joint one would be copied.
    """
    before = []
    source: Any = node
    for op in ("transpose", "Reshape", "FullyConnected"):
        source = source.sources[0]
        if source is None or source.op != op:
            return split(graph, node)
        before.append(source)
    permuted, shaped, dense = before
    are_constant = all(graph.array(value) is not None for value in dense.inputs[1:])
    if are_constant and _splits_product(node, permuted, shaped, dense):
        return _split_product(graph, node, permuted, shaped, dense)
    return split(graph, node)


def _splits_product(node: Node, permuted: Node, shaped: Node, dense: Node) -> bool:
    """Whether a split divides the units of a dense layer, which a reshape made its first axis."""
    count, rank = node.attribute("num_outputs", 1), dense.inputs[0].rank
    codes, axes = shaped.attribute("shape", ()), permuted.attribute("axes", ())
    copies = list(codes[: rank - 1]) == [0] * (rank - 1)
    is_first = node.axis(default=1) == 0 and axes[:1] == (rank - 1,)
    squeezes = node.attribute("squeeze_axis", False) and not dense.attribute("flatten", True)
    return copies and codes[rank - 1] == count and is_first and squeezes


def _split_product(
    graph: Graph, node: Node, permuted: Node, shaped: Node, dense: Node
) -> List[Value]:
    value = graph.plain(dense.inputs[0])
    count, divided = node.attribute("num_outputs", 1), value.rank - 1
    axes = []
    for axis in permuted.attribute("axes", ())[1:]:
        axes.append(axis - 1 if axis > divided else axis)
    parts = []
    for index in range(count):
        weights = []
        for weight in dense.inputs[1:]:
            part = np.split(graph.constants[weight.name], count)[index]
            weights.append(graph.constant(part, f"{weight.name}.{index}"))
        product = _dense(graph, value, *weights)
        sizes: List[Size] = [*value.sizes[:-1], *shaped.known[0][divided + 1 :]]
        parts.append(graph.permute(graph.reshape(product, sizes), axes))
    return parts


def batch_dot(graph: Graph, node: Node) -> Value:
    """Products of matrices, one for each row of the first axis."""
    values = [graph.expanded(value) for value in node.inputs]
    if values[0].merged != values[1].merged:
        values = [graph.plain(value) for value in values]
    for index, name in enumerate(("transpose_a", "transpose_b")):
        if node.attribute(name, False):
            last = len(values[index].sizes) - 1
            axes = [*range(last - 1), last, last - 1]
            values[index] = graph.permute(values[index], axes)
    sizes = (*values[0].sizes[:-1], values[1].sizes[-1])
    product = graph.node("MatMul", *values, result=(values[0].kind, sizes))
    return product._replace(merged=values[0].merged)


def softmax(graph: Graph, node: Node) -> Value:
    """Softmax along an axis."""
    node.check("use_length", False, False)
    node.check("temperature", None, None, 1.0)
    value, axis = graph.expanded(node.inputs[0]), node.axis()
    if value.merged and axis == 0:
        value = graph.plain(value)
    name = graph.node("Softmax", value, axis=axis + value.merged).name
    return value._replace(name=name)


def layer_norm(graph: Graph, node: Node) -> Value:
    """Layer normalization of the last axis."""
    value, gamma, beta = (graph.plain(value) for value in node.inputs)
    if node.axis() != value.rank - 1:
        raise refusal(f"{node.op} with axis={node.axis()}")
    epsilon = float(node.attribute("eps", 1e-5))
    return graph.node("LayerNormalization", value, gamma, beta, axis=-1, epsilon=epsilon)


def convolution(graph: Graph, node: Node) -> Value:
    """A convolution, channels before positions."""
    node.check("layout", None, None, "NCW", "NCHW")
    values = [graph.plain(value) for value in node.inputs]
    kernel, padding = node.attribute("kernel", ()), node.attribute("pad", ())
    ones = (1,) * len(kernel)
    return graph.node(
        "Conv",
        *values,
        kernel_shape=kernel,
        strides=node.attribute("stride", ()) or ones,
        dilations=node.attribute("dilate", ()) or ones,
        pads=(padding or (0,) * len(kernel)) * 2,
        group=node.attribute("num_group", 1),
        result=node.result,
    )


def joined_parameters(graph: Graph, node: Node) -> Value:
    """Parameters of a recurrent layer, one after another."""
    arrays = []
    for value in node.inputs:
        array = graph.array(value)
        if array is None:
            raise refusal(f"{node.op} of values that are no parameters")
        arrays.append(array.ravel())
    return graph.constant(np.concatenate(arrays), "+".join(value.name for value in node.inputs))


def recurrence(graph: Graph, node: Node) -> List[Value]:
    """A recurrent layer in one direction, (length, sequences, units)."""
    node.check("num_layers", 1, 1)
    for name in ("bidirectional", "use_sequence_length"):
        node.check(name, False, False)
    for name in ("projection_size", "lstm_state_clip_min"):
        node.check(name, None, None)
    mode, units = node.attribute("mode", ""), node.attribute("state_size", 0)
    kind, gates = RECURRENT[mode]
    value, parameters = (graph.plain(value) for value in node.inputs[:2])
    inputs = [value.name, *_weights(graph, parameters, value, units, gates), ""]
    for state in node.inputs[2:]:
        inputs.append("" if graph.is_constant(state, 0) else graph.plain(state).name)
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    if kind == "RNN":
        options["activations"] = ["Relu" if mode == "rnn_relu" else "Tanh"]  # type: ignore
    outputs = 3 if kind == "LSTM" else 2
    names = graph.nodes(kind, inputs, outputs, hidden_size=units, **options)
    length, sequences = value.sizes[:2]
    every = graph.value(names[0], value.kind, (length, 1, sequences, units))
    result = (value.kind, (length, sequences, units))
    every = graph.node("Squeeze", every, graph.integers(1), result=result)
    return [every, *(graph.value(name, value.kind, (1, sequences, units)) for name in names[1:])]


def _weights(
    graph: Graph, parameters: Value, value: Value, units: int, gates: Sequence[int]
) -> List[str]:
    """Names of ONNX's weights W, R and B of a recurrent layer."""
    joined, width = graph.array(parameters), value.sizes[-1]
    if joined is None or not isinstance(width, int):
        raise refusal("RNN whose parameters are computed")
    count, order = len(gates), list(gates)
    ends = np.cumsum([count * units * width, count * units * units, count * units])
    parts = np.split(joined, ends)
    shapes = ((width,), (units,), (), ())
    ordered = []
    for part, shape in zip(parts, shapes):
        ordered.append(part.reshape(count, units, *shape)[order].reshape(1, -1, *shape))
    weights = (*ordered[:2], np.concatenate(ordered[2:], axis=1))
    names = []
    for letter, weight in zip("WRB", weights):
        names.append(graph.constant(weight, f"{parameters.name}.{letter}").name)
    return names


#: Translations by MXNet's names of operators.
PRODUCTS: Dict[str, Translate] = {
    "Convolution": convolution,
    "FullyConnected": fully_connected,
    "LayerNorm": layer_norm,
    "RNN": recurrence,
    "SliceChannel": split_channel,
    "_rnn_param_concat": joined_parameters,
    "batch_dot": batch_dot,
    "softmax": softmax,
}
