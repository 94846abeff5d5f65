#!/usr/bin/env python3
"""Download of the papers' pretrained encoders by name, from their official sites.

    python data_scripts/encoders.py --list
    python data_scripts/encoders.py roberta-base --out encoders
    python data_scripts/encoders.py tanda-roberta-base --out encoders

An encoder of the Hugging Face hub becomes the folder OUT/NAME, one of TANDA's becomes OUT/NAME.tar;
`wqa train --encoder` takes both. The hub publishes a SHA-256 of every large file, which is checked.
TANDA's tars have none; the script prints their SHA-256. On a machine without internet, `wqa train
--encoder` takes a copy of the directory or tar from another one. HF_ENDPOINT names another server
with the paths of the hub.
"""

import shutil
import sys

from corpus import make_named_main
from huggingface_hub import HfApi, hf_hub_download
from releases import TANDA, check_digest, download

from wqa.errors import DataError, WqaError, printable
from wqa.io.files import new_directory

#: Encoders of the hub by name: the repository, and what the encoder is for.
HUB_ENCODERS = {
    "roberta-base": ("FacebookAI/roberta-base", "Cascade Transformer, MHS, MSPP"),
    "roberta-large": ("FacebookAI/roberta-large", "MHS teacher"),
    "electra-base": ("google/electra-base-discriminator", "MHS"),
    "electra-large": ("google/electra-large-discriminator", "MHS teacher"),
    "electra-small": ("google/electra-small-discriminator", "for small machines"),
    "albert-base": ("albert/albert-base-v2", "MHS"),
    "albert-xxlarge": ("albert/albert-xxlarge-v2", "MHS teacher"),
    "bert-base": ("google-bert/bert-base-uncased", "DC-BERT"),
    "bert-large": ("google-bert/bert-large-uncased", "BERT's large size"),
    "bert-wwm": ("google-bert/bert-large-uncased-whole-word-masking", "DC-BERT's reader"),
}


def tanda_encoders():
    """Return TANDA's encoders by name: the file of its store, and what the encoder is for."""
    encoders = {}
    for size in ("bert-base", "bert-large", "roberta-base", "roberta-large"):
        name, file = f"tanda-{size}", f"tanda_{size.replace('-', '_')}_asnq"
        encoders[name] = (f"{file}.tar", "transferred on ASNQ")
        if size == "roberta-base":  # its adapted encoders were not released
            continue
        for corpus in ("wikiqa", "trec"):
            use = f"transferred on ASNQ, adapted to {corpus}"
            encoders[f"{name}-{corpus}"] = (f"{file}_{corpus}.tar", use)
    return encoders


#: Encoders by name: the repository of the hub or the file of TANDA's store, and the use.
ENCODERS = {**HUB_ENCODERS, **tanda_encoders()}

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)


def fetch_hub(repository, target):
    """Download a repository's configuration, weights and tokenizer; return digests by file."""
    digests = {}
    try:
        siblings = HfApi().model_info(repository, files_metadata=True).siblings
        published = {file.rfilename: file.lfs and file.lfs["sha256"] for file in siblings}
        weights = [name for name in WEIGHTS if name in published]
        if not weights or "config.json" not in published:
            raise DataError(repository, "no config.json or no weights", " or ".join(WEIGHTS))
        names = [name for name in ("config.json", weights[0], *TOKENIZER) if name in published]
        paths = {name: hf_hub_download(repository, name) for name in names}
        with new_directory(target) as folder:
            for name, path in paths.items():
                shutil.copyfile(path, folder / name)
                digests[name] = check_digest(folder / name, published[name], name)
    except WqaError:
        raise
    except Exception as error:  # the hub's library lets errors of its HTTP client through
        raise DataError(
            f"the Hugging Face hub, {repository}",
            f"cannot be fetched ({' '.join(str(error).split())[:200]})",
            hint="run the command again, or copy the encoder's directory from another machine",
        ) from None
    return digests


def fetch(name, out):
    """Download an encoder, unless it is there, and print its digests by file."""
    source, _ = ENCODERS[name]
    target = out / (f"{name}.tar" if source.endswith(".tar") else name)
    if target.exists():
        print(printable(f"{target} is there already"))
        return
    if source.endswith(".tar"):
        stores = [f"{store}/models/{source}" for store in TANDA]
        hint = "pass the copy to `wqa train --encoder`"
        digests = {target.name: download(stores, target, hint=hint)}
    else:
        digests = fetch_hub(source, target)
    checked = [f"{file} SHA-256 {digest}" for file, digest in digests.items()]
    print(printable(f"{target}: " + ", ".join(checked)))


SOURCES = {name: f"{source:50} {use}" for name, (source, use) in ENCODERS.items()}
main = make_named_main(__doc__, SOURCES, "encoders", fetch)

if __name__ == "__main__":
    sys.exit(main())
