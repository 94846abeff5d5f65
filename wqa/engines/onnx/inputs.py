"""Inputs of exported graphs, by the arrays of networks. Nothing here needs MXNet or onnx."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Tuple

import numpy as np


class Mask(NamedTuple):
    """A mask that a graph takes for an array of numbers of real positions: 1 there, 0 behind.

    Attributes
    ----------
    name : str
        Name of the mask.
    axis : str
        Name of its last axis.
    padded : tuple of (str, int)
        Array of the network, and the axis of it, that has the size of the mask's last axis.
    """

    name: str
    axis: str
    padded: Tuple[str, int]


#: Names of inputs by those of the networks' arrays; others keep their names.
INPUT_NAMES = {
    "token_ids": "input_ids",
    "token_types": "token_type_ids",
    "positions": "position_ids",
}
#: Masks by the names of the networks' arrays.
MASKS = {
    "valid_length": Mask("attention_mask", "length", ("token_ids", -1)),
    "question_valid": Mask("question_mask", "question_length", ("question_ids", -1)),
    "document_valid": Mask("document_mask", "candidate_length", ("document_ids", -1)),
    "candidate_valid": Mask("candidate_mask", "candidate_length", ("candidate_ids", -1)),
    "list_valid": Mask("list_mask", "candidates", ("candidate_ids", 1)),
}


def mask_of(lengths: np.ndarray, size: int) -> np.ndarray:
    """Mask of numbers of real positions.

    Shapes: `lengths` (...), the result (..., size).
    """
    return (np.arange(size) < np.asarray(lengths)[..., None]).astype(np.int64)


def graph_inputs(arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Inputs of a graph for the arrays of its network."""
    inputs = {}
    for name, array in arrays.items():
        if name in MASKS:
            padded, axis = MASKS[name].padded
            inputs[MASKS[name].name] = mask_of(array, arrays[padded].shape[axis])
        elif array.dtype == np.int32:
            inputs[INPUT_NAMES.get(name, name)] = array.astype(np.int64)
        else:
            inputs[INPUT_NAMES.get(name, name)] = array
    return inputs
