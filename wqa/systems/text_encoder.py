"""The encoder of a run's documents, and the settings of the caches that it fills."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.cache.encodings import STORES
from wqa.config import EngineConfig, read_run_config
from wqa.data.baselines import parse_baseline
from wqa.engines.document_encoder import DocumentEncoder, encodings_identity
from wqa.engines.onednn import check_precision
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.models import parse_devices
from wqa.models.backbone import Backbone
from wqa.systems.load_similarity import load_encoders, load_inputs
from wqa.systems.run_directory import load_run
from wqa.text import SingleEncoder, load_tokenizer

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

    inputs: SingleEncoder
    encoder: DocumentEncoder
    identity: Dict[str, Any]

    def encode(self, texts: Sequence[str]) -> List[Optional[EncodedText]]:
        """Encode a list of texts, each by itself; the last bits depend on the whole list."""
        inputs = self.inputs.encode(list(texts))
        filled = [encoded for encoded in inputs if not encoded.empty]
        rows = iter(self.encoder.encode([encoded.token_ids for encoded in filled]))
        results: List[Optional[EncodedText]] = []
        for encoded in inputs:
            if encoded.empty:
                results.append(None)
            else:
                results.append(EncodedText(next(rows), encoded.truncated))
        return results


def load_text_encoder(run: Union[str, os.PathLike[str]], engine: EngineConfig) -> TextEncoder:
    """Load the encoder of a run's documents."""
    parse_devices(engine.ctx)
    check_choice("precision", engine.precision, PRECISIONS)
    check_precision(engine.precision)
    backbone, inputs = _load(run, engine.ctx)
    return TextEncoder(
        inputs,
        DocumentEncoder(backbone, inputs.tokenizer, inputs.max_length, engine),
        encodings_identity(backbone, inputs.tokenizer, inputs.max_length),
    )


def load_document_inputs(run: Union[str, os.PathLike[str]]) -> SingleEncoder:
    """Load what converts the documents of a run to token ids, without its parameters."""
    baseline = parse_baseline(run)
    if baseline is not None and baseline.is_similarity:
        return load_inputs(baseline.encoder)
    folder = pathlib.Path(run)
    config = read_run_config(folder / "config.json")
    return SingleEncoder(load_tokenizer(folder), config.max_length)


def load_identity(run: Union[str, os.PathLike[str]]) -> Dict[str, Any]:
    """What the encodings of a run's documents depend on. The run is read on the CPU."""
    backbone, inputs = _load(run, "cpu")
    return encodings_identity(backbone, inputs.tokenizer, inputs.max_length)


def _load(run: Union[str, os.PathLike[str]], ctx: str) -> Tuple[Backbone, SingleEncoder]:
    """The encoder of the documents of a run, and its inputs."""
    baseline = parse_baseline(run)
    if baseline is not None and baseline.is_similarity:
        encoders = load_encoders(baseline.encoder, ctx)
        return encoders.document, SingleEncoder(encoders.tokenizer, encoders.max_length)
    folder = pathlib.Path(run)
    if not folder.is_dir():
        expected = "a run directory, or an encoder such as minilm"
        raise RunDirectoryError(folder, "there is no such directory", expected)
    loaded = load_run(folder, ctx)
    backbone = loaded.network.document_encoder
    if backbone is None:
        raise RunDirectoryError(
            folder,
            f"a run of {loaded.config.system}, which reads question and candidate together",
            "a system that encodes documents by themselves",
        )
    return backbone, SingleEncoder(loaded.encoder.tokenizer, loaded.config.max_length)


def check_cache_options(store: str, first_tokens: int) -> None:
    """Check the options of a cache."""
    check_choice("store", store, STORES)
    if first_tokens < 0:
        raise OptionError("first_tokens", first_tokens, "a number of rows, or 0 for all")


def cache_settings(
    encoder: TextEncoder, precision: str, store: str, first_tokens: int
) -> Dict[str, Any]:
    """Settings of the cache of an encoder, as `DocumentCacheWriter` takes them."""
    options = {"precision": precision, "store": store, "tokens": first_tokens}
    return {**encoder.identity, **options}
