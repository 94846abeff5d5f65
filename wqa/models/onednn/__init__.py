"""oneDNN, called directly: the few operations that a transformer encoder is made of.

MXNet 1.9 carries oneDNN 2.4 inside its own library, behind operators that lay weights out anew or
convert on the way. The package ``onednn-cpu-gomp`` brings oneDNN 3.2 as a library of its own, on the
same OpenMP runtime; this module describes arrays to it, compiles operations for their shapes, and runs
them. Nothing here knows about models.

An `Array` is memory with a layout. An operation (`product`, `layer_norm`, `softmax`, `scaled`) is
compiled once for its layouts and then bound to memory; calling what `Kernel.bind` returns runs it.
"""
from wqa.models.onednn.library import (
    PRECISIONS,
    TYPES,
    Array,
    Layout,
    Memory,
    Scratch,
    available,
    check_precision,
    instruction_set,
    zeros,
)
from wqa.models.onednn.operations import (
    ACTIVATIONS,
    BETA,
    BIAS,
    DIFF_BETA,
    DIFF_DST,
    DIFF_GAMMA,
    DIFF_SRC,
    DST,
    GAMMA,
    MEAN,
    SCRATCH,
    SRC,
    SRC_1,
    VARIANCE,
    WEIGHTS,
    Attributes,
    Call,
    Kernel,
    PackedWeights,
    activation,
    activation_backward,
    converted,
    layer_norm,
    layer_norm_backward,
    product,
    scale_place,
    scaled,
    softmax,
    softmax_backward,
)

__all__ = [
    "ACTIVATIONS", "Array", "Attributes", "BETA", "BIAS", "Call", "DIFF_BETA", "DIFF_DST", "DIFF_GAMMA", "DIFF_SRC",
    "DST", "GAMMA", "Kernel", "Layout", "MEAN", "Memory", "PRECISIONS", "PackedWeights", "SCRATCH", "SRC", "SRC_1",
    "Scratch", "TYPES", "VARIANCE", "WEIGHTS", "activation", "activation_backward", "available", "check_precision",
    "converted", "instruction_set", "layer_norm", "layer_norm_backward", "product", "scale_place", "scaled",
    "softmax", "softmax_backward", "zeros",
]
