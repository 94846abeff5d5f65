"""The encoder of a run's documents.

Loading of zero-shot rankers, and of the encoders that they compare texts by.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.config import EngineConfig
from wqa.config.systems import import_part
from wqa.data.probe import DESCRIPTIONS, BaselineName, parse_baseline, probe
from wqa.errors import RunDirectoryError, check_choice
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.inference.ranker import Ranker
from wqa.io.encoder_directories import encoder_directory
from wqa.models import parse_devices
from wqa.models.backbone import Backbone
from wqa.pretrained import load_backbone
from wqa.systems.registry import BASELINES
from wqa.systems.run_directory import check_engine, load_run
from wqa.text import SingleInputs, Tokenizer, load_tokenizer

#: Greatest length of a text of a pretrained encoder, that of all-MiniLM-L6-v2.
MAX_LENGTH = 256


class TextEncoders(NamedTuple):
    """Encoders of questions and documents, which may be one, and their tokenizer."""

    question: Backbone
    document: Backbone
    tokenizer: Tokenizer
    max_length: int


def load_similarity(name: BaselineName, engine: EngineConfig, **options: Any) -> Ranker:
    """Load the ranker of a similarity.

    Parameters
    ----------
    name : BaselineName
        The similarity, and the encoder: a run directory, or what `wqa.pretrained.load_backbone`
        takes.
    engine : EngineConfig
        Engine, precision, device and sizes. int8 is calibrated on the built-in corpus.
    **options
        Further parameters of that ranker, and ``long_questions``, as `wqa.load_ranker` takes it.

    Returns
    -------
    Ranker
        A `wqa.systems.dcbert.ranker.SimilarityRanker`.

    Raises
    ------
    EncoderError, RunDirectoryError
        If the encoder cannot be read, or the run has none.
    OptionError, DeviceError, PrecisionError, MissingDependency, DataError
        If an option does not fit the encoder or this machine.
    """
    build, encoders = import_part(BASELINES[name.rule]), load_encoders(name.encoder, engine.ctx)
    return build(name.rule, *encoders, engine=engine, **options)


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
            problem = f"a run of {run.config.system}"
            raise RunDirectoryError(encoder, problem, "a run with an encoder")
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


class TextEncoder(NamedTuple):
    """Encodes texts by the document encoder of one run."""

    inputs: SingleInputs
    encoder: DocumentEncoder
    identity: Dict[str, Any]

    def encode(self, texts: Sequence[str]) -> Tuple[List[np.ndarray], List[bool]]:
        """Encode texts, and say which are cut; the last bits depend on the whole list.

        Shapes: the encodings (tokens, C), of no token where a text has none.
        """
        token_inputs = self.inputs.encode(list(texts))
        token_ids = [encoded.token_ids for encoded in token_inputs if not encoded.empty]
        encodings = iter(self.encoder.encode(token_ids))
        blank = np.zeros((0, self.identity["units"]), np.float32)
        rows = [blank if encoded.empty else next(encodings) for encoded in token_inputs]
        return rows, [encoded.truncated for encoded in token_inputs]


def load_text_encoder(
    run: Union[str, os.PathLike[str]], engine: EngineConfig, most_tokens: Optional[int] = None
) -> TextEncoder:
    """Load the encoder of a run's documents; longer texts than `most_tokens` are cut."""
    check_choice("precision", engine.precision, PRECISIONS)
    check_engine(engine)
    baseline = parse_baseline(run)
    if baseline is not None and baseline.is_similarity:
        _, backbone, tokenizer, max_length = load_encoders(baseline.encoder, engine.ctx)
    else:
        expected = "a run directory, minilm or maxsim:ENCODER"
        loaded = load_run(run, EngineConfig(ctx=engine.ctx), expected=expected)
        backbone, tokenizer = loaded.network.document_encoder, loaded.inputs.tokenizer
        if backbone is None:
            system = loaded.config.system
            problem = f"a run of {system}, which reads question and candidate together"
            raise RunDirectoryError(run, problem, "a system that encodes documents by themselves")
        max_length = loaded.config.max_length
    max_length = min(max_length, most_tokens or max_length)
    return TextEncoder(
        SingleInputs(tokenizer, max_length),
        DocumentEncoder(backbone, tokenizer, max_length, engine),
        encodings_identity(backbone, tokenizer, max_length),
    )
