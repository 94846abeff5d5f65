"""Quantization of a run for int8."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Iterable, List

from safetensors import SafetensorError, safe_open

from wqa.config import STRENGTH
from wqa.config.systems import KINDS
from wqa.data import Question
from wqa.data.digests import forget_digests, record_digests
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.engines.choice import packing_obstacle
from wqa.engines.onednn.quantize import write_quantized
from wqa.errors import OptionError, RunDirectoryError
from wqa.io.files import PathLike, atomic_writer, lock_output, sha256
from wqa.systems.load import quantize_network
from wqa.systems.run_directory import LoadedRun, load_run, quantized_path
from wqa.text import note_long_questions, prepare_questions

#: Kinds of networks that run in 8 bits, by `wqa.models.NetworkConfig.computes`.
QUANTIZED = ("scores", "spans", "labels")


def quantize(
    run: PathLike,
    questions: Iterable[Question],
    most: int = 100,
    strength: float = STRENGTH,
    long_questions: str = "error",
) -> int:
    """Quantize a run and write its 8-bit products to ``int8.safetensors`` in its directory."""
    if not 0 <= strength <= 1:
        raise OptionError("strength", strength, "a number from 0 to 1")
    folder = pathlib.Path(run)
    loaded = _open(folder, long_questions)
    obstacle = packing_obstacle(loaded.network)
    if obstacle:
        raise OptionError("run", obstacle, "a network of transformer layers")
    calibration = list(itertools.islice(questions, most))
    if not calibration:
        raise OptionError("questions", "no question", "at least one")
    prepared = prepare_questions(calibration, [loaded.inputs])
    with lock_output(folder):
        _check_replaceable(quantized_path(folder))
        pairs = _quantize(folder, loaded, prepared.questions, strength)
    note_long_questions(prepared.truncated, prepared.skipped)
    return pairs


def _check_replaceable(path: pathlib.Path) -> None:
    """Refuse a file in the place of the 8-bit products that no quantization has written."""
    if not os.path.lexists(path):
        return
    try:
        with safe_open(str(path), "numpy") as file:
            is_own = "model_sha256" in (file.metadata() or {})
    except (OSError, SafetensorError):
        is_own = False
    if not is_own:
        expected = "no file, or one of `wqa quantize`"
        raise RunDirectoryError(path, "another file of this name", expected, "move it away")


def _open(folder: pathlib.Path, long_questions: str) -> LoadedRun:
    """A run whose network computes one of `QUANTIZED`."""
    if probe(folder).kind == "huggingface":
        hint = "convert it with `wqa convert`"
        raise RunDirectoryError(folder, DESCRIPTIONS["huggingface"], "a run directory", hint)
    loaded = load_run(folder, long_questions=long_questions)
    computes = loaded.network.computes
    if computes not in QUANTIZED:
        what, use = KINDS[computes]
        problem = f"a run of the system {loaded.config.system}, which is {what}"
        raise RunDirectoryError(folder, problem, "a run that ranks or reads", use)
    return loaded


def _quantize(
    folder: pathlib.Path, run: LoadedRun, calibration: List[Question], strength: float
) -> int:
    """Quantize a run by questions and write the file; returns the number of pairs."""
    pairs = []
    for question in calibration:
        encoded = run.inputs.encode(question.question, question.texts, question.id)
        pairs += [pair for pair in encoded if not pair.empty]
    quantized = quantize_network(run.config.system, run.network, pairs, strength)
    record = {
        "model_sha256": sha256(folder / "model.params"),
        "questions": str(len(calibration)),
        "pairs": str(len(pairs)),
        "strength": str(strength),
    }
    content = write_quantized(quantized, record)
    path = quantized_path(folder)
    forget_digests(folder, [path.name])
    with atomic_writer(path, "wb") as file:
        file.write(content)
    record_digests(folder, [path.name])
    return len(pairs)
