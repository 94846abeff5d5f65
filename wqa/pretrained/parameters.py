"""Parameters of a block, from and to files."""

from __future__ import annotations

import pathlib
import stat
from typing import Dict, List, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet.gluon import Block
from safetensors import SafetensorError
from safetensors.numpy import save_file

from wqa.errors import RunDirectoryError, shorten
from wqa.io.files import PathLike
from wqa.io.parameter_files import StoredArray, is_finite, read_array, read_layout

_MEND = "restore the file from its run"


def stored_layout(path: PathLike) -> Dict[str, StoredArray]:
    """Read the layout of a run's ``model.params``, as `wqa.io.parameter_files.read_layout`."""
    try:
        return read_layout(path)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def stored_parameter(path: PathLike, name: str, stored: StoredArray) -> np.ndarray:
    """Read a parameter of a run."""
    try:
        values = read_array(path, stored)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    if not is_finite(values):
        raise RunDirectoryError(
            path, f"parameter {name} holds NaN or infinity", "finite numbers", _MEND
        )
    return values


def load_parameters(
    block: Block, path: PathLike, ctx: Union[mx.Context, List[mx.Context], None] = None
) -> None:
    """Load the parameters of a block, which are compared with the file before they are read."""
    layout = stored_layout(path)
    parameters = block._collect_params_with_prefix()
    _check_layout(path, layout, parameters)
    for name, parameter in parameters.items():
        values = stored_parameter(path, name, layout[name])
        parameter._load_init(mx.nd.from_numpy(values), ctx)


def _check_layout(path: PathLike, layout: Dict[str, StoredArray], parameters: dict) -> None:
    for name, parameter in parameters.items():
        if name not in layout:
            raise _misfit(path, f"parameter {name} is missing")
        stored = layout[name]
        if not _has_shape(parameter, stored.shape):
            raise _misfit(path, f"parameter {name} of shape {stored.shape}", parameter.shape)
        if stored.dtype != np.dtype(parameter.dtype):
            raise _misfit(path, f"parameter {name} of type {stored.dtype}", parameter.dtype)
    unknown = [name for name in layout if name not in parameters]
    if unknown:
        raise _misfit(path, f"unknown parameter {shorten(unknown[0])}")


def _has_shape(parameter: mx.gluon.Parameter, shape: Tuple[int, ...]) -> bool:
    expected = parameter.shape or ()
    # Gluon writes 0 or -1 for a size that the first input determines.
    sizes = [size if size > 0 else actual for size, actual in zip(expected, shape)]
    return len(expected) == len(shape) and tuple(sizes) == shape


def _damaged(path: PathLike, error: Exception) -> RunDirectoryError:
    reason = error.strerror if isinstance(error, OSError) else error
    return RunDirectoryError(path, f"does not load ({reason})", "the parameters of the run", _MEND)


def _misfit(path: PathLike, problem: str, expected: object = "") -> RunDirectoryError:
    wanted = f"{expected}, by config.json" if expected else "parameters that fit config.json"
    return RunDirectoryError(path, problem, wanted, _MEND)


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
