"""ONNX models of graphs: in memory, and as files that share one file of weights."""

from __future__ import annotations

import hashlib
import pathlib
from typing import IO, Dict, List, Mapping, Tuple

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from wqa.engines.onnx.graph import IR_VERSION, OPSET, Graph
from wqa.engines.onnx.sessions import WEIGHTS

#: Least bytes of a constant that is stored outside its graph.
_LARGE = 1024
#: Multiple at which a constant begins, so that runtimes can map it.
_ALIGNMENT = 4096


class WeightFile:
    """File of weights, which holds an array of several graphs once.

    Parameters
    ----------
    file : binary file
        New file to write.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: Dict[bytes, Tuple[int, int]] = {}  # first byte and number of bytes

    def add(self, array: np.ndarray) -> Tuple[int, int]:
        """Store an array, and return its first byte in the file and its number of bytes."""
        content = array.tobytes()
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._places[digest] = (self._file.tell(), len(content))
            self._file.write(content)
        return self._places[digest]


def model_of(graph: Graph, metadata: Mapping[str, str]) -> ModelProto:
    """Model of a graph, with all weights inside.

    Parameters
    ----------
    graph : Graph
        Graph with its outputs.
    metadata : mapping of str to str
        Properties of the model.

    Returns
    -------
    onnx.ModelProto
    """
    _, constants, *_ = graph.parts()
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = _model(graph, tensors, metadata)
    onnx.checker.check_model(model)
    return model


def write_graph(
    graph: Graph, path: pathlib.Path, weights: WeightFile, metadata: Mapping[str, str]
) -> None:
    """Write a graph, whose large weights are in the file `WEIGHTS` of the same folder.

    Parameters
    ----------
    graph : Graph
        Graph with its outputs.
    path : pathlib.Path
        New file to write.
    weights : WeightFile
        File of the weights.
    metadata : mapping of str to str
        Properties of the model.
    """
    _, constants, *_ = graph.parts()
    tensors = []
    for name, array in constants.items():
        if array.nbytes < _LARGE:
            tensors.append(numpy_helper.from_array(array, name))
        else:
            tensors.append(_outside(name, array, *weights.add(array)))
    path.write_bytes(_model(graph, tensors, metadata).SerializeToString())


def check_graphs(folder: pathlib.Path) -> None:
    """Let ONNX's checker read the graphs of a folder, whose weights are written."""
    for path in sorted(folder.glob("*.onnx")):
        onnx.checker.check_model(str(path))


def _outside(name: str, array: np.ndarray, offset: int, length: int) -> TensorProto:
    """A constant that is stored in the file of weights."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _model(graph: Graph, tensors: List[TensorProto], metadata: Mapping[str, str]) -> ModelProto:
    nodes, _, inputs, outputs = graph.parts()
    model = helper.make_model(
        helper.make_graph(nodes, "wqa", inputs, outputs, tensors),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="wqa",
    )
    helper.set_model_props(model, dict(metadata))
    return model
