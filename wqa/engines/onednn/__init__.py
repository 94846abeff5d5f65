"""Transformer layers on a CPU by oneDNN, called directly.

MXNet 1.9 links oneDNN 2.4 statically, and its operators pack weights or convert layouts at every
call. The package ``onednn-cpu-gomp`` brings oneDNN 3.2 as a shared library, on the same OpenMP
runtime.

`layers.PackedLayers` runs layers on packed rows, for ranking. `GradientEngine` runs slices of
layers in MXNet's autograd graph, for training. `quantize.quantize_network` prepares 8-bit products.
They know layers, but no paper, head or loss. `library` loads oneDNN and describes memory, and
`operations` compiles kernels and binds them to memory.
"""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.engines.onednn.training import GradientEngine

__all__ = ["GradientEngine"]
