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

import contextlib
import pathlib
import shutil
import sys
from typing import NamedTuple

from corpus import make_named_main
from releases import check_digest, damage_errors, download, open_member

from wqa.data.vector_files import tell_format
from wqa.errors import printable
from wqa.io.files import atomic_writer, lock_output


class Source(NamedTuple):
    """Vectors that are published.

    ``member`` is the table inside a zip; empty where the file is the table. ``sha256`` is that of
    the file, empty where none is known.
    """

    url: str
    use: str
    member: str = ""
    sha256: str = ""


NUMBERBATCH = (
    "https://conceptnet.s3.amazonaws.com/downloads/20{}/numberbatch/numberbatch-en-{}.txt.gz"
)
GLOVE = "https://nlp.stanford.edu/data/glove.{}.zip"
#: Published vectors by name. The digests of Stanford's zips are those that several projects, which
#: fetch them independently of one another, check.
SOURCES = {
    "numberbatch": Source(
        NUMBERBATCH.format(19, "19.08"), "Numberbatch 19.08, English: 516,782 words"
    ),
    "numberbatch-17.06": Source(
        NUMBERBATCH.format(17, "17.06"), "Numberbatch 17.06, of the paper's reference"
    ),
    "glove-6b": Source(
        GLOVE.format("6B"),
        "GloVe of Wikipedia and Gigaword, lower-cased",
        "glove.6B.300d.txt",
        "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    "glove-840b": Source(
        GLOVE.format("840B.300d"),
        "GloVe of Common Crawl, cased",
        "glove.840B.300d.txt",
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
        digest, target = check_digest(file, source.sha256, file, "fetch it again"), file
        if source.member:
            target = out / source.member
            with contextlib.ExitStack() as stack:
                table, where = stack.enter_context(open_member(file, source.member))
                stack.enter_context(damage_errors(where))
                shutil.copyfileobj(table, stack.enter_context(atomic_writer(target, "wb")))
        tell_format(target)  # refuses what cannot be unpacked
    print(printable(f"{target}: SHA-256 of {file} {digest}"))


USES = {}
for _name, _source in SOURCES.items():
    _checked = "checked by SHA-256" if _source.sha256 else "no published digest"
    USES[_name] = f"{_source.url}: {_source.use}; {_checked}"
main = make_named_main(__doc__, USES, "vectors", fetch)

if __name__ == "__main__":
    sys.exit(main())
