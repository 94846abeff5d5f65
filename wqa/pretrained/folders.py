"""Directories that are either whole or not there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from typing import Iterator

import mxnet as mx
from mxnet.gluon import Block

from wqa.errors import OptionError, StorageError
from wqa.pretrained.locate import PathLike


@contextlib.contextmanager
def new_directory(path: PathLike) -> Iterator[pathlib.Path]:
    """Make a directory that appears under its name only when everything in it is written.

    Parameters
    ----------
    path : str or path-like
        Must not exist, or be empty.

    Yields
    ------
    pathlib.Path
        Where to write for now.

    Raises
    ------
    OptionError
        If something stands there already.
    StorageError
        If a file cannot be written; nothing is left behind.
    """
    target = pathlib.Path(path)
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise OptionError(
            target, "exists already", "a new directory", "choose another name or delete it"
        )
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise StorageError(
            target,
            f"could not be written ({error.strerror or error})",
            mend="free space or choose another place, then run again",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_parameters(block: Block, path: pathlib.Path) -> None:
    """Write a block's parameters and read them again: MXNet does not check its last write.

    Parameters
    ----------
    block : mxnet.gluon.Block
    path : pathlib.Path

    Raises
    ------
    OSError
        If the file is not whole.
    """
    try:
        block.save_parameters(str(path))
        mx.nd.load(str(path))
    except mx.base.MXNetError as error:
        raise OSError(str(error).strip().splitlines()[-1]) from None
