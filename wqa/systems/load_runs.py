"""Rankers of run directories and of fine-tuned classifiers, whose networks MXNet holds."""

from __future__ import annotations

import pathlib
from typing import Any, Dict

from wqa.config import EngineConfig
from wqa.data.baselines import BASELINE_NAMES
from wqa.errors import OptionError
from wqa.inference.calibrated import read_calibration
from wqa.inference.ranker import Ranker
from wqa.io.encoder_directories import encoder_directory
from wqa.models import parse_devices
from wqa.systems.checkpoints import load_held
from wqa.systems.load import build_ranker
from wqa.systems.run_directory import check_engine, load_run
from wqa.text import load_tokenizer

#: Greatest length of a pair, for a classifier whose files do not record it.
MAX_LENGTH = 128


def load_run_ranker(folder: pathlib.Path, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    """Load the ranker of a run directory.

    ``options`` are keywords of the ranker, and ``calibrated`` and ``long_questions``.
    """
    calibrated, long_questions = options.pop("calibrated"), options.pop("long_questions")
    expected = (
        "a run directory as `wqa train` writes it, a classifier's directory or tar, or "
        f"a ranker by name: {', '.join(BASELINE_NAMES)}"
    )
    run = load_run(folder, engine, long_questions, "scores", expected)
    ranker = build_ranker(run.config.system, run.network, run.inputs, **run.options, **options)
    if calibrated:
        ranker.calibration = read_calibration(folder, run.config, ranker.capabilities.stages)
    return ranker


def load_classifier(path: pathlib.Path, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    """Load the ranker of a fine-tuned classifier, a directory or an archive of one.

    ``options`` are as `load_run_ranker` takes them.
    """
    check_engine(engine, options["long_questions"])
    del options["calibrated"]  # nothing was fitted
    if engine.precision == "int8":
        raise OptionError(
            "precision",
            f"int8 of {path}, another library's directory",
            "a quantized run",
            "convert it with `wqa convert`, then quantize it with `wqa quantize`",
        )
    with encoder_directory(path) as folder:
        system, network = load_held(folder, parse_devices(engine.ctx))
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(network.config, path)
    max_length = min(MAX_LENGTH, network.config.max_positions)
    inputs = network.text_inputs(tokenizer, max_length, options.pop("long_questions"))
    return build_ranker(system, network, inputs, engine=engine, **options)
