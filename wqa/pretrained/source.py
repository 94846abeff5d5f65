"""A pretrained encoder on disk: its configuration, and its tensors by the parameters they fill."""

from __future__ import annotations

import itertools
import logging
import pathlib
import re
from typing import Any, Collection, Dict, List, Optional, Set, Tuple

import numpy as np
from mxnet.gluon import Block, HybridBlock, Parameter

from wqa.config import BackboneConfig, from_dict, read_run_config
from wqa.config.encoders import check_exits
from wqa.data.digests import check_digest
from wqa.errors import EncoderError, printable, shorten
from wqa.models import Backbone, Network
from wqa.models.exits import ExitConfig
from wqa.models.heads import FirstPositionHead
from wqa.pretrained.configs import from_huggingface, from_zoo, read_object
from wqa.pretrained.names import DENSE, HUGGINGFACE, Names, huggingface_names, zoo_names
from wqa.pretrained.weights import Weights

#: Tensors that a message names.
NAMED = 20


class TensorMap:
    """Tensors of files, checked against the parameters of a block and written into them."""

    #: What to do if sizes do not fit or tensors are missing; for messages.
    remedy, fetch = "check config.json against the weights", "fetch the file again"
    #: Number of rows of a parameter that a tensor may lack.
    optional_rows: Dict[str, int] = {}

    def __init__(
        self, where: pathlib.Path, weights: Weights, plain: Dict[str, str], names: Names
    ) -> None:
        self.where, self.weights = where, weights
        self.used: Set[str] = set()
        self._plain, self._names = plain, names

    def check(self, block: Block, names: Optional[Names] = None) -> None:
        """Check the tensors of a block, by default all, before memory is taken for parameters."""
        names = self._names if names is None else names
        self._require(names)
        parameters = block._collect_params_with_prefix()
        unknown = [name for name in names if name not in parameters]
        if unknown:
            problem = f"parameter {unknown[0]}, which the network lacks"
            hint = "train the network: its task knows how it starts"
            raise EncoderError(self.where, problem, "a network with all layers", hint)
        for name, tensors in names.items():
            shape = parameters[name].shape
            for plain in tensors:
                self._check_shape(plain, (shape[0] // len(tensors), *shape[1:]), name)

    def _require(self, names: Names) -> None:
        """Check that the files hold the tensors of some names."""
        missing = self.missing(names)
        if missing:
            problem = f"missing tensors: {', '.join(missing[:NAMED])}"
            if len(missing) > NAMED:
                problem += f" and {len(missing) - NAMED} more"
            raise EncoderError(self.where, problem, "those of all parameters", self.fetch)

    def fill(self, block: Block, names: Optional[Names] = None) -> None:
        """Write tensors that `check` has passed into a block, one at a time."""
        parameters = block._collect_params_with_prefix()
        for name, tensors in (self._names if names is None else names).items():
            parameter = parameters[name]
            if not tensors:
                set_rows(parameter, 0, np.zeros(parameter.shape, np.float32))
            # The first rows, of positions that no token takes, may be absent.
            start = parameter.shape[0] - sum(self._shape(plain)[0] for plain in tensors)
            for plain in tensors:
                rows = self._read(plain)
                set_rows(parameter, start, rows)
                start += len(rows)

    def missing(self, names: Optional[Names] = None) -> List[str]:
        """Tensors that parameters need and the files lack, by their plain names."""
        needed = itertools.chain.from_iterable((self._names if names is None else names).values())
        return [name for name in needed if name not in self._plain]

    def unused(self) -> List[str]:
        """Tensors that no parameter has taken, by the files' names."""
        return sorted(set(self.weights.shapes) - self.used)

    def _shape(self, plain: str) -> Tuple[int, ...]:
        return self.weights.shapes[self._plain[plain]]

    def _read(self, plain: str) -> np.ndarray:
        self.used.add(self._plain[plain])
        return self.weights.read(self._plain[plain])

    def _check_shape(self, plain: str, expected: Tuple[int, ...], name: str = "") -> None:
        """Check the shape of a tensor, which fills a parameter of a name."""
        shape, optional = self._shape(plain), self.optional_rows.get(name, 0)
        if shape not in (expected, (expected[0] - optional, *expected[1:])):
            where = f"{self.weights.path}, tensor {self._plain[plain]}"
            raise EncoderError(where, f"shape {shape}", str(expected), self.remedy)


def set_rows(parameter: Parameter, start: int, rows: np.ndarray) -> None:
    """Write rows into a parameter on all its devices."""
    for array in parameter.list_data():
        array[start : start + len(rows)] = rows


#: Names of labels, in lower case, of candidates that answer.
ANSWER_LABELS = {"1", "answer", "correct", "entailment", "positive", "relevant", "true", "yes"}
#: Names of labels that have none.
DEFAULT_LABELS = {"LABEL_0", "LABEL_1"}

_LOGGER = logging.getLogger(__name__)


class Source(TensorMap):
    """An encoder's directory: Hugging Face's, the GluonNLP zoo's, one that `wqa convert` wrote,
    or a run.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        path = directory / "config.json"
        is_zoo = not path.exists() and any(directory.glob("*.params"))
        values = {} if is_zoo else read_object(path)
        weights = Weights(directory)
        #: Hugging Face's ``config.json``; empty for other directories.
        self.settings: Dict[str, Any] = {}
        #: The exit of a run of a monolithic ranker.
        self.exits: Tuple[int, ...] = ()
        # Plain names of the classifier's dense layer and output layer.
        self._classifier = {"dense": "pooler", "out": ""}
        self._digests: Dict[str, str] = {}
        plain = {name: name for name in weights.shapes}
        if is_zoo:
            self.config = from_zoo(weights.path, weights.shapes)
            names = zoo_names(self.config)
        elif "backbone" in values:
            self._read_run(path)
            plain = {re.sub(r"^backbone\.", "", name): name for name in weights.shapes}
            names = {name: [name] for name in Backbone(self.config)._collect_params_with_prefix()}
        else:
            self.config, self.settings = from_huggingface(values, path, weights.shapes), values
            self._classifier = HUGGINGFACE[self.config.layout].classifier
            plain = {_plain_name(name): name for name in weights.shapes}
            names = huggingface_names(self.config)
        super().__init__(directory, weights, plain, names)
        # The zoo's position tables lack the rows before the first position.
        self.optional_rows = {"embeddings.position_weight": self.config.first_position}

    def _read_run(self, path: pathlib.Path) -> None:
        run = read_run_config(path)
        self.config, self._digests = _run_backbone(path), run.sha256
        if run.system == "pairwise":
            own = from_dict(ExitConfig, run.network, f"{path}, field network")
            self.exits = check_exits(own.exits or (self.config.num_layers,), self.config.num_layers)
            head = f"head_{self.exits[-1]}"
            self._classifier = {"dense": f"{head}.dense", "out": f"{head}.out"}

    def fill(self, block: Block, names: Optional[Names] = None) -> None:
        """Write tensors of the files into a block, by default those of the encoder."""
        if names is None:
            check_digest(self.weights.path, self._digests)
        else:
            self.check(block, names)
        super().fill(block, names)

    def has_pooler(self) -> bool:
        """Whether the files hold the family's pooler."""
        dense = f"{self._classifier['dense']}.weight"
        return self.config.family.has_pooler and dense in self._plain

    def fill_pooler(self, dense: HybridBlock) -> None:
        """Write the pooler, or the dense layer of the classifier, into a dense layer."""
        self.fill(dense, {kind: [f"{self._classifier['dense']}.{kind}"] for kind in DENSE})

    def labels(self) -> int:
        """Number of outputs of the classifier. 0: there is no classifier."""
        out, dense = (f"{self._classifier[part]}.weight" for part in ("out", "dense"))
        if out not in self._plain or dense not in self._plain:
            return 0
        return next(iter(self._shape(out)), 0)

    def fill_classifier(self, head: FirstPositionHead) -> None:
        """Write a fine-tuned classifier into a head.

        The head's output is the classifier's one output, or the log-odds of one of two: of that
        whose name in ``id2label`` says that a candidate answers, or else of the second.
        """
        self.fill_pooler(head.dense)
        names = {kind: [f"{self._classifier['out']}.{kind}"] for kind in DENSE}
        if self.labels() != 2:
            self.fill(head.out, names)
            return
        self._require(names)
        answer = self._answer_label()
        for kind, parameter in head.out._collect_params_with_prefix().items():
            [name] = names[kind]
            self._check_shape(name, (2, *parameter.shape[1:]))
            value = self._read(name)
            set_rows(parameter, 0, value[answer : answer + 1] - value[1 - answer : 2 - answer])

    def _answer_label(self) -> int:
        """Which of two outputs is that of answers."""
        labels = self.settings.get("id2label")
        if not isinstance(labels, dict):
            return 1
        listed = [str(labels.get(label)) for label in ("0", "1")]
        is_answer = [label.lower() in ANSWER_LABELS for label in listed]
        if is_answer[0] == is_answer[1] and set(listed) != DEFAULT_LABELS:
            note = f"of the labels {', '.join(map(shorten, listed))} the second is taken for that"
            note += (
                " of answers; id2label of config.json chooses, where it names one of them 'answer'"
            )
            _LOGGER.warning(f"{printable(str(self.where))}: {note}")
        return 0 if is_answer == [True, False] else 1

    def has_spans(self) -> bool:
        """Whether the files hold a head of spans, with a logit of the start and one of the end."""
        name = "qa_outputs.weight"
        return name in self._plain and self._shape(name)[:1] == (2,)

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Shapes of the tensors, by their names without the family's prefix."""
        return {plain: self._shape(plain) for plain in self._plain}


def read_sizes(directory: pathlib.Path, tensors: Collection[str]) -> BackboneConfig:
    """Read the configuration of an encoder whose tensors are elsewhere."""
    path = directory / "config.json"
    values = read_object(path)
    if "backbone" not in values:
        return from_huggingface(values, path, tensors)
    return _run_backbone(path)


def _run_backbone(path: pathlib.Path) -> BackboneConfig:
    """Encoder of a run, from its ``config.json``."""
    config = read_run_config(path).backbone
    if config is None:
        raise EncoderError(path, "a run without an encoder", "a run or an encoder")
    return config


def _plain_name(name: str) -> str:
    """Name of a tensor without the family's prefix, and a norm's arrays by their present names."""
    prefixes = "|".join(re.escape(names.prefix) for names in HUGGINGFACE.values())
    # DistributedDataParallel, torch.compile and trainers put the model into an attribute.
    name = re.sub(rf"^((module|_orig_mod|model)\.)*(({prefixes})\.)?", "", name)
    # The first BERT files call a norm's arrays gamma and beta.
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


class DirectoryLayout:
    """Base class of the forms of directories that hold the network of a system.

    Such a directory is an encoder in any form that `Source` reads, with a head of the system.
    """

    #: System whose network the directory holds, a key of `wqa.systems.SYSTEMS`.
    system = ""

    def recognizes(self, files: Source) -> bool:
        """Whether a directory is of this form."""
        raise NotImplementedError

    def options(self, files: Source) -> Dict[str, Any]:
        """Read the configuration of the system."""
        return {}

    def max_length(self, network: Network) -> int:
        """Greatest length of an input that the run records; 0 for the default."""
        return 0

    def names(self, network: Network) -> Names:
        """Names of the tensors of what the network has beside its encoder.

        They are plain names, those without the family's prefix.
        """
        return {}

    def fill(self, network: Network, files: Source) -> None:
        """Write the tensors into what the network has beside its encoder."""
        files.fill(network, self.names(network))
