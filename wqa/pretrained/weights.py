"""Weights in an encoder's directory, whatever the format of the files."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

import numpy as np
from safetensors import SafetensorError, safe_open

from wqa.config import parse_json
from wqa.errors import EncoderError, shorten
from wqa.io.parameter_files import read_array, read_layout, widen
from wqa.pretrained.configs import read_object
from wqa.pretrained.pickled import PickledTensors

#: Names of the weights of each format: a single file, or the index of its shards.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")

#: End of an index's name.
INDEX = ".index.json"

#: Numbers to read at a time.
PART = 1 << 19


@contextlib.contextmanager
def _reading(path: pathlib.Path, expected: str = "") -> Iterator[None]:
    """Convert what a damaged file raises into an `EncoderError`."""
    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"cannot be read ({error})"
        raise EncoderError(path, problem, expected, "fetch the file again") from None


class SafeTensors:
    """Tensors of a safetensors file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with self._open() as file:
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a tensor."""
        # Closing the file releases the pages of the rows.
        with _reading(self.path), self._open() as file:
            tensor = file.get_slice(name)
            if tensor.get_dtype() == "BF16":
                return self._read_bfloat16(name, start, stop)
            return tensor[start:stop]

    def _read_bfloat16(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows without the library, which supports no types that NumPy lacks."""
        shape = (stop - start, *self.shapes[name][1:])
        with open(self.path, "rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(header_size))
        offset = 8 + header_size + header[name]["data_offsets"][0]
        offset += 2 * start * math.prod(shape[1:])
        halves = np.fromfile(self.path, "<u2", math.prod(shape), offset=offset)
        return widen(halves).reshape(shape)

    def _open(self) -> Any:
        with _reading(self.path):
            return safe_open(str(self.path), framework="numpy")


class ParameterFile:
    """Arrays of an MXNet ``.params`` file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with _reading(path, "a file that save_parameters wrote"):
            self._layout = read_layout(path)
        self.shapes = {name: stored.shape for name, stored in self._layout.items()}

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of an array."""
        with _reading(self.path):
            return read_array(self.path, self._layout[name], start, stop)


#: A file of tensors: their ``shapes`` by name, and ``read``, which takes a name and rows.
TensorFile = Union[SafeTensors, ParameterFile, PickledTensors]


class Weights:
    """Tensors of a directory, from one file or several shards, or of a file by itself."""

    def __init__(self, where: pathlib.Path) -> None:
        self.path = where if where.is_file() else weights_path(where)
        self._files: Dict[str, TensorFile] = {}
        self.shapes: Dict[str, Tuple[int, ...]] = {}
        for path in _shards(self.path):
            file = FORMATS[path.suffix](path)
            self._files.update(dict.fromkeys(file.shapes, file))
            self.shapes.update(file.shapes)

    def parts(self, name: str) -> Iterator[Tuple[int, np.ndarray]]:
        """Read a tensor a few rows at a time, so that no second copy of it is in memory."""
        count, *row_shape = self.shapes[name]
        step = max(1, PART // max(1, math.prod(row_shape)))
        for start in range(0, count, step):
            rows = self._files[name].read(name, start, min(count, start + step))
            if rows.dtype.kind != "f":
                raise EncoderError(
                    self._files[name].path,
                    f"tensor {name} is of type {rows.dtype}",
                    "floating-point numbers",
                )
            with np.errstate(over="ignore"):  # a float64 above float32's range becomes infinity
                rows = rows.astype(np.float32, copy=False)
            if not np.isfinite(rows).all():
                raise EncoderError(
                    self._files[name].path,
                    f"tensor {name} holds NaN or infinity",
                    "finite numbers",
                    "fetch the file again",
                )
            yield start, rows


#: Readers by the ending of the file's name.
FORMATS: Dict[str, Callable[[pathlib.Path], TensorFile]] = {
    ".safetensors": SafeTensors,
    ".bin": PickledTensors,
    ".pt": PickledTensors,
    ".params": ParameterFile,
}


def weights_path(directory: pathlib.Path) -> pathlib.Path:
    """Find the weights of a directory."""
    known = [directory / name for name in (*SAFETENSORS, *PICKLED)]
    paths = [path for path in known if path.exists()] + sorted(directory.glob("*.params"))
    if not paths:
        raise EncoderError(
            directory,
            "holds no weights",
            f"{SAFETENSORS[0]}, {PICKLED[0]} or their shards, or a .params file",
            f"fetch {SAFETENSORS[0]}",
        )
    if len(paths) > 1:
        raise EncoderError(
            directory,
            "holds " + " and ".join(path.name for path in paths),
            "weights of one kind",
            f"keep {paths[0].name} and move the others away",
        )
    if not paths[0].is_file():
        raise EncoderError(paths[0], "is no file", "a file of weights")
    return paths[0]


def _shards(path: pathlib.Path) -> List[pathlib.Path]:
    if path.suffix != ".json":
        return [path]
    mapped = read_object(path).get("weight_map")
    if not isinstance(mapped, dict):
        raise EncoderError(
            path, f"weight_map {shorten(mapped)}", "a shard by tensor", "fetch the file again"
        )
    ending = pathlib.Path(path.name[: -len(INDEX)]).suffix
    names = sorted(set(map(str, mapped.values())))
    for name in names:
        beside = pathlib.PurePath(name).name == name and name.endswith(ending)
        if not beside or not os.path.isfile(path.parent / name):
            expected = f"{ending} files beside it, all {len(names)} that it names"
            raise EncoderError(path, f"names a shard {shorten(name)}", expected, "fetch the file")
    return [path.parent / name for name in names]
