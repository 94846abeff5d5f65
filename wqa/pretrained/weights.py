"""Tensors of an encoder's directory, by name, one at a time, whatever file holds them."""
from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, Tuple

import mxnet as mx
import numpy as np
from safetensors import SafetensorError, safe_open

from wqa.errors import EncoderError, shorten
from wqa.pretrained.pickled import PickledTensors

#: Whole or sharded weights of each kind.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class SafeTensors:
    """Tensors of one safetensors file.

    Parameters
    ----------
    path : pathlib.Path

    Raises
    ------
    EncoderError
        If the file is cut off or holds types that NumPy lacks.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with self._opened() as file:
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def read(self, name: str) -> np.ndarray:
        """Read one tensor.

        Parameters
        ----------
        name : str

        Returns
        -------
        numpy.ndarray
        """
        # Opened anew each time, so that the pages of what was read before do not stay in memory.
        with self._opened() as file:
            kind = file.get_slice(name).get_dtype()
            if kind == "BF16":
                return self._read_bfloat16(name)
            if kind.startswith("F8"):
                raise EncoderError(self.path, f"tensor {name} is of type {kind}", "float32, float16 or bfloat16")
            return file.get_tensor(name)

    def _read_bfloat16(self, name: str) -> np.ndarray:
        """The library leaves out the type that NumPy lacks; the file's header says where its numbers are."""
        with open(self.path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            start, end = json.loads(file.read(size))[name]["data_offsets"]
        halves = np.fromfile(self.path, "<u2", (end - start) // 2, offset=8 + size + start)
        return (halves.astype("<u4") << 16).view("<f4").reshape(self.shapes[name])

    def _opened(self) -> Any:
        try:
            return safe_open(str(self.path), framework="numpy")
        except (SafetensorError, OSError) as error:
            raise EncoderError(self.path, f"cannot be read ({error})", mend="fetch the file again") from None


class ParameterFile:
    """Arrays of an MXNet ``.params`` file.

    Parameters
    ----------
    path : pathlib.Path

    Raises
    ------
    EncoderError
        If the file is cut off.
    """

    def __init__(self, path: pathlib.Path) -> None:
        try:
            arrays = mx.nd.load(str(path))
        except (mx.base.MXNetError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise EncoderError(path, f"cannot be read ({reason})", mend="fetch the file again") from None
        if not isinstance(arrays, dict):
            raise EncoderError(path, "holds arrays without names", "a file that save_parameters wrote")
        self._arrays = arrays
        self.shapes = {name: array.shape for name, array in arrays.items()}

    def read(self, name: str) -> np.ndarray:
        """Take one array out, so that its memory can go.

        Parameters
        ----------
        name : str

        Returns
        -------
        numpy.ndarray
        """
        return self._arrays.pop(name).asnumpy()


class Weights:
    """Tensors of a directory.

    Parameters
    ----------
    directory : pathlib.Path
        With weights of exactly one kind.

    Attributes
    ----------
    shapes : dict of str to tuple of int
        By the names that the files use.

    Raises
    ------
    EncoderError
        If there are no weights, weights of two kinds, or a file that cannot be read.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = weights_path(directory)
        self._files: List[Any] = [_open(path) for path in _shards(self.path)]
        self._holder = {name: file for file in self._files for name in file.shapes}
        self.shapes: Dict[str, Tuple[int, ...]] = {name: file.shapes[name] for name, file in self._holder.items()}

    def read(self, name: str) -> np.ndarray:
        """Read one tensor.

        Parameters
        ----------
        name : str

        Returns
        -------
        numpy.ndarray
            float32.
        """
        return self._holder[name].read(name).astype(np.float32, copy=False)


def weights_path(directory: pathlib.Path) -> pathlib.Path:
    """Find the one file that holds a directory's weights, or the index of its shards.

    Parameters
    ----------
    directory : pathlib.Path

    Returns
    -------
    pathlib.Path

    Raises
    ------
    EncoderError
        If there is none, or more than one.
    """
    found = [directory / name for name in (*SAFETENSORS, *PICKLED) if (directory / name).exists()]
    found += sorted(directory.glob("*.params"))
    if not found:
        raise EncoderError(directory, "holds no weights", f"{SAFETENSORS[0]}, {PICKLED[0]} or their shards, or a .params file",
                           f"fetch {SAFETENSORS[0]}")
    if len(found) > 1:
        raise EncoderError(directory, "holds " + " and ".join(path.name for path in found), "weights of one kind",
                           f"keep {found[0].name} and move the others away")
    return found[0]


def _shards(path: pathlib.Path) -> List[pathlib.Path]:
    if path.suffix != ".json":
        return [path]
    try:
        names = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EncoderError(path, f"cannot be read ({error!r})", "an index of sharded weights", "fetch the file again") from None
    for name in names:
        if pathlib.PurePath(name).name != name:
            raise EncoderError(path, f"names a shard {shorten(name)}", "files beside it")
        if not (path.parent / name).exists():
            raise EncoderError(path.parent / name, "the shard is missing", f"all {len(names)} that {path.name} names",
                               "fetch the file")
    return [path.parent / name for name in names]


def _open(path: pathlib.Path) -> Any:
    kinds = {".safetensors": SafeTensors, ".bin": PickledTensors, ".params": ParameterFile}
    return kinds[path.suffix](path)
