"""Operators that work element by element, on values as they are stored."""

from __future__ import annotations

import functools
import math
from typing import Any, Dict, List

import numpy as np

from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.node import Node, Translate, refusal
from wqa.engines.onnx.values import Value, broadcast_sizes, filled

#: ONNX's name of MXNet's operators of one input.
UNARY = {
    "abs": "Abs",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "relu": "Relu",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
}
#: ONNX's name of activations.
ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "softrelu": "Softplus", "tanh": "Tanh"}
#: ONNX's name of arithmetic on two inputs, by the name that follows ``broadcast_`` and its like.
ARITHMETIC = {
    "add": "Add",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "mul": "Mul",
    "sub": "Sub",
}
#: MXNet's names of arithmetic with a number where they differ.
WITH_NUMBER = {"add": "plus", "sub": "minus"}
#: ONNX's name of comparisons, and whether it is to be negated.
COMPARISONS = {
    "equal": ("Equal", False),
    "not_equal": ("Equal", True),
    "greater": ("Greater", False),
    "greater_equal": ("GreaterOrEqual", False),
    "lesser": ("Less", False),
    "lesser_equal": ("LessOrEqual", False),
}


def unary(graph: Graph, node: Node, kind: str) -> Value:
    """An operator of one input."""
    value = node.inputs[0]
    return value._replace(name=graph.node(kind, value).name)


def binary(graph: Graph, kind: str, first: Value, second: Value) -> Value:
    """An operator of two inputs of the same number of axes, or of one and a number."""
    if first.merged != second.merged and first.rank and second.rank:
        first, second = graph.plain(first), graph.plain(second)
    if not second.rank:
        return first._replace(name=graph.node(kind, first, second).name)
    if not first.rank:
        result = (second.kind, second.stored)
        return second._replace(name=graph.node(kind, first, second, result=result).name)
    sizes = broadcast_sizes(first.sizes, second.sizes)
    stored = broadcast_sizes(first.stored, second.stored)
    name = graph.node(kind, first, second, result=(first.kind, stored)).name
    return first._replace(name=name, sizes=sizes, stored=stored)


def arithmetic(graph: Graph, kind: str, first: Value, second: Value) -> Value:
    """Arithmetic, without a node where a sum or product changes nothing."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(kind)
    for value, other, commutes in ((first, second, True), (second, first, kind in ("Add", "Mul"))):
        if neutral is None or not commutes or not graph.is_constant(other, neutral):
            continue
        if not other.rank:
            return value
        if other.merged == value.merged:
            return value._replace(sizes=broadcast_sizes(value.sizes, other.sizes))
    return binary(graph, kind, first, second)


def operands(graph: Graph, node: Node) -> List[Value]:
    """The two inputs of an operator, or its input and its number."""
    if not node.op.endswith("_scalar"):
        return node.inputs
    value = node.inputs[0]
    number = graph.constant(np.array(node.attribute("scalar", 0.0), value.kind))
    return [number, value] if node.op.startswith("_r") else [value, number]


def calculation(graph: Graph, node: Node, kind: str) -> Value:
    """Arithmetic on two inputs, or on one and a number."""
    value = arithmetic(graph, kind, *operands(graph, node))
    return _with_sizes(value, node)


def comparison(graph: Graph, node: Node, kind: str, negated: bool) -> Value:
    """A comparison, whose result is 1 or 0 in the type of MXNet's."""
    value = binary(graph, kind, *operands(graph, node))._replace(kind="bool")
    if negated:
        value = value._replace(name=graph.node("Not", value).name)
    return _with_sizes(graph.cast(value, node.kinds[0]), node)


def _with_sizes(value: Value, node: Node) -> Value:
    return value if value.merged else value._replace(sizes=filled(value.sizes, node.known[0]))


def identity(graph: Graph, node: Node) -> Value:
    """An operator that changes nothing outside training."""
    return node.inputs[0]


def activation(graph: Graph, node: Node) -> Value:
    """An activation by its name."""
    kind = node.attribute("act_type", "relu")
    if kind not in ACTIVATIONS:
        raise refusal(f"{node.op} with act_type={kind}")
    return unary(graph, node, ACTIVATIONS[kind])


def leaky_relu(graph: Graph, node: Node) -> Value:
    """GELU by the error function, in the form that runtimes fuse."""
    node.check("act_type", "leaky", "gelu")
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
    return graph.cast(node.inputs[0], node.kinds[0])


def where(graph: Graph, node: Node) -> Value:
    """One of two values by a condition, all of the same shape."""
    condition, *values = (graph.plain(value) for value in node.inputs)
    is_true = graph.cast(condition, "bool")
    result = (values[0].kind, broadcast_sizes(values[0].sizes, values[1].sizes))
    return graph.node("Where", is_true, *values, result=result)


def fill(graph: Graph, node: Node, number: float) -> Value:
    """A constant of the shape of the input, stored as one number."""
    value = node.inputs[0]
    ones = (1,) * len(value.sizes)
    name = graph.constant(np.full(ones, number, node.kinds[0])).name
    return value._replace(name=name, kind=node.kinds[0], stored=ones)


def zeros(graph: Graph, node: Node) -> Value:
    """Zeros of a shape of their own, stored as one number."""
    kind, sizes = node.result
    ones = (1,) * len(sizes)
    return Value(graph.constant(np.zeros(ones, kind)).name, kind, sizes, ones)


def _table() -> Dict[str, Translate]:
    table: Dict[str, Any] = {
        "Activation": activation,
        "Cast": cast,
        "LeakyReLU": leaky_relu,
        "_zeros": zeros,
        "ones_like": functools.partial(fill, number=1),
        "square": square,
        "where": where,
        "zeros_like": functools.partial(fill, number=0),
    }
    for name in ("BlockGrad", "Dropout"):
        table[name] = identity
    for name, kind in UNARY.items():
        table[name] = functools.partial(unary, kind=kind)
    for name, kind in ARITHMETIC.items():
        number = WITH_NUMBER.get(name, name)
        forms = (f"broadcast_{name}", f"elemwise_{name}", f"_{number}_scalar", f"_r{number}_scalar")
        for form in forms:
            table[form] = functools.partial(calculation, kind=kind)
    for name, (kind, negated) in COMPARISONS.items():
        for form in (f"broadcast_{name}", f"_{name}_scalar"):
            table[form] = functools.partial(comparison, kind=kind, negated=negated)
    return table


#: Translations by MXNet's names of operators.
ELEMENTWISE = _table()
