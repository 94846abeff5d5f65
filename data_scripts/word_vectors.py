#!/usr/bin/env python3
"""Download of published word vectors by name, from their official sites.

    python data_scripts/word_vectors.py --list
    python data_scripts/word_vectors.py numberbatch --out vectors
    python data_scripts/word_vectors.py glove-6b --out vectors --archive glove.6B.zip

`wqa embed-words --vectors` reads the files. Stanford's zips of GloVe are checked by their SHA-256,
and the table of 300 elements is unpacked from them. Numberbatch's authors publish no digest: the
script prints the SHA-256 of what it has fetched. --archive takes a local copy of the official file
instead of a download.
"""

import pathlib
import shutil
import sys
from typing import NamedTuple

from corpus import make_named_main
from releases import damage_errors, download, open_member

from wqa.data.vector_files import tell_format
from wqa.errors import DataError, printable
from wqa.io.files import atomic_writer, lock_output, sha256


class Source(NamedTuple):
    """Vectors that are published.

    ``member`` is the table inside a zip; empty where the file is the table. ``sha256`` is that of
    the file, empty where none is known.
    """

    url: str
    use: str
    member: str = ""
    sha256: str = ""


def numberbatch(version, use):
    """Return a version of Numberbatch."""
    file = f"20{version[:2]}/numberbatch/numberbatch-en-{version}.txt.gz"
    return Source(f"https://conceptnet.s3.amazonaws.com/downloads/{file}", use)


def glove(file, use, sha256):
    """Return a zip of GloVe, of which the table of 300 elements counts."""
    member = f"{file.replace('.300d', '')}.300d.txt"
    return Source(f"https://nlp.stanford.edu/data/{file}.zip", use, member, sha256)


#: Published vectors by name. The digests of Stanford's zips are those that several projects, which
#: fetch them independently of one another, check.
SOURCES = {
    "numberbatch": numberbatch("19.08", "Numberbatch 19.08, English: 516,782 words"),
    "numberbatch-17.06": numberbatch("17.06", "Numberbatch 17.06, of the paper's reference"),
    "glove-6b": glove(
        "glove.6B",
        "GloVe of Wikipedia and Gigaword, lower-cased",
        "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    "glove-840b": glove(
        "glove.840B.300d",
        "GloVe of Common Crawl, cased",
        "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
    ),
}


def fetch(name, out, archive):
    """Download vectors, or take the local copy; unpack their table, and print the SHA-256."""
    source = SOURCES[name]
    file = archive or out / pathlib.PurePosixPath(source.url).name
    with lock_output(out):
        if archive is None and not file.exists():
            download(source.url, file, source.sha256)
        digest = sha256(file)
        if source.sha256 not in ("", digest):
            raise DataError(file, f"SHA-256 {digest}", source.sha256, "fetch it again")
        target = file
        if source.member:
            target = out / source.member
            with open_member(file, source.member) as (table, where), damage_errors(
                where
            ), atomic_writer(target, "wb") as unpacked:
                shutil.copyfileobj(table, unpacked)
        tell_format(target)  # refuses what cannot be unpacked
    print(printable(f"{target}: SHA-256 of {file} {digest}"))


USES = {}
for _name, _source in SOURCES.items():
    _checked = "checked by SHA-256" if _source.sha256 else "no published digest"
    USES[_name] = f"{_source.url}: {_source.use}; {_checked}"
main = make_named_main(__doc__, USES, "vectors", fetch)

if __name__ == "__main__":
    sys.exit(main())
