"""The encoder of a run's documents.

Loading of zero-shot rankers, and of the encoders that they compare texts by.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.config import EngineConfig
from wqa.data import builtin_path, read_questions
from wqa.data.baselines import BaselineName, parse_baseline
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.engines.choice import choose_engine
from wqa.engines.inputs import TextInputs
from wqa.engines.onednn.quantize import QuantizedLayers, quantize_network
from wqa.errors import RunDirectoryError, check_choice
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.inference.ranker import Ranker
from wqa.io.encoder_directories import encoder_directory
from wqa.models import EncoderNetwork, parse_devices
from wqa.models.backbone import Backbone
from wqa.pretrained import load_backbone
from wqa.systems.registry import baseline_builder
from wqa.systems.run_directory import check_engine, load_run
from wqa.text import SingleInputs, Tokenizer, load_tokenizer

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
) -> Ranker:
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
        Further parameters of that ranker.

    Returns
    -------
    Ranker
        A `wqa.systems.dcbert.similarity.SimilarityRanker`.

    Raises
    ------
    EncoderError, RunDirectoryError
        If the encoder cannot be read, or the run has none.
    OptionError, DeviceError, PrecisionError, MissingDependency, DataError
        If an option does not fit the encoder or this machine.
    """
    encoders = load_encoders(name.encoder, engine.ctx)
    if engine.precision == "int8" and choose_engine(engine) == "onednn":
        options["quantized"] = _quantize(encoders)
    build = baseline_builder(name.rule)
    question, document, tokenizer, max_length = encoders
    options.update(long_questions=long_questions, engine=engine)
    return build(name.rule, question, document, tokenizer, max_length, **options)


def _quantize(encoders: TextEncoders) -> QuantizedLayers:
    """8-bit products of the encoders, once where both texts share one."""
    texts: List[str] = []
    for question in read_questions(builtin_path("train")):
        texts += [question.question, *question.texts]
    inputs = SingleInputs(encoders.tokenizer, encoders.max_length)
    sample = inputs.encode(texts[:_CALIBRATION_TEXTS])
    quantized: QuantizedLayers = []
    for backbone in dict.fromkeys((encoders.question, encoders.document)):
        quantized += quantize_network(TextInputs(EncoderNetwork(backbone)), sample)
    return quantized


def load_encoders(encoder: str, ctx: str = "cpu") -> TextEncoders:
    """Load the encoders of a run, or a pretrained one."""
    kind = probe(encoder).kind
    if kind == "export":
        hint = "name the run that was exported"
        raise RunDirectoryError(encoder, DESCRIPTIONS[kind], "an encoder or a run", hint)
    if kind == "run":
        run = load_run(encoder, EngineConfig(ctx=ctx))
        backbones = run.network.encoders
        if not backbones:
            system = run.config.system
            raise RunDirectoryError(encoder, f"a run of {system}", "a run with an encoder")
        tokenizer = run.inputs.tokenizer
        return TextEncoders(backbones[0], backbones[-1], tokenizer, run.config.max_length)
    with encoder_directory(encoder) as folder:
        backbone = load_backbone(folder, parse_devices(ctx))
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(backbone.config, encoder)
    length = min(MAX_LENGTH, backbone.config.max_positions)
    return TextEncoders(backbone, backbone, tokenizer, length)


#: Precisions in which documents are encoded.
PRECISIONS = ("float32", "bfloat16")


class EncodedText(NamedTuple):
    """Encodings of a text.

    Shapes: `rows` (tokens, C).
    """

    rows: np.ndarray
    truncated: bool


class TextEncoder(NamedTuple):
    """Encodes the documents of one run."""

    inputs: SingleInputs
    encoder: DocumentEncoder
    identity: Dict[str, Any]

    def encode(self, texts: Sequence[str]) -> List[Optional[EncodedText]]:
        """Encode a list of texts, each by itself; the last bits depend on the whole list."""
        token_inputs = self.inputs.encode(list(texts))
        non_blank = [encoded for encoded in token_inputs if not encoded.empty]
        rows = iter(self.encoder.encode([encoded.token_ids for encoded in non_blank]))
        results: List[Optional[EncodedText]] = []
        for encoded in token_inputs:
            if encoded.empty:
                results.append(None)
            else:
                results.append(EncodedText(next(rows), encoded.truncated))
        return results


def load_text_encoder(run: Union[str, os.PathLike[str]], engine: EngineConfig) -> TextEncoder:
    """Load the encoder of a run's documents."""
    check_choice("precision", engine.precision, PRECISIONS)
    check_engine(engine)
    backbone, inputs = _load(run, engine.ctx)
    return TextEncoder(
        inputs,
        DocumentEncoder(backbone, inputs.tokenizer, inputs.max_length, engine),
        encodings_identity(backbone, inputs.tokenizer, inputs.max_length),
    )


def _load(run: Union[str, os.PathLike[str]], ctx: str) -> Tuple[Backbone, SingleInputs]:
    """The encoder of the documents of a run, and its inputs."""
    baseline = parse_baseline(run)
    if baseline is not None and baseline.is_similarity:
        encoders = load_encoders(baseline.encoder, ctx)
        return encoders.document, SingleInputs(encoders.tokenizer, encoders.max_length)
    expected = "a run directory, or an encoder such as minilm"
    loaded = load_run(run, EngineConfig(ctx=ctx), expected=expected)
    backbone = loaded.network.document_encoder
    if backbone is None:
        raise RunDirectoryError(
            run,
            f"a run of {loaded.config.system}, which reads question and candidate together",
            "a system that encodes documents by themselves",
        )
    return backbone, SingleInputs(loaded.inputs.tokenizer, loaded.config.max_length)
