"""The encoder of a run's documents, and the settings of the caches that it fills."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from wqa.config import EngineConfig
from wqa.data.encodings import STORES
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.inference.run_directory import load_run
from wqa.models import parse_devices
from wqa.onednn import check_precision
from wqa.text import SingleEncoder

#: Precisions in which documents are encoded.
PRECISIONS = ("float32", "bfloat16")


class EncodedText(NamedTuple):
    """Encodings of a text, and whether it lost tokens to the length limit."""

    rows: np.ndarray  # (tokens, C), as `DocumentEncoder.encode` returns them
    truncated: bool


class TextEncoder(NamedTuple):
    """Encodes the documents of one run."""

    inputs: SingleEncoder
    encoder: DocumentEncoder
    identity: Dict[str, Any]  # what the encodings depend on

    def encode(self, texts: Sequence[str]) -> List[Optional[EncodedText]]:
        """Encode texts beside one another.

        The same texts give the same bits.

        Parameters
        ----------
        texts : sequence of str
            The texts.

        Returns
        -------
        list of EncodedText or None
            None for a text without a token.
        """
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
    """Load the encoder of a run's documents.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that encodes documents by themselves.
    engine : EngineConfig
        Engine, precision, device and threads.

    Returns
    -------
    TextEncoder

    Raises
    ------
    RunDirectoryError
        If there is no such run, or a file is damaged.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine does not fit this machine.
    """
    parse_devices(engine.ctx)
    check_choice("precision", engine.precision, PRECISIONS)
    check_precision(engine.precision)
    folder = pathlib.Path(run)
    if not folder.is_dir():
        raise RunDirectoryError(folder, "there is no such directory", "a run directory")
    loaded = load_run(folder, engine.ctx)
    backbone, tokenizer = loaded.network.document_encoder, loaded.encoder.tokenizer
    if backbone is None:
        raise RunDirectoryError(
            folder,
            f"a run of {loaded.config.system}, which reads question and candidate together",
            "a system that encodes documents by themselves",
        )
    length = loaded.config.max_length
    return TextEncoder(
        SingleEncoder(tokenizer, length),
        DocumentEncoder(backbone, tokenizer, length, engine),
        encodings_identity(backbone, tokenizer, length),
    )


def check_cache_options(store: str, first_tokens: int) -> None:
    """Check the options of a cache.

    Parameters
    ----------
    store : str
        Element type.
    first_tokens : int
        Number of rows of each document to keep.

    Raises
    ------
    OptionError
        If the element type is unknown, or the number is negative.
    """
    check_choice("store", store, STORES)
    if first_tokens < 0:
        raise OptionError("first_tokens", first_tokens, "a number of rows, or 0 for all")


def cache_settings(
    encoder: TextEncoder, precision: str, store: str, first_tokens: int
) -> Dict[str, Any]:
    """Settings of the cache of an encoder, as `DocumentCacheWriter` takes them.

    Parameters
    ----------
    encoder : TextEncoder
        The encoder.
    precision : {"float32", "bfloat16"}
        Precision of its products.
    store : str
        Element type of the cache.
    first_tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.

    Returns
    -------
    dict of str to Any
    """
    options = {"precision": precision, "store": store, "tokens": first_tokens}
    return {**encoder.identity, **options}
