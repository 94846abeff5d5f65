"""Quantization of a run for int8."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any, Iterable, Sequence

from wqa.config.training import STRENGTH
from wqa.data import Question
from wqa.data.digests import forget_digests, record_digests
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.engines.choice import packing_obstacle
from wqa.engines.onednn import quantize as products
from wqa.errors import OptionError, RunDirectoryError
from wqa.io.files import PathLike, atomic_writer, lock_output, sha256
from wqa.models import Network
from wqa.systems.registry import find_system
from wqa.systems.run_directory import QUANTIZED, load_run
from wqa.text import note_long_questions, prepare_questions


def quantize_network(system: str, network: Network, pairs: Sequence[Any]) -> Any:
    """Quantize the products of a network as the ranker of its system computes them."""
    owner = find_system(system).ranker_type(network.computes)
    return products.quantize_network(owner.engine_inputs(network), pairs)


def quantize(
    run: PathLike, questions: Iterable[Question], most: int = 100, long_questions: str = "error"
) -> int:
    """Quantize a run and write its 8-bit products to ``int8.safetensors`` in its directory."""
    folder = pathlib.Path(run)
    if probe(folder).kind == "huggingface":
        hint = "convert it with `wqa convert`"
        raise RunDirectoryError(folder, DESCRIPTIONS["huggingface"], "a run directory", hint)
    loaded = load_run(folder, long_questions=long_questions)
    obstacle = packing_obstacle(loaded.network)
    if obstacle:
        raise OptionError("run", obstacle, "a network of transformer layers")
    calibration = list(itertools.islice(questions, most))
    prepared = prepare_questions(calibration, [loaded.inputs])
    pairs = []
    for question in prepared.questions:
        encoded = loaded.inputs.encode(question.question, question.texts, question.id)
        pairs += [pair for pair in encoded if not pair.empty]
    if not pairs:
        raise OptionError("questions", "no question has a candidate with a token", "at least one")
    with lock_output(folder):
        quantized = quantize_network(loaded.config.system, loaded.network, pairs)
        record = {
            "model_sha256": sha256(folder / "model.params"),
            "questions": str(len(prepared.questions)),
            "pairs": str(len(pairs)),
            "strength": str(STRENGTH),
        }
        forget_digests(folder, [QUANTIZED])
        with atomic_writer(folder / QUANTIZED, "wb") as file:
            file.write(products.write_quantized(quantized, record))
        record_digests(folder, [QUANTIZED])
    note_long_questions(prepared.truncated, prepared.skipped)
    return len(pairs)
