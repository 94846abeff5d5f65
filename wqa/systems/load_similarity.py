"""Loading of zero-shot rankers, and of the encoders that they compare texts by."""

from __future__ import annotations

import pathlib
from typing import Any, List, NamedTuple

from wqa.config import EngineConfig, read_json, read_run_config
from wqa.data import builtin_path, read_questions
from wqa.data.baselines import BaselineName
from wqa.engines.onednn import choose_engine
from wqa.engines.onednn.quantize import QuantizedLayers, calibrate
from wqa.errors import RunDirectoryError
from wqa.io.encoder_directories import encoder_directory
from wqa.models import parse_devices
from wqa.models.backbone import Backbone
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.systems.dcbert.similarity import SimilarityConfig, SimilarityNetwork
from wqa.systems.dcbert.similarity_ranker import SimilarityRanker
from wqa.systems.run_directory import load_run
from wqa.text import SingleEncoder, Tokenizer, load_tokenizer

#: Greatest length of a text of a pretrained encoder, that of all-MiniLM-L6-v2.
MAX_LENGTH = 256
#: Texts of the built-in corpus that 8-bit products are calibrated on.
_CALIBRATION_TEXTS = 256


class TextEncoders(NamedTuple):
    """Encoders of questions and documents, which may be one, and their tokenizer."""

    question: Backbone
    document: Backbone
    tokenizer: Tokenizer
    max_length: int


def load_similarity(
    name: BaselineName, engine: EngineConfig, long_questions: str = "error", **options: Any
) -> SimilarityRanker:
    """Load the ranker of a similarity.

    Parameters
    ----------
    name : BaselineName
        The similarity, and the encoder: a run directory, or what `wqa.pretrained.load_backbone`
        takes.
    engine : EngineConfig
        Engine, precision, device and sizes. int8 is calibrated on the built-in corpus.
    long_questions : {"error", "truncate", "skip"}
        What to do with a question that is longer than the encoder takes.
    **options
        Further parameters of `SimilarityRanker`.

    Returns
    -------
    SimilarityRanker

    Raises
    ------
    EncoderError, RunDirectoryError
        If the encoder cannot be read, or the run has none.
    OptionError, DeviceError, PrecisionError, MissingDependency, DataError
        If an option does not fit the encoder or this machine.
    """
    encoders = load_encoders(name.encoder, engine.ctx)
    config = SimilarityConfig(name.rule, encoders.max_length)
    network = SimilarityNetwork(encoders.question, encoders.document, config)
    inputs = network.text_encoder(encoders.tokenizer, encoders.max_length, long_questions)
    if engine.precision == "int8" and choose_engine(engine) == "onednn":
        options["quantized"] = _calibrate(encoders)
    return SimilarityRanker(network, inputs, engine=engine, system=name.rule, **options)


def _calibrate(encoders: TextEncoders) -> QuantizedLayers:
    """8-bit products of the encoders, once where both texts share one."""
    texts: List[str] = []
    for question in read_questions(builtin_path("train")):
        texts += [question.question, *question.texts]
    encoder = SingleEncoder(encoders.tokenizer, encoders.max_length)
    inputs = encoder.encode(texts[:_CALIBRATION_TEXTS])
    quantized: QuantizedLayers = []
    for backbone in dict.fromkeys((encoders.question, encoders.document)):
        layers = list(backbone.layers)
        quantized += calibrate(backbone.config, backbone.embeddings, layers, inputs)
    return quantized


def load_encoders(encoder: str, ctx: str = "cpu") -> TextEncoders:
    """Load the encoders of a run, or a pretrained one."""
    if _is_run(encoder):
        run = load_run(pathlib.Path(encoder), ctx)
        backbones = run.network.encoders
        if not backbones:
            system = run.config.system
            raise RunDirectoryError(encoder, f"a run of {system}", "a run with an encoder")
        tokenizer = run.encoder.tokenizer
        return TextEncoders(backbones[0], backbones[-1], tokenizer, run.config.max_length)
    with encoder_directory(encoder) as folder:
        backbone = load_backbone(folder, parse_devices(ctx))
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(backbone.config, encoder)
    length = min(MAX_LENGTH, backbone.config.max_positions)
    return TextEncoders(backbone, backbone, tokenizer, length)


def load_inputs(encoder: str) -> SingleEncoder:
    """Load what converts texts to token ids, without the parameters of the encoder."""
    with encoder_directory(encoder) as folder:
        if _is_run(encoder):
            length = read_run_config(folder / "config.json").max_length
        else:
            length = min(MAX_LENGTH, read_backbone_config(folder).max_positions)
        return SingleEncoder(load_tokenizer(folder), length)


def _is_run(encoder: str) -> bool:
    """Whether an encoder is that of a run directory.

    The system of a directory that `wqa convert` made of an encoder alone is ``"encoder"``. Any
    other content is left to what loads pretrained encoders, whose error describes it.
    """
    try:
        values = read_json(pathlib.Path(encoder) / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("system", "encoder") != "encoder"
