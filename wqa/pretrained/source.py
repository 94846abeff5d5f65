"""A pretrained encoder on disk: its shape, its tensors, and what they are called there."""

from __future__ import annotations

import pathlib
import re
from typing import Iterable, Iterator, List, Optional, Set, Tuple

import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import LAYOUTS, read_run_config
from wqa.errors import EncoderError
from wqa.models import Backbone
from wqa.models.heads import POOLED, FirstPositionHead
from wqa.pretrained.configs import from_huggingface, from_zoo, read_json
from wqa.pretrained.names import CLASSIFIERS, huggingface_names, zoo_names
from wqa.pretrained.weights import Weights

#: Missing tensors that a message names.
NAMED = 20

_PREFIX = re.compile("^(" + "|".join(LAYOUTS) + r")\.")


class Source:
    """An encoder's directory: Hugging Face's, the GluonNLP zoo's, one that `wqa convert` wrote, or
    a run.

    Parameters
    ----------
    directory : pathlib.Path

    Attributes
    ----------
    config : BackboneConfig
    weights : Weights
    exits : tuple of int
        The exit of a run's monolithic ranker; empty for the last layer.
    used : set of str
        Tensors, by the files' names, that went into a parameter so far.

    Raises
    ------
    EncoderError
        If the directory does not hold an encoder of a supported family.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        if not directory.is_dir():
            raise EncoderError(directory, "there is no such directory", "an encoder's directory")
        values = (
            read_json(directory / "config.json") if (directory / "config.json").exists() else None
        )
        if values is None and not list(directory.glob("*.params")):
            raise EncoderError(
                directory / "config.json", "the file is missing", "a Hugging Face directory"
            )
        self.weights = Weights(directory)
        self.used: Set[str] = set()
        self.exits: Tuple[int, ...] = ()
        shapes = self.weights.shapes
        if values is None:
            self.config, self._plain = (
                from_zoo(self.weights.path, shapes),
                {name: name for name in shapes},
            )
            self._names, self._classifier = zoo_names(self.config), {"dense": "pooler", "out": ""}
        elif "backbone" in values:
            run = read_run_config(directory / "config.json")
            self.config, self._plain = (
                run.backbone,
                {re.sub(r"^backbone\.", "", name): name for name in shapes},
            )
            self._names = {
                name: [name] for name in Backbone(self.config)._collect_params_with_prefix()
            }
            self._classifier = {"dense": "pooler", "out": ""}
            if run.system == "pairwise":
                self.exits = run.exits
                self._classifier = {
                    part: f"head_{run.exits[-1]}.{part}" for part in ("dense", "out")
                }
        else:
            self.config = from_huggingface(values, directory / "config.json", shapes)
            self._plain = {_plain_name(name): name for name in shapes}
            self._names, self._classifier = (
                huggingface_names(self.config),
                CLASSIFIERS[self.config.layout],
            )

    def fill(self, backbone: Backbone) -> None:
        """Write the tensors into a backbone of the same shape, one at a time.

        Parameters
        ----------
        backbone : Backbone
            Initialised.

        Raises
        ------
        EncoderError
            If a tensor is missing or of another shape; the message names it.
        """
        parameters = backbone._collect_params_with_prefix()
        missing = self.missing()
        if missing:
            named = ", ".join(missing[:NAMED]) + (
                f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            )
            raise EncoderError(
                self.directory,
                f"missing tensors: {named}",
                "all tensors of the encoder",
                "fetch the file again",
            )
        for ours, theirs in self._names.items():
            self._write(
                parameters[ours],
                theirs,
                self.config.first_position if ours == "embeddings.position_weight" else 0,
            )

    def missing(self) -> List[str]:
        """Tensors of the encoder that the files do not hold."""
        return [
            name for theirs in self._names.values() for name in theirs if name not in self._plain
        ]

    def unused(self) -> List[str]:
        """Tensors, by the files' names, that no parameter has taken."""
        return sorted(set(self.weights.shapes) - self.used)

    def has_pooler(self) -> bool:
        """Whether pretraining left a dense layer for the first position."""
        return self.config.layout in POOLED and f"{self._classifier['dense']}.weight" in self._plain

    def fill_pooler(self, dense: HybridBlock) -> None:
        """Write the pooler into a dense layer of the encoder's width.

        Parameters
        ----------
        dense : mxnet.gluon.HybridBlock

        Raises
        ------
        EncoderError
            If a tensor is missing or of another shape.
        """
        for kind, parameter in dense._collect_params_with_prefix().items():
            self._write(parameter, self._held([f"{self._classifier['dense']}.{kind}"]))

    def labels(self) -> int:
        """Outputs of the classifier, 0 where there is none."""
        shape = self._shape(f"{self._classifier['out']}.weight")
        return shape[0] if shape and self._shape(f"{self._classifier['dense']}.weight") else 0

    def fill_classifier(self, head: FirstPositionHead) -> None:
        """Write a fine-tuned classifier into a head; of two outputs it takes the log-odds of the
        second.

        Parameters
        ----------
        head : FirstPositionHead

        Raises
        ------
        EncoderError
            If the classifier has more than two outputs, or a tensor is of another shape.
        """
        if self.labels() not in (1, 2):
            raise EncoderError(
                self.directory,
                f"a classifier of {self.labels()} outputs",
                "1 or 2: wrong and right candidates",
            )
        self.fill_pooler(head.dense)
        for kind, parameter in head.out._collect_params_with_prefix().items():
            name = self._held([f"{self._classifier['out']}.{kind}"])[0]
            value = np.concatenate([part for _, part in self._parts(name)])
            if self.labels() == 2 and len(value) == 2:
                value = value[1:] - value[:1]
            if value.shape != parameter.shape:
                self._refuse_shape(name, value.shape, parameter.shape)
            _set(parameter, 0, value)

    def _shape(self, plain: str) -> Optional[Tuple[int, ...]]:
        return self.weights.shapes[self._plain[plain]] if plain in self._plain else None

    def _held(self, names: List[str]) -> List[str]:
        for name in names:
            if name not in self._plain:
                raise EncoderError(
                    self.directory,
                    f"tensor {name} is missing",
                    "a whole classifier",
                    "fetch the file again",
                )
        return names

    def _parts(self, plain: str) -> Iterator[Tuple[int, np.ndarray]]:
        self.used.add(self._plain[plain])
        return self.weights.parts(self._plain[plain])

    def _write(self, parameter, theirs: Iterable[str], first: int = 0) -> None:
        """Fill a parameter's rows from tensors in turn; ``first`` rows may be absent, as in the
        zoo's position tables."""
        theirs, start = list(theirs), 0
        shape = (parameter.shape[0] // max(1, len(theirs)), *parameter.shape[1:])
        for plain in theirs:
            found = self.weights.shapes[self._plain[plain]]
            if first and found == (shape[0] - first, *shape[1:]):
                start = first
            elif found != shape:
                self._refuse_shape(plain, found, shape)
            for row, part in self._parts(plain):
                _set(parameter, start + row, part)
            start += found[0]

    def _refuse_shape(self, plain: str, found: Tuple[int, ...], needed: Tuple[int, ...]) -> None:
        raise EncoderError(
            f"{self.weights.path}, tensor {self._plain[plain]}",
            f"shape {found}",
            str(needed),
            "check config.json against the weights",
        )


def _set(parameter, start: int, rows: np.ndarray) -> None:
    for array in parameter.list_data():
        array[start : start + len(rows)] = rows


def _plain_name(name: str) -> str:
    """A tensor's name without its family; the first BERT files call a norm's arrays gamma and
    beta."""
    name = _PREFIX.sub("", name)
    return re.sub(
        r"LayerNorm\.gamma$",
        "LayerNorm.weight",
        re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name),
    )
