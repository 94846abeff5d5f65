"""Translation of networks to ONNX graphs, with inputs named as in Hugging Face's exports.

MXNet's own converter, ``mx2onnx``, refuses the reshapes of transformer layers, needs an old onnx
and fixes sizes. This one knows the operators that networks of this package are made of, and any
other network that is made of them. Sizes that MXNet infers when a graph runs are computed by nodes.
"""

from __future__ import annotations

import collections
import json
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.engines.onnx.graph import Graph, Size, Value
from wqa.engines.onnx.operators import OPERATORS, Node, refusal
from wqa.engines.onnx.sessions import INPUT_NAMES, MASKS
from wqa.engines.onnx.shapes import PLAIN, SHAPES
from wqa.models.network import GraphPart, Network

#: Names of dynamic axes by the letters of `wqa.text.PairInputs.array_types`.
AXES = {
    "B": "batch",
    "Q": "batch",
    "L": "length",
    "N": "question_length",
    "M": "candidate_length",
    "n": "candidates",
}
#: Two numbers for each dynamic axis. A size that they do not change is no dynamic one.
_NUMBERS = ((101, 103, 107, 109, 113, 127, 131), (137, 139, 149, 151, 157, 163, 167))
#: Types in the graph by those of MXNet.
_KINDS = {"float32": "float32", "int32": "int64", "int64": "int64", "bool": "bool"}

#: Name in the graph and content of parameters, by their names in symbols.
Parameters = Mapping[str, Tuple[str, np.ndarray]]
#: Two numbers that stand for each size of a value.
Numbers = Sequence[Tuple[int, int]]
#: MXNet's type of an array, and its sizes; a text names a dynamic axis.
ArrayType = Tuple[str, Tuple[Any, ...]]


def parameters_of(network: Network) -> Parameters:
    """Parameters of a network, whose names in the graph are those of its run."""
    parameters = {}
    for name, parameter in network._collect_params_with_prefix().items():
        array = parameter.data(parameter.list_ctx()[0])
        parameters[parameter.name] = (name, array.asnumpy())
    return parameters


def part_graph(part: GraphPart, parameters: Parameters) -> Graph:
    """Graph of a part of a network.

    Parameters
    ----------
    part : GraphPart
        The part.
    parameters : dict of str to (str, numpy.ndarray)
        Parameters of the network, as `parameters_of` returns them.

    Returns
    -------
    Graph

    Raises
    ------
    OptionError
        If an operator of the part has no translation; the message names it.
    """
    graph = Graph()
    values = {name: add_input(graph, name, text) for name, text in part.inputs.items()}
    outputs = part_outputs(graph, part, values, parameters)
    for name, value in zip(part.outputs, outputs):
        if name == "logits" and value.rank == 1:
            value = graph.unsqueeze(value, 1)  # a column, as classifiers of one label have it
        graph.output(name, value)
    return graph


def add_input(graph: Graph, name: str, text: str) -> Value:
    """Add the input of an array, whose type and sizes are those of ``text``."""
    kind, sizes = _array_type(text)
    if name not in MASKS:
        return graph.input(INPUT_NAMES.get(name, name), _KINDS[kind], sizes)
    mask = MASKS[name]
    value = graph.input(mask.name, "int64", (*sizes, mask.axis))
    last = graph.integers(len(sizes))
    return graph.node("ReduceSum", value, last, keepdims=0, sizes=value.sizes[:-1])


def _array_type(text: str) -> ArrayType:
    """Type and sizes of an array, such as ``int32 (B, L)``."""
    match = re.match(r"(int32|float32) \(([^)]*)\)", text)
    assert match, text
    sizes: List[Any] = []
    for size in filter(None, re.split(r"[, ]+", match.group(2))):
        sizes.append(int(size) if size.isdigit() else AXES[size])
    return match.group(1), tuple(sizes)


def part_outputs(
    graph: Graph, part: GraphPart, values: Mapping[str, Value], parameters: Parameters
) -> List[Value]:
    """Add a part of a network to a graph that has its inputs, and return its outputs."""
    outputs = part.compute(*[mx.sym.var(name) for name in part.inputs])
    if isinstance(outputs, (tuple, list)):
        outputs = mx.sym.Group(list(outputs))
    types = {name: _array_type(text) for name, text in part.inputs.items()}
    return translate(graph, outputs, types, values, parameters)


def translate(
    graph: Graph,
    symbol: mx.sym.Symbol,
    types: Mapping[str, ArrayType],
    values: Mapping[str, Value],
    parameters: Parameters,
) -> List[Value]:
    """Add the operators of a symbol to a graph.

    Parameters
    ----------
    graph : Graph
        Graph to add to.
    symbol : mxnet.sym.Symbol
        Symbol of a network.
    types : mapping of str to (str, tuple)
        MXNet's types and sizes of the symbol's inputs, by their names.
    values : mapping of str to Value
        Values of the inputs in the graph.
    parameters : mapping of str to (str, numpy.ndarray)
        Name in the graph and content of each parameter, by its name in the symbol.

    Returns
    -------
    list of Value
        Outputs of the symbol.

    Raises
    ------
    OptionError
        If an operator, or a form of it, has no translation; the message names it.
    """
    translations = {**OPERATORS, **SHAPES}
    description = json.loads(symbol.tojson())
    for item in description["nodes"]:
        if item["op"] != "null" and item["op"] not in translations:
            raise refusal(item["op"])
    inferred = _infer(symbol, types)
    results: List[List[Value]] = []
    nodes: List[Optional[Node]] = []
    for item in description["nodes"]:
        name, op = item["name"], item["op"]
        if op == "null":
            nodes.append(None)
            if name in types:
                results.append([graph.cast(values[name], _KINDS[types[name][0]])])
            else:
                own_name, array = parameters[name]
                results.append([graph.constant(array, own_name)])
            continue
        inputs, sources = [], []
        axes: Dict[Any, Size] = {}
        for index, output, *_ in item["inputs"]:
            value = results[index][output]
            if op in PLAIN:
                value = graph.plain(value)
            inputs.append(value)
            sources.append(nodes[index])
            _, numbers = inferred[index][output]
            axes.update(_axes(value, numbers, axes))
        kind, numbers = inferred[len(results)][0]
        sizes = tuple(_size(pair, axes) for pair in numbers)
        node = Node(op, item.get("attrs", {}), inputs, sources, kind, sizes)
        nodes.append(node)
        outputs = translations[op](graph, node)
        results.append([outputs] if isinstance(outputs, Value) else outputs)
    return [results[index][output] for index, output, *_ in description["heads"]]


def _axes(value: Value, numbers: Numbers, before: Mapping[Any, Size]) -> Dict[Any, Size]:
    """Sizes of a value by the numbers that stand for them, where no input before has them."""
    sizes = value.sizes
    if value.merged:
        sizes = (None, *sizes[2:])
    return {pair: size for pair, size in zip(numbers, sizes) if size and pair not in before}


def _size(pair: Tuple[int, int], axes: Mapping[Any, Size]) -> Size:
    """Size for which two numbers stand: one of an operator's inputs, or None for a new one."""
    first, second = pair
    return first if first == second else axes.get(pair)


def _infer(symbol: mx.sym.Symbol, types: Mapping[str, ArrayType]) -> List[List[Any]]:
    """Type of each output of each node, and two numbers for each of its sizes."""
    internals = symbol.get_internals()
    used = {name: types[name] for name in symbol.list_inputs() if name in types}
    _, kinds, _ = internals.infer_type(**{name: kind for name, (kind, _) in used.items()})
    shapes = [_shapes(internals, used, numbers) for numbers in _NUMBERS]
    description = json.loads(internals.tojson())
    inferred: List[List[Any]] = [[] for _ in description["nodes"]]
    for (index, *_), kind, first, second in zip(description["heads"], kinds, *shapes):
        own_kind = _KINDS[np.dtype(kind).name]
        inferred[index].append((own_kind, list(zip(first, second))))
    return inferred


def _shapes(
    internals: mx.sym.Symbol, types: Mapping[str, ArrayType], numbers: Sequence[int]
) -> Sequence[Tuple[int, ...]]:
    """Shapes of all values, with numbers for the dynamic axes."""
    remaining = iter(numbers)
    by_axis: Dict[str, int] = collections.defaultdict(lambda: next(remaining))
    given = {}
    for name, (_, sizes) in types.items():
        given[name] = tuple(by_axis[size] if isinstance(size, str) else size for size in sizes)
    _, shapes, _ = internals.infer_shape(**given)
    return shapes
