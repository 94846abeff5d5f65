"""New directories, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from typing import Dict, Iterator

import mxnet as mx
import numpy as np
from mxnet.gluon import Block
from safetensors import SafetensorError
from safetensors.numpy import save_file

from wqa.errors import OptionError, StorageError
from wqa.io.encoder_directories import PathLike
from wqa.io.files import remedy, sync_directory
from wqa.io.locks import lock_output
from wqa.io.parameter_files import read_layout
from wqa.io.temporary import remove, remove_abandoned, temporary_path


@contextlib.contextmanager
def new_directory(path: PathLike) -> Iterator[pathlib.Path]:
    """Write a directory under a temporary name and rename it when the context ends."""
    target = pathlib.Path(path)
    if not target.name:  # "." has no name that a temporary one could be made of
        target = target.absolute()
    with lock_output(target):
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            raise OptionError(
                target, "exists already", "a new directory", "choose another name or delete it"
            )
        temporary = temporary_path(target)
        try:
            remove_abandoned(target)
            remove(temporary)  # of an earlier process of this number
            temporary.mkdir(parents=True)
            yield temporary
            for written in temporary.iterdir():
                _flush(written)
            sync_directory(temporary)
            os.replace(temporary, target)
            sync_directory(target.parent)
        except OSError as error:
            raise StorageError(
                target,
                f"could not be written ({error.strerror or error})",
                mend=remedy(error),
            ) from error
        finally:
            remove(temporary)


def _flush(path: pathlib.Path) -> None:
    """Write a file's content to the disk, so that a directory's rename is not there before it."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def write_tensors(
    tensors: Dict[str, np.ndarray], path: pathlib.Path, metadata: Dict[str, str]
) -> None:
    """Write a safetensors file with the permissions that the umask gives; the library gives
    0600.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(tensors, str(path), metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(permissions)


def write_parameters(block: Block, path: pathlib.Path) -> None:
    """Write a block's parameters and check the file, as MXNet does not check its last write."""
    try:
        block.save_parameters(str(path))
        read_layout(path)
    except (mx.base.MXNetError, ValueError) as error:
        raise OSError(str(error).strip().splitlines()[-1]) from None
