"""Tensors of a checkpoint by the parameters that they fill."""

from __future__ import annotations

import itertools
import math
import pathlib
from typing import Dict, Iterator, List, Sequence, Set, Tuple

import numpy as np
from mxnet.gluon import Block, Parameter

from wqa.errors import EncoderError
from wqa.pretrained.names import Names
from wqa.pretrained.weights import Weights

#: Tensors that a message names.
NAMED = 20


class TensorMap:
    """Tensors of files, checked against the parameters of a block and written into them."""

    #: What the files hold, and what to do if sizes do not fit or tensors are missing; for messages.
    content = "encoder"
    remedy, fetch = "check config.json against the weights", "fetch the file again"

    def __init__(
        self, where: pathlib.Path, weights: Weights, plain: Dict[str, str], names: Names
    ) -> None:
        self.where, self.weights = where, weights
        self.used: Set[str] = set()
        self._plain, self._names = plain, names

    def check(self, block: Block) -> None:
        """Check all tensors of a block before memory is taken for its parameters."""
        missing = self.missing()
        if missing:
            raise EncoderError(
                self.where,
                f"missing tensors: {list_names(missing)}",
                f"all tensors of the {self.content}",
                self.fetch,
            )
        parameters = block._collect_params_with_prefix()
        unknown = [name for name in self._names if name not in parameters]
        if unknown:
            raise EncoderError(
                self.where,
                f"parameter {unknown[0]}, which the network lacks",
                f"a network with all layers of the {self.content}",
                "train the network: its task knows how it starts",
            )
        numbers = 0
        for name, tensors in self._names.items():
            for plain in tensors:
                self._check_shape(parameters[name], plain, len(tensors), self._optional_rows(name))
                numbers += math.prod(self._shape(plain))
        if numbers > self.weights.size:
            raise EncoderError(
                self.weights.path,
                f"{numbers} numbers in {self.weights.size} bytes",
                "files whose tensors have numbers of their own",
                self.fetch,
            )

    def fill(self, block: Block) -> None:
        """Write the tensors into a block, one at a time."""
        self.check(block)
        parameters = block._collect_params_with_prefix()
        for name, tensors in self._names.items():
            self._write(parameters[name], tensors, self._optional_rows(name))

    def missing(self) -> List[str]:
        """Tensors that the parameters need and the files lack, by their plain names."""
        needed = itertools.chain.from_iterable(self._names.values())
        return [name for name in needed if name not in self._plain]

    def unused(self) -> List[str]:
        """Tensors that no parameter has taken, by the files' names."""
        return sorted(set(self.weights.shapes) - self.used)

    def _optional_rows(self, name: str) -> int:
        """Number of rows of a parameter that a tensor may lack."""
        return 0

    def _shape(self, plain: str) -> Tuple[int, ...]:
        return self.weights.shapes[self._plain[plain]]

    def _parts(self, plain: str) -> Iterator[Tuple[int, np.ndarray]]:
        self.used.add(self._plain[plain])
        return self.weights.parts(self._plain[plain])

    def _write(self, parameter: Parameter, tensors: List[str], optional: int = 0) -> None:
        """Fill a parameter's rows from tensors in turn; the first ``optional`` rows may be
        absent."""
        start = 0
        for plain in tensors:
            start += self._check_shape(parameter, plain, len(tensors), optional)
            for row, rows in self._parts(plain):
                set_rows(parameter, start + row, rows)
            start += self._shape(plain)[0]

    def _check_shape(self, parameter: Parameter, plain: str, count: int, optional: int = 0) -> int:
        """Check a tensor that fills one of ``count`` equal parts of a parameter; return the number
        of rows that it lacks."""
        needed = (parameter.shape[0] // count, *parameter.shape[1:])
        shape = self._shape(plain)
        if optional and shape == (needed[0] - optional, *needed[1:]):
            return optional
        if shape != needed:
            self._refuse_shape(plain, needed)
        return 0

    def _refuse_shape(self, plain: str, needed: Tuple[int, ...]) -> None:
        raise EncoderError(
            f"{self.weights.path}, tensor {self._plain[plain]}",
            f"shape {self._shape(plain)}",
            str(needed),
            self.remedy,
        )


def list_names(names: Sequence[str]) -> str:
    """List names in a message."""
    listed = ", ".join(names[:NAMED])
    if len(names) > NAMED:
        listed += f" and {len(names) - NAMED} more"
    return listed


def set_rows(parameter: Parameter, start: int, rows: np.ndarray) -> None:
    """Write rows into a parameter on all its devices."""
    for array in parameter.list_data():
        array[start : start + len(rows)] = rows
