"""ONNX graphs of the parts of a network, with inputs named as in Hugging Face's exports."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.engines.onnx.graph import Graph
from wqa.engines.onnx.inputs import INPUT_NAMES, MASKS
from wqa.engines.onnx.operators import Input, translate
from wqa.engines.onnx.values import Value
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

#: Name in the graph and content of parameters, by their names in symbols.
Parameters = Dict[str, Tuple[str, np.ndarray]]


def parameters_of(network: Network) -> Parameters:
    """Parameters of a network, whose names in the graph are those of its run."""
    parameters: Parameters = {}
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
    kind, sizes = _parse(text)
    if name not in MASKS:
        return graph.input(INPUT_NAMES.get(name, name), _ONNX_KINDS[kind], sizes)
    mask = MASKS[name]
    value = graph.input(mask.name, "int64", (*sizes, mask.axis))
    last = graph.integers(len(sizes))
    return graph.node("ReduceSum", value, last, keepdims=0, result=("int64", value.sizes[:-1]))


_ONNX_KINDS = {"int32": "int64", "float32": "float32"}


def _parse(text: str) -> Tuple[str, Tuple[Any, ...]]:
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
    inputs = {name: Input(*_parse(text)) for name, text in part.inputs.items()}
    return translate(graph, outputs, inputs, values, parameters)
