"""Post-training quantization of layers to 8-bit weights and inputs.

Calibration runs encoded pairs through the float32 layers and records the largest magnitude of each
input channel of a product. A channel is then divided, and its row of the weight multiplied, by
``a ** strength / w ** (1 - strength)`` of the channel's magnitude a and the row's magnitude w,
which takes the outliers out of the inputs (Xiao et al. 2023, SmoothQuant, equation 4). Weights have
a scale an output. Embeddings, normalisations, attention and heads are left in float.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from wqa.config import BackboneConfig
from wqa.config.training import STRENGTH
from wqa.engines.inputs import EngineInputs
from wqa.engines.onednn.layers import PackedLayers
from wqa.engines.onednn.operations import PRODUCTS, Quantized
from wqa.engines.onednn.packed_rows import PackedBatch, product_parameter
from wqa.errors import RunDirectoryError, check_range
from wqa.text import pack_batches

#: Tokens of a micro-batch while calibrating.
_BATCH_TOKENS = 1024

#: Products of each layer by name.
QuantizedLayers = List[Dict[str, Quantized]]


def quantize_network(
    inputs: EngineInputs, pairs: Sequence[Any], strength: float = STRENGTH
) -> QuantizedLayers:
    """Quantize the products of a network by the magnitudes of their inputs.

    The layers run in sequence, but for branches of a head: the layers after a branch continue from
    the encodings before it.

    Parameters
    ----------
    inputs : EngineInputs
        Embeds the pairs; its network has its parameters on the CPU.
    pairs : sequence of TextInput
        Pairs to measure the inputs of layers on, none of them empty, or what ``inputs`` reads, with
        a ``length``.
    strength : float
        SmoothQuant's alpha, in [0, 1].

    Returns
    -------
    list of dict of str to Quantized
        Products of each layer, by the keys of `wqa.engines.onednn.operations.PRODUCTS`.

    Raises
    ------
    OptionError
        If the strength is out of range.
    """
    check_range("strength", strength, 0.0, 1.0)
    quantized: QuantizedLayers = []
    for network_inputs, own_pairs in inputs.calibration(pairs):
        quantized += _quantize_stages(network_inputs, own_pairs, strength)
    return quantized


def _quantize_stages(
    inputs: EngineInputs, pairs: Sequence[Any], strength: float
) -> QuantizedLayers:
    """Quantize the products of the stages of one network."""
    config, stages = inputs.network.config, inputs.network.encoder_stages()
    layers: List[Any] = []
    for stage in stages:
        layers += stage.all_layers()
    if not layers:
        return []
    rows = max(_BATCH_TOKENS, config.max_positions)
    packed = PackedLayers(config, stages[0].embeddings, layers, inputs.typed, "float32", rows)
    magnitudes = _magnitudes(packed, inputs, pairs)
    quantized = []
    for index, layer in enumerate(layers):
        weights = {name: product_parameter(layer, name, "weight", config) for name in PRODUCTS}
        quantized.append(quantize_layer(weights, magnitudes[index], strength))
    return quantized


def _magnitudes(
    layers: PackedLayers, inputs: EngineInputs, pairs: Sequence[Any]
) -> Dict[int, Dict[str, np.ndarray]]:
    """Largest magnitude of each input channel, by layer and step."""
    magnitudes: Dict[int, Dict[str, np.ndarray]] = collections.defaultdict(dict)

    def watch(layer: int, step: str, rows: np.ndarray) -> None:
        largest = np.abs(rows).max(axis=0)
        known = magnitudes[layer].get(step, largest)
        magnitudes[layer][step] = np.maximum(known, largest)

    ordered = sorted(pairs, key=lambda pair: pair.length)
    lengths = np.array([pair.length for pair in ordered])
    for indices in pack_batches(lengths, _BATCH_TOKENS):
        own = [ordered[index] for index in indices]
        batch = PackedBatch(lengths[indices], inputs.read_positions(own))
        inputs.embed(layers, own, batch)
        encodings = layers.encodings[: batch.tokens]
        numbers = itertools.count()
        for stage in inputs.network.encoder_stages():
            for _, number in zip(stage.layers, numbers):
                layers.layer(number, batch, watch)
            for branch in [] if stage.head is None else stage.head.branches():
                before = encodings.copy()
                for _, number in zip(branch.layers, numbers):
                    layers.layer(number, batch, watch)
                encodings[:] = before
    return magnitudes


def quantize_layer(
    weights: Dict[str, np.ndarray], magnitudes: Dict[str, np.ndarray], strength: float
) -> Dict[str, Quantized]:
    """Quantize the products of one layer.

    Shapes: `weights` (out, in), `magnitudes` (in,).
    """
    products = {}
    for step in dict.fromkeys(PRODUCTS.values()):
        names = [name for name in PRODUCTS if PRODUCTS[name] == step]
        # Products of one step share their input: (out of all, in).
        rows = np.concatenate([weights[name] for name in names])
        factor = channel_factors(magnitudes[step], np.abs(rows).max(axis=0), strength)
        for name in names:
            smooth = weights[name].T / factor[:, None]  # (in, out)
            scale = np.maximum(np.abs(smooth).max(axis=0), 1e-20) / 127
            # C-contiguous, as oneDNN reads it: a transposed array would keep its order.
            integers = np.rint(smooth / scale).astype(np.int8, order="C")
            products[name] = Quantized(integers, scale.astype(np.float32), factor)
    return products


def channel_factors(inputs: np.ndarray, weights: np.ndarray, strength: float) -> np.ndarray:
    """Factors of the input channels, with which the largest magnitude becomes 127.

    Shapes: `inputs, weights` (in,), the result (in,).
    """
    inputs, weights = np.maximum(inputs, 1e-5), np.maximum(weights, 1e-5)
    smooth = inputs**strength / weights ** (1 - strength)
    return (127 / (inputs / smooth).max() / smooth).astype(np.float32)


def write_quantized(layers: QuantizedLayers, record: Dict[str, str]) -> bytes:
    """Serialize 8-bit products.

    Parameters
    ----------
    layers : list of dict of str to Quantized
        Products of each layer.
    record : dict of str to str
        Metadata, such as the digest of the float32 weights.

    Returns
    -------
    bytes
        Content of a file in the safetensors format.
    """
    tensors: Dict[str, np.ndarray] = {}
    for index, products in enumerate(layers):
        for name, product in products.items():
            for part, array in zip(Quantized._fields, product):
                tensors[f"layers.{index}.{name}.{part}"] = np.ascontiguousarray(array)
    return save(tensors, metadata=record)


def read_quantized(
    path: pathlib.Path, config: BackboneConfig, depth: int, hint: str
) -> Tuple[QuantizedLayers, Dict[str, str]]:
    """Read a file of 8-bit products.

    Parameters
    ----------
    path : pathlib.Path
        File to read.
    config : BackboneConfig
        Sizes of the encoder.
    depth : int
        Number of layers to read.
    hint : str
        Remedy that an error names.

    Returns
    -------
    layers : list of dict of str to Quantized
        Products of each layer.
    record : dict of str to str
        The file's metadata.

    Raises
    ------
    RunDirectoryError
        If the file is missing or cut off, a tensor is missing or of another type or shape, or a
        scale or factor is not finite and above 0.
    """
    if not path.exists():
        raise RunDirectoryError(path, "the file is missing", "the 8-bit weights of the run", hint)
    try:
        with safe_open(str(path), "numpy") as file:
            record = file.metadata() or {}
            layers = [_read_layer(file, index, config) for index in range(depth)]
    except (SafetensorError, OSError, ValueError) as error:
        raise RunDirectoryError(
            path, f"does not load ({error})", "the 8-bit weights of the run", hint
        ) from None
    return layers, record


def _read_layer(file: Any, index: int, config: BackboneConfig) -> Dict[str, Quantized]:
    """Read the products of a layer; `ValueError` names one that does not fit."""
    units, hidden_size = config.units, config.hidden_size
    shapes = {"inner": (units, hidden_size), "outer": (hidden_size, units)}
    products = {}
    for name in PRODUCTS:
        inputs, outputs = shapes.get(name, (units, units))
        expected = ("int8", (inputs, outputs)), ("float32", (outputs,)), ("float32", (inputs,))
        parts = []
        for part, (kind, shape) in zip(Quantized._fields, expected):
            key = f"layers.{index}.{name}.{part}"
            values = file.get_tensor(key)
            if values.dtype != kind or values.shape != shape:
                actual = f"{values.dtype} of shape {values.shape}"
                raise ValueError(f"{key} is {actual}, not {kind} of {shape}")
            # Values of 8 bits are not limited; a scale or a factor divides.
            if kind == "float32" and not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(f"{key} holds a number that is not finite and above 0")
            parts.append(values)
        products[name] = Quantized(*parts)
    return products
