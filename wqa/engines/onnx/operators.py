"""Translation of MXNet's operators to ONNX, one function an operator.

These are the operators of the package's networks. Weights are constants, and are transposed and
divided when the graph is written. Operators that work element by element take values as they are
stored; see `Value`.
"""

from __future__ import annotations

import ast
import functools
import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.engines.onnx.graph import Graph, Size, Value, broadcast_sizes
from wqa.errors import OptionError

#: ONNX's names of recurrent layers, and the gates of MXNet in their order.
RECURRENT: Dict[str, Tuple[str, Sequence[int]]] = {
    "rnn_tanh": ("RNN", (0,)),
    "lstm": ("LSTM", (0, 3, 1, 2)),  # input, output, forget, cell
}
#: MXNet's names of operators of one input, by ONNX's.
UNARY = {name.title(): (name,) for name in ("abs", "exp", "floor", "log", "relu", "sqrt", "tanh")}
#: MXNet's names of arithmetic on two inputs, or on one and a number, by ONNX's.
ARITHMETIC = {
    "Add": ("broadcast_add", "elemwise_add", "_plus_scalar"),
    "Div": ("broadcast_div", "elemwise_div", "_div_scalar"),
    "Max": ("_maximum_scalar",),
    "Min": ("broadcast_minimum", "_minimum_scalar"),
    "Mul": ("broadcast_mul", "elemwise_mul", "_mul_scalar"),
    "Sub": ("broadcast_sub", "elemwise_sub", "_minus_scalar", "_rminus_scalar"),
}
#: MXNet's names of comparisons, by ONNX's.
COMPARISONS = {
    "Equal": ("broadcast_equal", "_equal_scalar", "_not_equal_scalar"),
    "Greater": ("_greater_scalar",),
    "GreaterOrEqual": ("_greater_equal_scalar",),
    "Less": ("broadcast_lesser", "_lesser_scalar"),
    "LessOrEqual": ("broadcast_lesser_equal",),
}
#: ONNX's names of activations.
ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "softrelu": "Softplus", "tanh": "Tanh"}


class Node(NamedTuple):
    """An operator of MXNet's graph, with its inputs.

    Attributes
    ----------
    op : str
        MXNet's name of the operator.
    attributes : dict of str to str
        Its attributes, as the symbol's JSON has them.
    inputs : list of Value
        Values of the inputs.
    sources : list of Node or None
        Operators that computed the inputs; None for inputs and parameters of the network.
    kind : str
        Type of the first output.
    sizes : tuple of Size
        Its sizes, None where no input has the size.
    """

    op: str
    attributes: Dict[str, str]
    inputs: List[Value]
    sources: List[Any]
    kind: str
    sizes: Tuple[Size, ...]

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute as a Python value: a number, tuple, None, or a string."""
        text = self.attributes.get(name)
        if text is None:
            return default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def axis(self, name: str = "axis", default: int = -1) -> int:
        """An axis of the first input, from 0."""
        return self.attribute(name, default) % self.inputs[0].rank

    def check(self, **supported: Tuple[Any, ...]) -> None:
        """Refuse attributes with other values than these, of which the first is the default."""
        for name, values in supported.items():
            value = self.attribute(name, values[0])
            if value not in values:
                raise refusal(f"{self.op} with {name}={value}")


#: What translates an operator: from its node to its output, or to its outputs.
Translate = Callable[[Graph, Node], Union[Value, List[Value]]]


def refusal(what: str) -> OptionError:
    """Create the error of an operator that has no translation."""
    return OptionError(
        "format",
        f"onnx for a network with the operator {what}",
        "operators of wqa.engines.onnx.operators",
        "add a function for it there, or take the format mxnet",
    )


# Element by element


def unary(graph: Graph, node: Node, kind: str) -> Value:
    """An operator of one input."""
    value = node.inputs[0]
    return value._replace(name=graph.node(kind, value).name)


def binary(graph: Graph, kind: str, first: Value, second: Value) -> Value:
    """An operator of two inputs of the same number of axes, or of one and a number."""
    if first.merged != second.merged and first.rank and second.rank:
        first, second = graph.plain(first), graph.plain(second)
    result = graph.node(kind, first, second)
    if not first.rank or not second.rank:
        return (first if first.rank else second)._replace(name=result.name)
    sizes = broadcast_sizes(first.sizes, second.sizes)
    return first._replace(name=result.name, sizes=sizes, stored=result.stored)


def _operands(graph: Graph, node: Node) -> List[Value]:
    """The two inputs of an operator, or its input and its number."""
    if not node.op.endswith("_scalar"):
        return node.inputs
    value = node.inputs[0]
    number = graph.constant(np.array(node.attribute("scalar", 0.0), value.kind))
    return [number, value] if node.op == "_rminus_scalar" else [value, number]


def arithmetic(graph: Graph, node: Node, kind: str) -> Value:
    """Arithmetic on two inputs, or on one and a number."""
    operands = _operands(graph, node)
    return _without_effect(graph, kind, *operands) or binary(graph, kind, *operands)


def _without_effect(graph: Graph, kind: str, first: Value, second: Value) -> Optional[Value]:
    """The result of a sum with 0 or a product with 1, which takes no node; None for others."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(kind)
    for value, other, commutes in ((first, second, True), (second, first, kind in ("Add", "Mul"))):
        if neutral is None or not commutes or not graph.is_constant(other, neutral):
            continue
        if not other.rank:
            return value
        if other.merged == value.merged:
            return value._replace(sizes=broadcast_sizes(value.sizes, other.sizes))
    return None


def comparison(graph: Graph, node: Node, kind: str) -> Value:
    """A comparison, whose result is 1 or 0 in the type of MXNet's."""
    value = binary(graph, kind, *_operands(graph, node))._replace(kind="bool")
    if node.op == "_not_equal_scalar":
        value = value._replace(name=graph.node("Not", value).name)
    return graph.cast(value, node.kind)


def identity(graph: Graph, node: Node) -> Value:
    """An operator that changes nothing outside training."""
    return node.inputs[0]


def activation(graph: Graph, node: Node) -> Value:
    """An activation by its name."""
    node.check(act_type=tuple(ACTIVATIONS))
    return unary(graph, node, ACTIVATIONS[node.attribute("act_type", "relu")])


def leaky_relu(graph: Graph, node: Node) -> Value:
    """GELU by the error function, in the form that runtimes fuse."""
    if node.attribute("act_type", "leaky") != "gelu":
        raise refusal(f"{node.op} with act_type={node.attribute('act_type', 'leaky')}")
    value = node.inputs[0]
    root, one, half = (graph.constant(np.float32(x)) for x in (math.sqrt(2), 1, 0.5))
    erf = unary(graph, node._replace(inputs=[binary(graph, "Div", value, root)]), "Erf")
    product = binary(graph, "Mul", value, binary(graph, "Add", erf, one))
    return binary(graph, "Mul", product, half)


def square(graph: Graph, node: Node) -> Value:
    """The product of a value with itself."""
    return binary(graph, "Mul", node.inputs[0], node.inputs[0])


def cast(graph: Graph, node: Node) -> Value:
    """A value in another type."""
    return graph.cast(node.inputs[0], node.kind)


def where(graph: Graph, node: Node) -> Value:
    """One of two values by a condition, all of the same shape."""
    condition, *values = node.inputs
    is_true = graph.cast(condition, "bool")
    return graph.node("Where", is_true, *values, kind=node.kind, sizes=node.sizes)


def fill(graph: Graph, node: Node, number: float) -> Value:
    """A constant of the operator's shape, stored as one number."""
    ones = (1,) * len(node.sizes)
    name = graph.constant(np.full(ones, number, node.kind)).name
    return Value(name, node.kind, node.sizes, ones)


# Products and layers


def fully_connected(graph: Graph, node: Node) -> Value:
    """A dense layer on the last axis, or on rows."""
    value = node.inputs[0]
    if value.rank > 2 and node.attribute("flatten", True):
        raise refusal(f"{node.op} with flatten=True")
    return dense(graph, value, *node.inputs[1:])


def dense(graph: Graph, value: Value, weight: Value, bias: Optional[Value] = None) -> Value:
    """Product with a transposed matrix, and a sum. Shapes: `weight` (out, in), `bias` (out,)."""
    array = graph.array(weight)
    if array is None:
        transposed = graph.permute(weight, [1, 0])
    else:
        transposed = graph.constant(array.T, f"{weight.name}.transposed")
    sizes = (*value.sizes[:-1], weight.sizes[0])
    product = graph.node("MatMul", value, transposed, sizes=sizes)
    return product if bias is None else graph.node("Add", product, graph.plain(bias))


def batch_dot(graph: Graph, node: Node) -> Value:
    """Products of matrices, one for each row of the first axis."""
    values = [graph.expanded(value) for value in node.inputs]
    if values[0].merged != values[1].merged:
        values = [graph.plain(value) for value in values]
    for index, name in enumerate(("transpose_a", "transpose_b")):
        if node.attribute(name, False):
            last = len(values[index].sizes) - 1
            values[index] = graph.permute(values[index], [*range(last - 1), last, last - 1])
    sizes = (*values[0].sizes[:-1], values[1].sizes[-1])
    product = graph.node("MatMul", *values, sizes=sizes)
    return product._replace(merged=values[0].merged)


def softmax(graph: Graph, node: Node) -> Value:
    """Softmax along an axis."""
    node.check(use_length=(False,), temperature=(None, 1.0))
    value, axis = graph.expanded(node.inputs[0]), node.axis()
    if value.merged and axis == 0:
        value = graph.plain(value)
    name = graph.node("Softmax", value, axis=axis + value.merged).name
    return value._replace(name=name)


def layer_norm(graph: Graph, node: Node) -> Value:
    """Layer normalization of the last axis."""
    value, gamma, beta = node.inputs
    node.check(axis=(-1, value.rank - 1))
    epsilon = float(node.attribute("eps", 1e-5))
    return graph.node("LayerNormalization", value, gamma, beta, axis=-1, epsilon=epsilon)


def l2_normalization(graph: Graph, node: Node) -> Value:
    """Rows divided by their Euclidean length."""
    node.check(mode=("instance",))
    [value] = node.inputs
    if value.rank != 2:  # MXNet normalizes all axes but the first together
        raise refusal(f"L2Normalization of {value.rank} axes")
    return graph.node("LpNormalization", value, axis=-1, p=2)


def convolution(graph: Graph, node: Node) -> Value:
    """A convolution, channels before positions."""
    node.check(layout=(None, "NCW", "NCHW"))
    kernel, padding = node.attribute("kernel", ()), node.attribute("pad", ())
    ones = (1,) * len(kernel)
    return graph.node(
        "Conv",
        *node.inputs,
        kernel_shape=kernel,
        strides=node.attribute("stride", ()) or ones,
        dilations=node.attribute("dilate", ()) or ones,
        pads=(padding or (0,) * len(kernel)) * 2,
        group=node.attribute("num_group", 1),
        sizes=node.sizes,
    )


def joined_parameters(graph: Graph, node: Node) -> Value:
    """Parameters of a recurrent layer, one after another."""
    names = [value.name for value in node.inputs]
    if not set(names) <= set(graph.constants):
        raise refusal(f"{node.op} of values that are no parameters")
    return graph.constant(
        np.concatenate([graph.constants[name].ravel() for name in names]), "+".join(names)
    )


def recurrence(graph: Graph, node: Node) -> List[Value]:
    """A recurrent layer in one direction, (length, sequences, units)."""
    node.check(mode=tuple(RECURRENT), num_layers=(1,), bidirectional=(False,))
    node.check(use_sequence_length=(False,), projection_size=(None,), lstm_state_clip_min=(None,))
    units = node.attribute("state_size", 0)
    kind, gates = RECURRENT[node.attribute("mode", "")]
    value, parameters = (graph.plain(value) for value in node.inputs[:2])
    inputs = [value.name, *_weights(graph, parameters, value, units, gates), ""]
    for state in node.inputs[2:]:
        inputs.append("" if graph.is_constant(state, 0) else graph.plain(state).name)
    options: Dict[str, Any] = {"activations": ["Tanh"]} if kind == "RNN" else {}
    outputs = 3 if kind == "LSTM" else 2
    names = graph.nodes(kind, inputs, outputs, hidden_size=units, **options)
    length, sequences, _ = node.sizes
    every = graph.value(names[0], node.kind, (length, 1, sequences, units))
    every = graph.node("Squeeze", every, graph.integers(1), sizes=node.sizes)
    return [every, *(graph.value(name, node.kind, (1, sequences, units)) for name in names[1:])]


def _weights(
    graph: Graph, parameters: Value, value: Value, units: int, gates: Sequence[int]
) -> List[str]:
    """Names of ONNX's weights W, R and B of a recurrent layer."""
    joined, width = graph.constants[parameters.name], value.sizes[-1]
    count, order = len(gates), list(gates)
    assert isinstance(width, int)
    ends = np.cumsum([count * units * width, count * units * units, count * units])
    shapes: Tuple[Tuple[int, ...], ...] = ((width,), (units,), (), ())
    ordered = []
    for part, shape in zip(np.split(joined, ends), shapes):
        ordered.append(part.reshape(count, units, *shape)[order].reshape(1, -1, *shape))
    names = []
    for letter, weight in zip("WRB", (*ordered[:2], np.concatenate(ordered[2:], axis=1))):
        names.append(graph.constant(weight, f"{parameters.name}.{letter}").name)
    return names


def _named(translate: Callable[..., Value], table: Mapping[str, Sequence[str]]) -> Dict[str, Any]:
    """Translations by MXNet's names, of operators that differ by ONNX's kind alone."""
    named = {}
    for kind, names in table.items():
        named.update(dict.fromkeys(names, functools.partial(translate, kind=kind)))
    return named


#: Translations by MXNet's names of operators, but for those of `wqa.engines.onnx.shapes`.
OPERATORS: Dict[str, Translate] = {
    **_named(unary, UNARY),
    **_named(arithmetic, ARITHMETIC),
    **_named(comparison, COMPARISONS),
    "Activation": activation,
    "BlockGrad": identity,
    "Cast": cast,
    "Convolution": convolution,
    "Dropout": identity,
    "FullyConnected": fully_connected,
    "L2Normalization": l2_normalization,
    "LayerNorm": layer_norm,
    "LeakyReLU": leaky_relu,
    "RNN": recurrence,
    "_rnn_param_concat": joined_parameters,
    "_zeros": functools.partial(fill, number=0),
    "batch_dot": batch_dot,
    "ones_like": functools.partial(fill, number=1),
    "softmax": softmax,
    "square": square,
    "where": where,
    "zeros_like": functools.partial(fill, number=0),
}
