"""8-bit weights of a run: written to its directory, and read from it."""

from __future__ import annotations

import pathlib
from typing import Iterable

from wqa.data import Question, atomic_writer
from wqa.data.files import PathLike, sha256
from wqa.errors import OptionError, RunDirectoryError
from wqa.inference.engine import packing_obstacle
from wqa.inference.load import load_network_ranker, quantized_path
from wqa.onednn.quantize import STRENGTH, calibrate, write_quantized


def quantize(
    run: PathLike, questions: Iterable[Question], most: int = 100, strength: float = STRENGTH
) -> int:
    """Calibrate a run and write its 8-bit products to ``int8.safetensors`` in its directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a network of transformer layers.
    questions : iterable of Question
        Questions of a development split; labels are not read.
    most : int
        Greatest number of questions that are taken, from the start.
    strength : float
        Share of the inputs' imbalance that the weights take over, in [0, 1].

    Returns
    -------
    int
        Pairs that it was calibrated on.

    Raises
    ------
    OptionError
        If there is no question, the strength is out of range, or the network has no transformer
        layers.
    RunDirectoryError, StorageError
        If the run cannot be read, or the file cannot be written.
    """
    if not 0 <= strength <= 1:
        raise OptionError("strength", strength, "a number from 0 to 1")
    folder = pathlib.Path(run)
    ranker = load_network_ranker(folder, engine="mxnet")
    network = ranker.network
    if not (folder / "model.params").exists():
        raise RunDirectoryError(
            folder,
            "not a run directory",
            "a run, or a converted classifier",
            "convert it first: wqa convert DIR OUT",
        )
    obstacle = packing_obstacle(network)
    if obstacle:
        raise OptionError("run", obstacle, "a network of transformer layers")
    taken = [question for question, _ in zip(questions, range(most))]
    if not taken:
        raise OptionError("questions", "no question", "at least one")
    pairs = []
    for question in taken:
        encoded = ranker.encoder.encode(question.question, question.texts, question.id)
        pairs += [pair for pair in encoded if not pair.empty]
    stages = network.encoder_stages()
    layers = [layer for stage in stages for layer in stage.layers]
    quantized = calibrate(network.config, network.encoders[0].embeddings, layers, pairs, strength)
    record = {
        "model_sha256": sha256(folder / "model.params"),
        "questions": str(len(taken)),
        "pairs": str(len(pairs)),
        "strength": str(strength),
    }
    content = write_quantized(quantized, record)
    with atomic_writer(quantized_path(folder), "wb") as file:
        file.write(content)
    return len(pairs)
