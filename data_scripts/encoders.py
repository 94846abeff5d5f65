#!/usr/bin/env python3
"""The papers' pretrained encoders, by name, from their official places.

    python data_scripts/encoders.py --list
    python data_scripts/encoders.py roberta-base --out encoders
    python data_scripts/encoders.py tanda-roberta-base --out encoders
    python data_scripts/encoders.py roberta-base --out encoders --archive roberta-base.tar

Writes OUT/NAME/ for an encoder of the Hugging Face hub, OUT/NAME.tar for one of TANDA's; `wqa train
--encoder` takes both as they are. The hub publishes a SHA-256 of every large file, which is
checked. TANDA's tars have none: their digest is printed. --archive takes a local copy, a directory
or a tar, instead of a download.
"""

import argparse
import json
import pathlib
import re
import shutil
import sys
import tarfile

from fetching import download, file_sha256, read_small

from wqa.data import atomic_writer, storage_errors
from wqa.errors import DataError, WqaError

HUB = "https://huggingface.co"
TANDA = "https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020/models"

#: Name -> (repository of the hub or file of TANDA's store, what it is).
ENCODERS = {
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
    **{
        f"tanda-{size}{'-' + corpus if corpus else ''}": (
            f"tanda_{size.replace('-', '_')}_asnq{'_' + corpus if corpus else ''}.tar",
            "transferred on ASNQ" + (f", adapted to {corpus}" if corpus else ""),
        )
        for size in ("bert-base", "bert-large", "roberta-base", "roberta-large")
        for corpus in ("", "wikiqa", "trec")
        if not (size == "roberta-base" and corpus)
    },
}
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
    """Fetch configuration, weights of one kind and tokenizer of a repository; returns digests by
    file."""
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
    digests[kind] = download(
        f"{base}/resolve/main/{kind}",
        folder / kind,
        published_sha256(pointer, f"{base}/raw/main/{kind}"),
    )
    for name in ("config.json", *TOKENIZER):
        content = read_small(f"{base}/raw/main/{name}")
        if content is not None and content.startswith(b"version https://git-lfs"):
            digests[name] = download(
                f"{base}/resolve/main/{name}", folder / name, published_sha256(content, name)
            )
        elif content is not None:
            with atomic_writer(folder / name, "wb") as file:
                file.write(content)
    return digests


def published_sha256(pointer, where):
    """Digest in the hub's pointer to a large file."""
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
    """Copy a local directory, or the plain files of a tar, that hold one encoder."""
    names = {"config.json", *WEIGHTS, *TOKENIZER}
    try:
        if archive.is_dir():
            members = [path for path in archive.iterdir() if path.name in names]
            for path in members:
                with open(path, "rb") as source, atomic_writer(folder / path.name, "wb") as target:
                    shutil.copyfileobj(source, target)
            return
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                name = pathlib.PurePosixPath(member.name).name
                if (
                    member.isfile() and name in names
                ):  # only the last part of the path counts, so nothing leaves the folder
                    if (folder / name).exists():
                        raise DataError(archive, f"holds {name} twice", "one encoder")
                    with tar.extractfile(member) as source, atomic_writer(
                        folder / name, "wb"
                    ) as target:
                        shutil.copyfileobj(source, target)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(archive, f"cannot be read ({error})", "a directory or a tar") from None


def check(folder, where):
    """Refuse a folder that is no encoder's."""
    have = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    for choices, what in (
        (("config.json",), "config.json"),
        (WEIGHTS, "weights"),
        (("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model"), "a tokenizer"),
    ):
        if not have.intersection(choices):
            raise DataError(where, f"holds no {what.replace('a ', '')}", what)


def fetch(name, out, archive, site):
    """Bring one encoder; returns where it lies and its digests."""
    place, _ = ENCODERS[name]
    if place.endswith(".tar") and (archive is None or archive.is_file()):
        target = out / f"{name}.tar"
        if archive is None:
            return target, {target.name: download(f"{site or TANDA}/{place}", target)}
        with open(archive, "rb") as source, atomic_writer(target, "wb") as file:
            shutil.copyfileobj(source, file)
        return target, {target.name: file_sha256(target)}
    target, partial = out / name, out / f".{name}.partial"
    if archive is None:
        digests = fetch_hub(place, partial, site or HUB)
    else:
        with storage_errors(partial):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        take_archive(archive, partial)
        digests = {
            path.name: file_sha256(path) for path in partial.iterdir() if path.name in WEIGHTS
        }
    check(partial, archive or place)
    with storage_errors(target):
        (partial / "fetched.json").write_text(
            json.dumps({"from": str(archive or place), "sha256": digests}, indent=2) + "\n"
        )
        partial.rename(target)
    return target, digests


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="encoders, see --list")
    parser.add_argument(
        "--list", action="store_true", help="print the names and where they come from"
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
        "--mirror", metavar="URL", help="another server with the layout of the official one"
    )
    options = parser.parse_args(arguments)
    if options.list:
        for name, (place, use) in ENCODERS.items():
            print(f"{name:26} {place:50} {use}")
        return 0
    try:
        unknown = [name for name in options.names if name not in ENCODERS]
        if unknown or not options.names:
            raise DataError(
                "NAME", unknown[0] if unknown else "none given", "one of " + ", ".join(ENCODERS)
            )
        if options.archive and len(options.names) > 1:
            raise DataError("--archive", f"{len(options.names)} names", "one name for one archive")
        for name in options.names:
            if (options.out / name).exists() or (options.out / f"{name}.tar").exists():
                print(f"{options.out / name} is there already")
                continue
            target, digests = fetch(name, options.out, options.archive, options.mirror)
            print(
                f"{target}: "
                + ", ".join(f"{file} SHA-256 {digest}" for file, digest in digests.items())
            )
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
