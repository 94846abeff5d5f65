#!/usr/bin/env python3
"""Download of published word vectors by name, from their official site.

    python data_scripts/word_vectors.py --list
    python data_scripts/word_vectors.py numberbatch --out vectors

`wqa embed-words --vectors` reads the files, as it reads GloVe's. Numberbatch's authors publish no
digest: the script prints the SHA-256 of what it has fetched. A local copy of the official file in
the folder of --out is taken instead of a download.
"""

import pathlib
import sys

from corpus import make_named_main
from releases import download

from wqa.data.vector_files import tell_format
from wqa.errors import printable
from wqa.io.files import lock_output, sha256

URL = "https://conceptnet.s3.amazonaws.com/downloads/20{}/numberbatch/numberbatch-en-{}.txt.gz"
#: Published vectors by name: the address, and what they are.
VECTORS = {
    "numberbatch": (URL.format(19, "19.08"), "Numberbatch 19.08, English: 516,782 words"),
    "numberbatch-17.06": (URL.format(17, "17.06"), "Numberbatch 17.06, of the paper's reference"),
}


def fetch(name, out):
    """Download vectors, unless they are there, and print the SHA-256."""
    url, _ = VECTORS[name]
    target = out / pathlib.PurePosixPath(url).name
    with lock_output(out):
        if not target.exists():
            download(url, target, hint=f"copy it to {target}")
        tell_format(target)  # refuses what cannot be unpacked
    print(printable(f"{target}: SHA-256 {sha256(target)}"))


SOURCES = {name: f"{url}: {use}" for name, (url, use) in VECTORS.items()}
main = make_named_main(__doc__, SOURCES, "vectors", fetch)

if __name__ == "__main__":
    sys.exit(main())
