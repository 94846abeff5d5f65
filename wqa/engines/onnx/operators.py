"""Translation of MXNet's symbols to ONNX, one function an operator.

MXNet's own converter, ``mx2onnx``, refuses the reshapes of transformer layers, needs an old onnx
and fixes sizes. This one knows the operators that networks of this package are made of, and any
other network that is made of them. Sizes that MXNet infers when a graph runs are computed by nodes.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.engines.onnx.elementwise import ELEMENTWISE
from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.node import Node, Translate, refusal
from wqa.engines.onnx.products import PRODUCTS
from wqa.engines.onnx.shapes import SHAPES
from wqa.engines.onnx.values import Value

#: Translations by MXNet's names of operators.
OPERATORS: Dict[str, Translate] = {**ELEMENTWISE, **SHAPES, **PRODUCTS}

#: Two numbers for each dynamic axis. A size that they do not change is no dynamic one.
_NUMBERS = ((101, 103, 107, 109, 113, 127, 131), (137, 139, 149, 151, 157, 163, 167))
_KINDS = {
    np.dtype(np.float32): "float32",
    np.dtype(np.int32): "int64",
    np.dtype(np.int64): "int64",
    np.dtype(bool): "bool",
}

#: Names of dynamic axes, and numbers.
Sizes = Tuple[Any, ...]


class Input(NamedTuple):
    """An input of a symbol.

    Attributes
    ----------
    kind : {"float32", "int32"}
        MXNet's type.
    sizes : tuple of int or str
        Sizes; a text names a dynamic axis.
    """

    kind: str
    sizes: Sizes


def check_operators(symbol: mx.sym.Symbol) -> None:
    """Check that all operators of a symbol can be translated.

    Parameters
    ----------
    symbol : mxnet.sym.Symbol
        Symbol of a network.

    Raises
    ------
    OptionError
        If an operator has no translation; the message names it.
    """
    for node in json.loads(symbol.tojson())["nodes"]:
        if node["op"] != "null" and node["op"] not in OPERATORS:
            raise refusal(node["op"])


def translate(
    graph: Graph,
    symbol: mx.sym.Symbol,
    inputs: Mapping[str, Input],
    values: Mapping[str, Value],
    parameters: Mapping[str, Tuple[str, np.ndarray]],
) -> List[Value]:
    """Add the operators of a symbol to a graph.

    Parameters
    ----------
    graph : Graph
        Graph to add to.
    symbol : mxnet.sym.Symbol
        Symbol of a network.
    inputs : mapping of str to Input
        Types and sizes of the symbol's inputs, by their names.
    values : mapping of str to Value
        What the graph has for the inputs.
    parameters : mapping of str to (str, numpy.ndarray)
        Name in the graph and content of each parameter, by its name in the symbol.

    Returns
    -------
    list of Value
        Outputs of the symbol.

    Raises
    ------
    OptionError
        If an operator, or a form of it, has no translation.
    """
    check_operators(symbol)
    description = json.loads(symbol.tojson())
    inferred = _infer(symbol, inputs)
    results: List[List[Value]] = []
    nodes: List[Optional[Node]] = []
    for item in description["nodes"]:
        name, op = item["name"], item["op"]
        if op == "null":
            nodes.append(None)
            results.append([_variable(graph, name, inputs, values, parameters)])
            continue
        node = Node(
            op,
            item.get("attrs", {}),
            [results[index][output] for index, output, *_ in item["inputs"]],
            [nodes[index] for index, *_ in item["inputs"]],
            *inferred[name],
        )
        nodes.append(node)
        outputs = OPERATORS[op](graph, node)
        results.append([outputs] if isinstance(outputs, Value) else outputs)
    return [results[index][output] for index, output, *_ in description["heads"]]


def _variable(
    graph: Graph,
    name: str,
    inputs: Mapping[str, Input],
    values: Mapping[str, Value],
    parameters: Mapping[str, Tuple[str, np.ndarray]],
) -> Value:
    """An input in the type of MXNet's, or a parameter."""
    if name in inputs:
        return graph.cast(values[name], _KINDS[np.dtype(inputs[name].kind)])
    own_name, array = parameters[name]
    return graph.constant(array, own_name)


def _infer(
    symbol: mx.sym.Symbol, inputs: Mapping[str, Input]
) -> Dict[str, Tuple[List[str], List[Tuple[Optional[int], ...]]]]:
    """Types and known sizes of the outputs of each operator, by its name."""
    internals = symbol.get_internals()
    used = set(symbol.list_inputs())
    inputs = {name: one for name, one in inputs.items() if name in used}
    _, types, _ = internals.infer_type(**{name: one.kind for name, one in inputs.items()})
    axes: List[str] = []
    for one in inputs.values():
        axes += [size for size in one.sizes if isinstance(size, str) and size not in axes]
    shapes = [_shapes(internals, inputs, dict(zip(axes, numbers))) for numbers in _NUMBERS]
    inferred: Dict[str, Tuple[List[str], List[Tuple[Optional[int], ...]]]] = {}
    for index, output in enumerate(internals):
        known: List[Optional[int]] = []
        for first, second in zip(shapes[0][index], shapes[1][index]):
            known.append(first if first == second else None)
        kinds, sizes = inferred.setdefault(output.name, ([], []))
        kinds.append(_KINDS[np.dtype(types[index])])
        sizes.append(tuple(known))
    return inferred


def _shapes(
    internals: mx.sym.Symbol, inputs: Mapping[str, Input], numbers: Mapping[str, int]
) -> Sequence[Tuple[int, ...]]:
    """Shapes of all values, with numbers for the dynamic axes."""
    given = {}
    for name, one in inputs.items():
        given[name] = tuple(numbers.get(size, size) for size in one.sizes)
    _, shapes, _ = internals.infer_shape(**given)
    return shapes
