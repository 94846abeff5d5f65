"""Weights in an encoder's directory, whatever the format of the files."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Callable, Dict, List, Tuple, Union

import numpy as np
from safetensors import safe_open

from wqa.config import parse_json
from wqa.errors import EncoderError, shorten
from wqa.io.parameter_files import read_array, read_layout, widen
from wqa.pretrained.configs import read_object
from wqa.pretrained.pickled import PickledTensors, reading

#: Names of the weights of each format: a single file, or the index of its shards.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class SafeTensors:
    """Tensors of a safetensors file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with reading(path), safe_open(str(path), framework="numpy") as file:
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def read(self, name: str) -> np.ndarray:
        """Read a tensor."""
        # Closing the file releases its pages.
        with reading(self.path), safe_open(str(self.path), framework="numpy") as file:
            if file.get_slice(name).get_dtype() == "BF16":
                return self._read_bfloat16(name)
            return file.get_tensor(name)

    def _read_bfloat16(self, name: str) -> np.ndarray:
        """Read a tensor without the library, which supports no types that NumPy lacks."""
        with open(self.path, "rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(header_size))
        offset = 8 + header_size + header[name]["data_offsets"][0]
        shape = self.shapes[name]
        return widen(np.fromfile(self.path, "<u2", math.prod(shape), offset=offset)).reshape(shape)


class ParameterFile:
    """Arrays of an MXNet ``.params`` file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with reading(path, "a file that save_parameters wrote"):
            self._layout = read_layout(path)
        self.shapes = {name: stored.shape for name, stored in self._layout.items()}

    def read(self, name: str) -> np.ndarray:
        """Read an array."""
        with reading(self.path):
            return read_array(self.path, self._layout[name])


#: A file of tensors: their ``shapes`` by name, and ``read``, which takes a name.
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

    def read(self, name: str) -> np.ndarray:
        """Read a tensor as float32."""
        file = self._files[name]
        values = file.read(name)
        if values.dtype.kind != "f":
            problem = f"tensor {name} is of type {values.dtype}"
            raise EncoderError(file.path, problem, "floating-point numbers")
        with np.errstate(over="ignore"):  # a float64 above float32's range becomes infinity
            values = values.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            problem = f"tensor {name} holds NaN or infinity"
            raise EncoderError(file.path, problem, "finite numbers", "fetch the file again")
        return values


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
    # Directories of the hub often have both forms of the same weights.
    paths = [path for path in known if path.exists()][:1] or sorted(directory.glob("*.params"))
    if len(paths) != 1:
        problem = f"holds {' and '.join(path.name for path in paths) or 'no weights'}"
        expected = f"one of {SAFETENSORS[0]}, {PICKLED[0]}, their shards, or a .params file"
        raise EncoderError(directory, problem, expected)
    return paths[0]


def _shards(path: pathlib.Path) -> List[pathlib.Path]:
    if path.suffix != ".json":
        return [path]
    mapped = read_object(path).get("weight_map")
    if not isinstance(mapped, dict):
        problem = f"weight_map {shorten(mapped)}"
        raise EncoderError(path, problem, "a shard by tensor", "fetch the file again")
    ending = path.suffixes[-3]  # before that of an index, .index.json
    names = sorted(set(map(str, mapped.values())))
    for name in names:
        is_beside = pathlib.PurePath(name).name == name and name.endswith(ending)
        if not is_beside or not os.path.isfile(path.parent / name):
            expected = f"{ending} files beside it, all {len(names)} that it names"
            raise EncoderError(path, f"names a shard {shorten(name)}", expected, "fetch the file")
    return [path.parent / name for name in names]
