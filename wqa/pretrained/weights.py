"""Tensors of an encoder's directory, by name, one at a time, whatever file holds them."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import mxnet as mx
import numpy as np
from safetensors import SafetensorError, safe_open

from wqa.errors import EncoderError, shorten
from wqa.pretrained.pickled import PickledTensors

#: Whole or sharded weights of each kind.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")

#: Numbers that are read at a time.
PART = 1 << 19


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

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a tensor.

        Parameters
        ----------
        name : str
        start, stop : int
            Rows of the first axis.

        Returns
        -------
        numpy.ndarray
        """
        # Opened anew each time, so that the pages of what was read before do not stay in memory.
        with self._opened() as file:
            tensor = file.get_slice(name)
            kind = tensor.get_dtype()
            if kind == "BF16":
                return self._read_bfloat16(name, start, stop)
            if kind.startswith("F8"):
                raise EncoderError(
                    self.path, f"tensor {name} is of type {kind}", "float32, float16 or bfloat16"
                )
            return tensor[start:stop]

    def _read_bfloat16(self, name: str, start: int, stop: int) -> np.ndarray:
        """The library leaves out the type that NumPy lacks; the file's header says where its
        numbers are."""
        shape = (stop - start, *self.shapes[name][1:])
        with open(self.path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            place = (
                8
                + size
                + json.loads(file.read(size))[name]["data_offsets"][0]
                + 2 * start * math.prod(shape[1:])
            )
        halves = np.fromfile(self.path, "<u2", math.prod(shape), offset=place)
        return (halves.astype("<u4") << 16).view("<f4").reshape(shape)

    def _opened(self) -> Any:
        try:
            return safe_open(str(self.path), framework="numpy")
        except (SafetensorError, OSError) as error:
            raise EncoderError(
                self.path, f"cannot be read ({error})", mend="fetch the file again"
            ) from None


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
            raise EncoderError(
                path, f"cannot be read ({reason})", mend="fetch the file again"
            ) from None
        if not isinstance(arrays, dict):
            raise EncoderError(
                path, "holds arrays without names", "a file that save_parameters wrote"
            )
        self._arrays = arrays
        self.shapes = {name: array.shape for name, array in arrays.items()}

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of an array; with the last ones its memory goes.

        Parameters
        ----------
        name : str
        start, stop : int
            Rows of the first axis.

        Returns
        -------
        numpy.ndarray
        """
        rows = self._arrays[name][start:stop].asnumpy()
        if stop == self.shapes[name][0]:
            del self._arrays[name]
        return rows


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
        self.shapes: Dict[str, Tuple[int, ...]] = {
            name: file.shapes[name] for name, file in self._holder.items()
        }

    def parts(self, name: str) -> Iterator[Tuple[int, np.ndarray]]:
        """Read a tensor a few rows at a time, so that no second copy of it is ever in memory.

        Parameters
        ----------
        name : str

        Yields
        ------
        int
            First row.
        numpy.ndarray
            Rows, float32.
        """
        rows, *others = self.shapes[name]
        step = max(1, PART // max(1, math.prod(others)))
        for start in range(0, rows, step):
            yield (
                start,
                self._holder[name]
                .read(name, start, min(rows, start + step))
                .astype(np.float32, copy=False),
            )


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
        raise EncoderError(
            directory,
            "holds no weights",
            f"{SAFETENSORS[0]}, {PICKLED[0]} or their shards, or a .params file",
            f"fetch {SAFETENSORS[0]}",
        )
    if len(found) > 1:
        raise EncoderError(
            directory,
            "holds " + " and ".join(path.name for path in found),
            "weights of one kind",
            f"keep {found[0].name} and move the others away",
        )
    return found[0]


def _shards(path: pathlib.Path) -> List[pathlib.Path]:
    if path.suffix != ".json":
        return [path]
    try:
        names = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EncoderError(
            path,
            f"cannot be read ({error!r})",
            "an index of sharded weights",
            "fetch the file again",
        ) from None
    for name in names:
        if pathlib.PurePath(name).name != name:
            raise EncoderError(path, f"names a shard {shorten(name)}", "files beside it")
        if not (path.parent / name).exists():
            raise EncoderError(
                path.parent / name,
                "the shard is missing",
                f"all {len(names)} that {path.name} names",
                "fetch the file",
            )
    return [path.parent / name for name in names]


def _open(path: pathlib.Path) -> Any:
    kinds = {".safetensors": SafeTensors, ".bin": PickledTensors, ".params": ParameterFile}
    return kinds[path.suffix](path)
