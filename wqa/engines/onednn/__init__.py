"""Transformer layers on a CPU by oneDNN, called directly.

MXNet 1.9 links oneDNN 2.4 statically, and its operators pack weights or convert layouts at every
call. The package ``onednn-cpu-gomp`` brings oneDNN 3.2 as a shared library, on the same OpenMP
runtime.

`PackedLayers` runs layers on packed rows, for ranking. `GradientEngine` runs slices of layers in
MXNet's autograd graph, for training. `quantize_layers` prepares 8-bit products. They know layers,
but no paper, head or loss. `library` loads oneDNN and describes memory, `primitives` compiles
operations, and `operations` binds them to buffers.
"""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.engines.onednn.choice import check_precision, choose_engine, encoding_kind
from wqa.engines.onednn.engine import DenseChain
from wqa.engines.onednn.gradients import GradientEngine
from wqa.engines.onednn.library import available, instruction_set
from wqa.engines.onednn.operations import Quantized
from wqa.engines.onednn.packed_parts import PackedBatch
from wqa.engines.onednn.quantize import quantize_layers, read_quantized, write_quantized
from wqa.engines.onednn.scoring import PackedLayers

__all__ = [
    "DenseChain",
    "GradientEngine",
    "PackedBatch",
    "PackedLayers",
    "Quantized",
    "available",
    "quantize_layers",
    "check_precision",
    "choose_engine",
    "encoding_kind",
    "instruction_set",
    "read_quantized",
    "write_quantized",
]
