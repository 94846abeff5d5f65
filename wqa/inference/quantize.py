"""Post-training quantization: 8-bit weights for a run, and the scales of what enters them.

Questions of the development split run through the float32 encoder while the largest magnitude of
each channel that enters a product is noted. A channel is then divided, and its row of the weight
multiplied, by ``a ** strength / w ** (1 - strength)`` of the channel's magnitude a and the row's
magnitude w, which takes the outliers out of the inputs (Xiao et al. 2023, SmoothQuant, equation 4).
Weights have a scale an output. Embeddings, normalisations, attention and heads are left as they
are.
"""

from __future__ import annotations

import math
import pathlib
from typing import Dict, Iterable, List, Tuple

import numpy as np
from safetensors.numpy import save

from wqa.data import Question, atomic_writer
from wqa.data.files import PathLike, sha256
from wqa.errors import OptionError, RunDirectoryError
from wqa.inference.encoder import PackedEncoder
from wqa.inference.load import load_cascade
from wqa.inference.packed import Batch, Quantized
from wqa.inference.parameters import PRODUCTS, product_parameter
from wqa.inference.quantized import FILE
from wqa.models.heads import ExitNetwork
from wqa.text import PairEncoder, pack_batches

#: Share of the inputs' imbalance that the weights take over, SmoothQuant's alpha. Its 0.5 lost up
#: to 2.6 points of WikiQA's dev MAP with the MiniLM rankers; from 0.7 the loss is within the
#: split's noise.
STRENGTH = 0.8

#: Tokens of a micro-batch while calibrating.
_BATCH_TOKENS = 1024


def quantize(
    run: PathLike, questions: Iterable[Question], most: int = 100, strength: float = STRENGTH
) -> int:
    """Calibrate a run and write its 8-bit products to ``int8.safetensors`` in its directory.

    Parameters
    ----------
    run : str or path-like
        Run directory.
    questions : iterable of Question
        Of a development split; labels are not looked at.
    most : int
        Questions taken, from the start.
    strength : float
        In [0, 1].

    Returns
    -------
    int
        Pairs that it was calibrated on.

    Raises
    ------
    OptionError
        If there is no question, or the strength is out of range.
    RunDirectoryError, StorageError
    """
    if not 0 <= strength <= 1:
        raise OptionError("--strength", strength, "a number from 0 to 1")
    folder = pathlib.Path(run)
    ranker = load_cascade(folder, engine="mxnet")
    if not (folder / "model.params").exists():
        raise RunDirectoryError(
            folder,
            "not a run directory",
            "a run, or a converted classifier",
            "convert it first: wqa convert DIR OUT",
        )
    taken = [question for question, _ in zip(questions, range(most))]
    if not taken:
        raise OptionError("--data", "no question", "at least one")
    reach, pairs = _magnitudes(ranker.model, ranker.encoder, taken)
    tensors: Dict[str, np.ndarray] = {}
    for place, layer in enumerate(ranker.model.backbone.layers[: ranker.model.exits[-1]]):
        weights = {
            name: product_parameter(layer, name, "weight", _scale(ranker.model))
            for name in PRODUCTS
        }
        for name, product in _quantized_layer(weights, reach[place], strength).items():
            for part, array in zip(Quantized._fields, product):
                tensors[f"layers.{place}.{name}.{part}"] = np.ascontiguousarray(array)
    content = save(
        tensors,
        metadata={
            "model_sha256": sha256(folder / "model.params"),
            "questions": str(len(taken)),
            "pairs": str(pairs),
            "strength": str(strength),
        },
    )
    with atomic_writer(folder / FILE, "wb") as file:
        file.write(content)
    return pairs


def _scale(model: ExitNetwork) -> float:
    return 1 / math.sqrt(model.config.units // model.config.num_heads)


def _magnitudes(
    model: ExitNetwork, encoder: PairEncoder, questions: List[Question]
) -> Tuple[List[Dict[str, np.ndarray]], int]:
    """Largest magnitude of each channel that enters each step of each layer, and the number of
    pairs."""
    packed = PackedEncoder(
        model,
        encoder.tokenizer.pair_form == "bert",
        "float32",
        max(_BATCH_TOKENS, model.config.max_positions),
    )
    reach: List[Dict[str, np.ndarray]] = [{} for _ in range(model.exits[-1])]

    def watch(layer: int, step: str, rows: np.ndarray) -> None:
        found = np.abs(rows).max(axis=0)
        reach[layer][step] = np.maximum(reach[layer].get(step, found), found)

    pairs = [
        pair
        for question in questions
        for pair in encoder.encode(question.question, question.texts, question.id)
        if not pair.empty
    ]
    pairs.sort(key=lambda pair: len(pair.token_ids))
    lengths = np.array([len(pair.token_ids) for pair in pairs])
    for rows in pack_batches(lengths, _BATCH_TOKENS):
        batch = Batch(lengths[rows])
        packed.embed([pairs[row] for row in rows], batch)
        for layer in range(model.exits[-1]):
            packed.layer(layer, batch, watch)
    return reach, len(pairs)


def _quantized_layer(
    weights: Dict[str, np.ndarray], reach: Dict[str, np.ndarray], strength: float
) -> Dict[str, Quantized]:
    products = {}
    for step in dict.fromkeys(PRODUCTS.values()):
        names = [name for name, of in PRODUCTS.items() if of == step]
        rows = np.concatenate(
            [weights[name] for name in names]
        )  # (out of all, in): they share their input
        factor = _factor(reach[step], np.abs(rows).max(axis=0), strength)
        for name in names:
            smooth = weights[name].T / factor[:, None]  # (in, out)
            scale = np.maximum(np.abs(smooth).max(axis=0), 1e-20) / 127
            products[name] = Quantized(
                np.rint(smooth / scale).astype(np.int8), scale.astype(np.float32), factor
            )
    return products


def _factor(inputs: np.ndarray, weights: np.ndarray, strength: float) -> np.ndarray:
    """What each channel is multiplied by, so that the largest of all becomes 127."""
    inputs, weights = np.maximum(inputs, 1e-5), np.maximum(weights, 1e-5)
    smooth = inputs**strength / weights ** (1 - strength)
    return (127 / (inputs / smooth).max() / smooth).astype(np.float32)
