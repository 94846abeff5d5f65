"""Descriptions of graphs for NVIDIA's Triton inference server."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from wqa.engines.onnx.graph import Graph

_TYPES = {TensorProto.FLOAT: "TYPE_FP32", TensorProto.INT64: "TYPE_INT64"}


def triton_config(name: str, graph: Graph) -> str:
    """Content of ``config.pbtxt`` for a graph.

    The batch is an axis of the tensors as any other: a cascade drops among the candidates of one
    question, so that Triton must not join those of several.

    Parameters
    ----------
    name : str
        Name of the graph's file, without ``.onnx``.
    graph : Graph
        Graph with its outputs.

    Returns
    -------
    str
        Text in the protocol buffers' format.
    """
    _, _, inputs, outputs = graph.parts()
    lines = [
        'platform: "onnxruntime_onnx"',
        f'default_model_filename: "{name}.onnx"',
        "max_batch_size: 0",
    ]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        lines += [_entry(kind, tensor) for tensor in tensors]
    return "\n".join(lines) + "\n"


def _entry(kind: str, tensor: Any) -> str:
    dims = []
    for axis in tensor.type.tensor_type.shape.dim:
        dims.append(str(axis.dim_value) if axis.HasField("dim_value") else "-1")
    data_type = _TYPES[tensor.type.tensor_type.elem_type]
    sizes = ", ".join(dims)
    return f'{kind} [ {{ name: "{tensor.name}" data_type: {data_type} dims: [ {sizes} ] }} ]'
