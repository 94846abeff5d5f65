#!/usr/bin/env python3
"""Download of published word vectors by name, from their official sites.

    python data_scripts/word_vectors.py --list
    python data_scripts/word_vectors.py numberbatch --out vectors
    python data_scripts/word_vectors.py glove-6b --out vectors --archive glove.6B.zip

`wqa embed-words --vectors` reads the files. Stanford's zips of GloVe are checked by their SHA-256,
and the table of 300 elements is unpacked from them. Numberbatch's authors publish no digest: the
script prints the SHA-256 of what it has fetched, and a file beside it keeps it. --archive takes a
local copy instead of a download: the official file, or for GloVe the unpacked table.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import argparse
import json
import pathlib
import shutil
import struct
import sys
import zipfile
from typing import NamedTuple

from corpus import exit_status
from fetching import BLOCK, download

from wqa.data.vector_files import tell_format
from wqa.errors import DataError, printable, shorten
from wqa.io.archives import DAMAGE, require_space
from wqa.io.files import atomic_writer, sha256
from wqa.io.locks import lock_output

NUMBERBATCH = "https://conceptnet.s3.amazonaws.com/downloads"
GLOVE = "https://nlp.stanford.edu/data"


class Source(NamedTuple):
    """Vectors that are published.

    ``member`` is the table inside a zip; empty where the file is the table. ``sha256`` is that of
    the file, empty where none is known.
    """

    url: str
    member: str
    sha256: str
    use: str


#: Published vectors by name. The digests of Stanford's zips are those that several projects, which
#: fetch them independently of one another, check.
SOURCES = {
    "numberbatch": Source(
        f"{NUMBERBATCH}/2019/numberbatch/numberbatch-en-19.08.txt.gz",
        "",
        "",
        "Numberbatch 19.08, English: 516,782 words",
    ),
    "numberbatch-17.06": Source(
        f"{NUMBERBATCH}/2017/numberbatch/numberbatch-en-17.06.txt.gz",
        "",
        "",
        "Numberbatch 17.06, English, of the paper's reference",
    ),
    "glove-6b": Source(
        f"{GLOVE}/glove.6B.zip",
        "glove.6B.300d.txt",
        "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
        "GloVe of Wikipedia and Gigaword, lower-cased",
    ),
    "glove-42b": Source(
        f"{GLOVE}/glove.42B.300d.zip",
        "glove.42B.300d.txt",
        "03d5d7fa28e58762ace4b85fb71fe86a345ef0b5ff39f5390c14869da0fc1970",
        "GloVe of Common Crawl, lower-cased",
    ),
    "glove-840b": Source(
        f"{GLOVE}/glove.840B.300d.zip",
        "glove.840B.300d.txt",
        "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
        "GloVe of Common Crawl, cased",
    ),
}

#: Greatest size of a table in bytes, unpacked. GloVe's largest has 5.7 billion.
LARGEST_TABLE = 16 << 30
#: Raised while a damaged zip is read.
ZIP_DAMAGE = (*DAMAGE, zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, struct.error)


def fetch(source, out, archive, url):
    """Download or copy the file of a source, unpack its table, and return path and SHA-256."""
    name = pathlib.PurePosixPath(source.url).name
    file = archive
    if archive is None:
        file = out / name
        if not file.exists():
            download(url or source.url, file, source.sha256)
    if not file.is_file():
        raise DataError(file, "is no file", f"{name}, or the table in it", "check the path")
    digest = sha256(file)
    if source.member and zipfile.is_zipfile(file):
        if source.sha256 and digest != source.sha256:
            raise DataError(file, f"SHA-256 {digest}", source.sha256, "fetch it again")
        unpack(file, source.member, out / source.member)
        return out / source.member, digest
    target = out / (source.member or name)
    if archive is not None:
        copy(archive, target)
    tell_format(target)  # refuses what cannot be unpacked
    return target, digest


def unpack(archive, member_name, target):
    """Unpack a table from a zip; it appears when it is whole."""
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if member.filename == member_name]
            if len(members) != 1:
                raise DataError(archive, f"{len(members)} members {member_name}", "one")
            [member] = members
            where = f"{archive}, {shorten(member.filename)}"
            if member.flag_bits & 1:
                raise DataError(where, "is encrypted", "the official zip, which is not")
            if member.file_size > LARGEST_TABLE:
                found = f"unpacks to {member.file_size:,} bytes"
                raise DataError(where, found, f"at most {LARGEST_TABLE:,}")
            require_space(target, member.file_size)
            with packed.open(member) as table, atomic_writer(target, "wb") as file:
                while block := _read(table, where):
                    file.write(block)
    except ZIP_DAMAGE as error:
        raise _damaged(archive, error) from None


def _read(table, where):
    """Return a block of a member, whose damage is none of the disk that is written to."""
    try:
        return table.read(BLOCK)
    except ZIP_DAMAGE as error:
        raise _damaged(where, error) from None


def _damaged(where, error):
    return DataError(where, f"cannot be read ({error})", "the official zip", "fetch it again")


def copy(path, target):
    """Copy a file; the copy appears when it is whole."""
    if target.exists() and path.samefile(target):
        return
    require_space(target, path.stat().st_size)
    with open(path, "rb") as source, atomic_writer(target, "wb") as file:
        shutil.copyfileobj(source, file)


def parse_arguments(arguments):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="vectors, see --list")
    parser.add_argument(
        "--list", action="store_true", help="print the names, their sources and their uses"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("vectors"), help="folder (vectors)"
    )
    parser.add_argument("--archive", type=pathlib.Path, help="local copy of the file")
    parser.add_argument("--mirror", metavar="URL", help="another address of the file")
    return parser.parse_args(arguments)


def list_or_fetch(options):
    """Print the names of all vectors, or fetch those that are named."""
    if options.list:
        for name, source in SOURCES.items():
            checked = "checked by SHA-256" if source.sha256 else "no published digest"
            print(f"{name:18} {source.url}\n{'':18} {source.use}; {checked}")
        return
    if options.name not in SOURCES:
        raise DataError("NAME", options.name or "none given", "one of " + ", ".join(SOURCES))
    source = SOURCES[options.name]
    with lock_output(options.out):
        target, digest = fetch(source, options.out, options.archive, options.mirror)
        record = {"name": options.name, "from": source.url, "sha256": digest}
        if options.archive is not None:
            record["from"] = str(options.archive)
        with atomic_writer(options.out / f"{target.name}.fetched.json") as file:
            file.write(json.dumps(record, indent=2) + "\n")
    checked = "checked" if digest == source.sha256 else "not checked, as none is published"
    if source.sha256 and digest != source.sha256:
        checked = "not checked, as it is that of the table and not of the official zip"
    print(
        printable(f"{target}: SHA-256 of {options.archive or 'the download'} {digest}, {checked}")
    )


def main(arguments=None):
    """Run the command line."""
    options = parse_arguments(arguments)
    return exit_status(lambda: list_or_fetch(options))


if __name__ == "__main__":
    sys.exit(main())
