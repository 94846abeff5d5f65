"""Encoders of GluonNLP's zoo by name, from its cache or else from the network."""

from __future__ import annotations

import contextlib
import io
import logging
import pathlib
from typing import Dict, Iterator, List, Tuple

from wqa.config import BACKBONES
from wqa.errors import EncoderError, shorten
from wqa.io.temporary import scratch_folder

LOGGER = logging.getLogger(__name__)

#: Start of the names of the zoo's encoders.
PREFIX = "gluonnlp:"

_EXAMPLE = f"{PREFIX}bert_12_768_12/book_corpus_wiki_en_uncased"


@contextlib.contextmanager
def zoo_directory(name: str) -> Iterator[pathlib.Path]:
    """Open a folder with the weights and the vocabulary of an encoder of the zoo."""
    import wqa.models.runtime  # noqa: F401 - prepares the process before GluonNLP imports MXNet

    model, dataset = _parse(name)
    files = _files(model, dataset)
    _fetch(name, model, dataset, files)
    # The cache holds other encoders too.
    with scratch_folder("zoo") as folder:
        for path in files:
            (folder / path.name).symlink_to(path)
        yield folder


def _parse(name: str) -> Tuple[str, str]:
    """Model and dataset of a name."""
    model, _, dataset = name[len(PREFIX) :].partition("/")
    if not model or not dataset:
        raise EncoderError(shorten(name), "no MODEL/DATASET", f"a name such as {_EXAMPLE}")
    datasets = _datasets()
    if model not in datasets:
        raise EncoderError(
            shorten(name), f"unknown model {shorten(model)}", "one of " + ", ".join(datasets)
        )
    if dataset not in datasets[model]:
        raise EncoderError(
            shorten(name),
            f"unknown dataset {shorten(dataset)}",
            f"one of {', '.join(datasets[model])}, those of {model}",
        )
    return model, dataset


def _datasets() -> Dict[str, List[str]]:
    """Datasets of the zoo by model, for which the zoo has weights and a vocabulary of words."""
    import gluonnlp.model  # noqa: F401 - enters its files in MXNet's table
    from gluonnlp.data.utils import _vocab_sha1
    from mxnet.gluon.model_zoo.model_store import _model_sha1

    # The other vocabulary is a SentencePiece model.
    words = [name for name, (_, ending, _) in _vocab_sha1.items() if ending == ".vocab"]
    datasets = {}
    for model in BACKBONES:
        datasets[model] = [name for name in words if f"{model}_{name}" in _model_sha1]
    return {model: names for model, names in datasets.items() if names}


def _files(model: str, dataset: str) -> Dict[pathlib.Path, str]:
    """Paths of an encoder's files in the cache, and their SHA-1."""
    from gluonnlp.base import get_home_dir
    from gluonnlp.data import GPT2BPETokenizer
    from gluonnlp.data.utils import _vocab_sha1
    from mxnet.gluon.model_zoo.model_store import _model_sha1

    root = pathlib.Path(get_home_dir()).absolute() / "models"
    weights, words = _model_sha1[f"{model}_{dataset}"], _vocab_sha1[dataset][0]
    files = {
        root / f"{model}_{dataset}-{weights[:8]}.params": weights,
        root / f"{dataset}-{words[:8]}.vocab": words,
    }
    if BACKBONES[model].pair_form == "roberta":
        merges, digest = GPT2BPETokenizer.bpe_ranks_file_hash
        files[root / merges] = digest
    return files


def _fetch(name: str, model: str, dataset: str, files: Dict[pathlib.Path, str]) -> None:
    """Let GluonNLP check the files of its cache, and fetch what is missing or damaged."""
    from gluonnlp.data import GPT2BPETokenizer
    from gluonnlp.model import get_model
    from mxnet.gluon.model_zoo.model_store import get_model_file
    from mxnet.gluon.utils import check_sha1

    root = str(next(iter(files)).parent)
    missing = [path.name for path in files if not path.exists()]
    if missing:
        LOGGER.warning(f"GluonNLP fetches {', '.join(missing)} to {root}")
    try:
        # It prints each attempt on standard output, which is the command's.
        with contextlib.redirect_stdout(io.StringIO()):
            # Weights are read from the file later, not twice. This fetches the vocabulary.
            get_model(model, dataset_name=dataset, pretrained=False, root=root)
            get_model_file(f"{model}_{dataset}", root=root)
            if BACKBONES[model].pair_form == "roberta":
                GPT2BPETokenizer(root=root)
    except Exception as error:  # the library lets errors of its HTTP client through
        reason = " ".join(str(error).split())[:200]
        problems = []
        for path, digest in files.items():
            if not path.exists():
                problems.append(f"{path.name} is missing")
            elif not path.is_file() or not check_sha1(str(path), digest):
                problems.append(f"{path.name} is damaged, its SHA-1 is not the zoo's")
        raise EncoderError(
            name,
            f"in {root} {', '.join(problems)}, and they cannot be fetched ({reason})",
            "files of GluonNLP's zoo in that folder, or a network",
            f"run the same command on a machine with a network, then copy the files to {root}",
        ) from None
