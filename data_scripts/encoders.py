#!/usr/bin/env python3
"""Download of the papers' pretrained encoders by name, from their official sites.

    python data_scripts/encoders.py --list
    python data_scripts/encoders.py roberta-base --out encoders
    python data_scripts/encoders.py tanda-roberta-base --out encoders
    python data_scripts/encoders.py roberta-base --out encoders --archive roberta-base.tar

An encoder of the Hugging Face hub becomes the folder OUT/NAME, one of TANDA's becomes OUT/NAME.tar;
`wqa train --encoder` takes both. The hub publishes a SHA-256 of every large file, which is checked.
TANDA's tars have none; the script prints their SHA-256. --archive takes a local copy instead of a
download, a directory or a tar.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import argparse
import json
import pathlib
import re
import shutil
import sys

from corpus import exit_status
from fetching import TANDA, download, read_small

from wqa.errors import DataError, printable
from wqa.io.archives import (
    LARGEST_ENCODER_FILE,
    LARGEST_ENCODER_TAR,
    checked_members,
    copy_member,
    open_tar,
    require_space,
    tar_errors,
)
from wqa.io.files import atomic_writer, remove, sha256, storage_errors, temporary_path
from wqa.io.locks import lock_output

HUB = "https://huggingface.co"

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
    "spiece.model",
)


def fetch_hub(repository, folder, site):
    """Download a repository's configuration, weights and tokenizer; return digests by file."""
    base, digests = f"{site}/{repository}", {}
    for kind in WEIGHTS:
        pointer = read_small(f"{base}/raw/main/{kind}")
        if pointer is not None:
            break
    else:
        raise DataError(
            base,
            "holds no weights",
            " or ".join(WEIGHTS),
            "check the name, or pass a copy with --archive",
        )
    digest = published_sha256(pointer, f"{base}/raw/main/{kind}")
    digests[kind] = download(f"{base}/resolve/main/{kind}", folder / kind, digest)
    for name in ("config.json", *TOKENIZER):
        content = read_small(f"{base}/raw/main/{name}")
        if content is not None and content.startswith(b"version https://git-lfs"):
            digest = published_sha256(content, name)
            digests[name] = download(f"{base}/resolve/main/{name}", folder / name, digest)
        elif content is not None:
            with atomic_writer(folder / name, "wb") as file:
                file.write(content)
    return digests


def published_sha256(pointer, where):
    """Return the SHA-256 in the hub's pointer to a large file."""
    match = re.search(rb"^oid sha256:([0-9a-f]{64})$", pointer, re.MULTILINE)
    if not match:
        raise DataError(
            where,
            "no SHA-256",
            "a pointer to a large file",
            "pass a copy that you trust with --archive",
        )
    return match[1].decode()


def take_archive(archive, folder):
    """Copy the encoder's files from a local directory or tar."""
    if archive.is_dir():
        paths = [archive / name for name in ("config.json", *WEIGHTS, *TOKENIZER)]
        paths = [path for path in paths if path.is_file()]
        require_space(folder, sum(path.stat().st_size for path in paths))
        for path in paths:
            copy(path, folder / path.name)
        return
    with tar_errors(archive, "a directory or a tar"), open_tar(archive, LARGEST_ENCODER_TAR) as tar:
        members = find_members(tar, archive)
        require_space(folder, sum(member.size for member in members.values()))
        for name, member in members.items():
            with atomic_writer(folder / name, "wb") as target:
                copy_member(tar, member, target)


def find_members(tar, archive):
    """Return the encoder's files in a tar by name."""
    members = {}
    for member in checked_members(tar, LARGEST_ENCODER_FILE):
        # The last part of the member's path is its name here, so nothing leaves the folder.
        name = pathlib.PurePosixPath(member.name).name
        if member.isfile() and name in {"config.json", *WEIGHTS, *TOKENIZER}:
            if name in members:
                raise DataError(archive, f"holds {name} twice", "one encoder")
            members[name] = member
    return members


def copy(path, target):
    """Copy a file; the copy appears when it is whole."""
    try:
        source = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise DataError(path, f"cannot be read ({error})", "a file") from None
    with source, atomic_writer(target, "wb") as file:
        shutil.copyfileobj(source, file)


def check(folder, where):
    """Refuse a folder without configuration, weights or tokenizer."""
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    for choices, part in (
        (("config.json",), "config.json"),
        (WEIGHTS, "weights"),
        (("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model"), "tokenizer"),
    ):
        if not present.intersection(choices):
            raise DataError(where, f"holds no {part}", " or ".join(choices))


def fetch(name, out, archive, site):
    """Download or copy one encoder; return its path and its digests by file."""
    source, _ = ENCODERS[name]
    if source.endswith(".tar") and (archive is None or archive.is_file()):
        target = out / f"{name}.tar"
        if archive is None:
            stores = [site] if site else [f"{store}/models" for store in TANDA]
            digest = download([f"{store}/{source}" for store in stores], target)
            return target, {target.name: digest}
        copy(archive, target)
        return target, {target.name: sha256(target)}
    target, partial = out / name, out / f".{name}.partial"
    if archive is None:
        digests = fetch_hub(source, partial, site or HUB)
        check(partial, source)
    else:
        partial = temporary_path(target)
        try:
            with storage_errors(partial):
                partial.mkdir(parents=True)
            take_archive(archive, partial)
            check(partial, archive)
        except BaseException:
            remove(partial)
            raise
        digests = {path.name: sha256(path) for path in partial.iterdir() if path.name in WEIGHTS}
    record = {"from": str(archive or source), "sha256": digests}
    with storage_errors(target):
        (partial / "fetched.json").write_text(json.dumps(record, indent=2) + "\n")
        partial.rename(target)
    return target, digests


def parse_arguments(arguments):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="encoders, see --list")
    parser.add_argument(
        "--list", action="store_true", help="print the names, their sources and their uses"
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("encoders"),
        help="folder (default: encoders)",
    )
    parser.add_argument(
        "--archive", type=pathlib.Path, help="local copy of the one encoder that is named"
    )
    parser.add_argument(
        "--mirror", metavar="URL", help="another server with the paths of the official one"
    )
    return parser.parse_args(arguments)


def main(arguments=None):
    """Run the command line."""
    options = parse_arguments(arguments)
    return exit_status(lambda: list_or_fetch(options))


def list_or_fetch(options):
    """Print the names of all encoders, or fetch those that are named."""
    if options.list:
        for name, (source, use) in ENCODERS.items():
            print(f"{name:26} {source:50} {use}")
        return
    unknown = [name for name in options.names if name not in ENCODERS]
    if unknown or not options.names:
        raise DataError(
            "NAME", unknown[0] if unknown else "none given", "one of " + ", ".join(ENCODERS)
        )
    if options.archive and len(options.names) > 1:
        raise DataError("--archive", f"{len(options.names)} names", "one name for one archive")
    for name in options.names:
        with lock_output(options.out / name):
            if (options.out / name).exists() or (options.out / f"{name}.tar").exists():
                print(printable(f"{options.out / name} is there already"))
                continue
            target, digests = fetch(name, options.out, options.archive, options.mirror)
            checked = [f"{file} SHA-256 {digest}" for file, digest in digests.items()]
            print(printable(f"{target}: " + ", ".join(checked)))


if __name__ == "__main__":
    sys.exit(main())
