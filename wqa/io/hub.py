"""Encoders of the Hugging Face hub by name, by way of the hub's own library and its cache."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Tuple

from wqa.errors import EncoderError, MissingDependency

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)

_SETTINGS = ("config.json", "tokenizer_config.json")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
#: Files of weights, in the order in which they are looked for.
_WEIGHTS: Tuple[Tuple[str, ...], ...] = (
    ("model*.safetensors", "model.safetensors.index.json"),
    ("pytorch_model*.bin", "pytorch_model.bin.index.json"),
)


def is_hub_name(name: str) -> bool:
    """Whether a name may be one of the hub, such as ``FacebookAI/roberta-base``."""
    return bool(_NAME.fullmatch(name)) and not os.path.exists(name.split("/")[0])


def hub_directory(name: str) -> pathlib.Path:
    """Directory of an encoder of the hub, from its cache or else from the network."""
    reason = ""
    for only_cached in (True, False):
        try:
            folder = _snapshot(name, only_cached)
        except ImportError as error:
            raise MissingDependency(
                name,
                f"huggingface_hub cannot be imported ({error})",
                "an encoder's directory, or the hub's library for its names",
                "pip install huggingface_hub",
            ) from None
        except Exception as error:  # the library lets errors of its HTTP client through
            reason = " ".join(str(error).split())[:200]
            continue
        if _is_whole(folder):
            return folder
        reason = "it lacks a configuration, a tokenizer or weights that this package reads"
    raise EncoderError(
        name,
        "there is no such directory or archive, and as a name of the Hugging Face hub it is not "
        f"in the cache and cannot be fetched ({reason})",
        "an encoder's directory, a tar of one, or a hub name such as FacebookAI/roberta-base",
        f"on a machine with a network: hf download {name} --local-dir DIR; then name DIR",
    )


def _snapshot(name: str, only_cached: bool) -> pathlib.Path:
    """Files of a repository, with the first kind of weights that it has."""
    from huggingface_hub import snapshot_download

    for weights in _WEIGHTS:
        patterns = [*_SETTINGS, *_TOKENIZERS, *weights]
        found = snapshot_download(name, allow_patterns=patterns, local_files_only=only_cached)
        folder = pathlib.Path(found)
        if any(folder.glob(weights[0])):
            break
    return folder


def _is_whole(folder: pathlib.Path) -> bool:
    has_tokenizer = any((folder / name).exists() for name in _TOKENIZERS)
    has_weights = any(any(folder.glob(weights[0])) for weights in _WEIGHTS)
    return (folder / "config.json").exists() and has_tokenizer and has_weights
