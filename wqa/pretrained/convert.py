"""Pretrained weights to a directory of this package's own, with a report of what became of each
tensor."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import subprocess
import tempfile
from typing import Dict, List

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig, RunConfig, to_json
from wqa.errors import EncoderError
from wqa.models import Backbone, PairwiseTransformer, library_versions
from wqa.pretrained import reference
from wqa.pretrained.configs import to_huggingface
from wqa.pretrained.folders import new_directory, write_parameters
from wqa.pretrained.load import without_gradients
from wqa.pretrained.locate import PathLike, encoder_directory
from wqa.pretrained.source import Source
from wqa.text import load_tokenizer

#: Greatest difference from the reference that `convert` accepts, in float32.
TOLERANCE = 1e-4

#: Lengths of the rows that a live check compares, the longest unpadded.
CHECKED_LENGTHS = (64, 41, 17, 5)


class PretrainedEncoder(HybridBlock):
    """A backbone and, where pretraining left one, its pooler; the system ``"encoder"`` of a
    converted directory.

    Parameters
    ----------
    config : BackboneConfig
    has_pooler : bool
    """

    def __init__(self, config: BackboneConfig, has_pooler: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.backbone = Backbone(config)
            self.pooler = nn.Dense(config.units, in_units=config.units) if has_pooler else None


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of an encoder's tensors.

    Attributes
    ----------
    config : BackboneConfig
    system : str
        ``"pairwise"`` if a classifier was read, else ``"encoder"``.
    read, mapped : int
        Tensors in the files, and those that went into a parameter.
    missing : list of str
        Tensors of the encoder that the files lack; loading refuses them, so there are none.
    unused : list of str
        The others, by the files' names.
    parameters, head_parameters : int
        Numbers in the backbone, and in its pooler or classifier.
    differences : dict of str to float
        Greatest difference from the reference, by part; empty without a check.
    """

    config: BackboneConfig
    system: str
    read: int
    mapped: int
    missing: List[str]
    unused: List[str]
    parameters: int
    head_parameters: int
    differences: Dict[str, float]

    def __str__(self) -> str:
        config, kind = self.config, "classifier" if self.system == "pairwise" else "pooler"
        lines = [
            f"layout      {config.layout}, {config.num_layers} layers, {config.units} units, "
            f"{config.num_heads} heads, "
            f"{config.vocab_size:,} tokens",
            f"tensors     {self.read} read, {self.mapped} mapped, {len(self.missing)} missing",
            f"unused      {len(self.unused)}"
            + "".join(f"\n            {name}" for name in self.unused),
            f"parameters  {self.parameters:,} in the encoder, {self.head_parameters:,} in the "
            f"{kind}",
        ]
        lines += [f"difference  {value:.1e} {part}" for part, value in self.differences.items()]
        return "\n".join(lines)


def convert(source: PathLike, out: PathLike, check: str = "", command: str = "") -> Report:
    """Write an encoder as a directory that ``--encoder`` takes; a classifier also ranks, and
    ``--init`` takes it.

    Parameters
    ----------
    source : str or path-like
        As for `wqa.pretrained.load_backbone`.
    out : str or path-like
        New directory.
    check : str
        What to compare hidden states with: a ``.npz`` file as `wqa.pretrained.reference` writes it,
        or a Python interpreter that has PyTorch and transformers, which then runs them. Empty for
        none.
    command : str
        The command line, for the record.

    Returns
    -------
    Report

    Raises
    ------
    EncoderError
        If the encoder cannot be read, a tensor is missing, or a difference exceeds `TOLERANCE`;
        nothing is written then.
    """
    with encoder_directory(source) as folder:
        found = Source(folder)
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(found.config, folder)
        is_ranker = found.labels() in (1, 2)
        model = (
            PairwiseTransformer(found.config, found.exits)
            if is_ranker
            else PretrainedEncoder(found.config, found.has_pooler())
        )
        without_gradients(model)
        model.initialize(mx.init.Zero())
        found.fill(model.backbone)
        if is_ranker:
            found.fill_classifier(model.head(0))
        elif model.pooler is not None:
            found.fill_pooler(model.pooler)
        differences = compare(model, folder, check) if check else {}
        numbers = sum(
            math.prod(parameter.shape) for parameter in model._collect_params_with_prefix().values()
        )
        encoder = model.backbone.parameter_count()
        report = Report(
            found.config,
            "pairwise" if is_ranker else "encoder",
            len(found.weights.shapes),
            len(found.used),
            found.missing(),
            found.unused(),
            encoder,
            numbers - encoder,
            differences,
        )
        record = RunConfig(
            report.system,
            found.config,
            model.exits if is_ranker else (),
            min(128, found.config.max_positions),
            encoder=str(source),
            versions=library_versions(),
            command=command,
        )
        with new_directory(out) as target:
            write_parameters(model, target / "model.params")
            tokenizer.save(target / "tokenizer.json")
            (target / "config.json").write_text(to_json(record), encoding="utf-8")
    return report


def compare(model: HybridBlock, folder: pathlib.Path, check: str) -> Dict[str, float]:
    """Greatest difference of each layer's hidden states, and of a classifier's scores, from the
    reference.

    Parameters
    ----------
    model : PairwiseTransformer or PretrainedEncoder
    folder : pathlib.Path
        The encoder's own directory.
    check : str
        As for `convert`.

    Returns
    -------
    dict of str to float
        By part; over real positions only.

    Raises
    ------
    EncoderError
        If the reference cannot be had, or a difference exceeds `TOLERANCE`.
    """
    config = model.backbone.config
    theirs = (
        _stored(check)
        if check.endswith(".npz")
        else _live(check, folder, config, isinstance(model, PairwiseTransformer))
    )
    arrays = [
        mx.nd.array(theirs[name], dtype=kind)
        for name, kind in (
            ("token_ids", "int32"),
            ("token_types", "int32"),
            ("valid_length", "float32"),
        )
    ]
    states = model.backbone.hidden_states(arrays[0], arrays[2], arrays[1])
    shape = (len(states), *states[0].shape)
    if theirs["states"].shape != shape:
        raise EncoderError(check, f"hidden states of shape {theirs['states'].shape}", str(shape))
    real = np.arange(shape[2])[None] < theirs["valid_length"][:, None]
    differences = {
        f"layer {layer}" if layer else "embeddings' output": float(
            abs(ours.asnumpy() - other)[real].max()
        )
        for layer, (ours, other) in enumerate(zip(states, theirs["states"]))
    }
    if isinstance(model, PairwiseTransformer) and "logits" in theirs:
        logits = theirs["logits"]
        scores = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        differences["scores"] = float(abs(model(*arrays).asnumpy() - scores).max())
    for part, value in differences.items():
        if not value <= TOLERANCE:
            raise EncoderError(
                folder,
                f"{part} departs from the reference by {value:.1e}",
                f"at most {TOLERANCE:.0e}",
            )
    return differences


def _stored(path: str) -> Dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in ("token_ids", "valid_length", "states")}
            arrays["token_types"] = (
                file["token_types"] if "token_types" in file else np.zeros_like(arrays["token_ids"])
            )
            if "logits" in file:
                arrays["logits"] = file["logits"]
            return arrays
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise EncoderError(
            path,
            f"cannot be read ({error})",
            "token_ids, valid_length and states in NumPy's .npz format",
        ) from None


def _live(
    python: str, folder: pathlib.Path, config: BackboneConfig, is_classifier: bool
) -> Dict[str, np.ndarray]:
    """Have an interpreter with PyTorch and transformers run the encoder on random rows."""
    rng, most = np.random.default_rng(0), min(CHECKED_LENGTHS[0], config.max_positions)
    lengths = np.minimum(CHECKED_LENGTHS, most)
    token_ids = rng.integers(min(5, config.vocab_size - 1), config.vocab_size, (len(lengths), most))
    padded = np.arange(most)[None] >= lengths[:, None]
    token_ids[padded] = max(0, config.first_position - 1)
    token_types = np.where(padded, 0, rng.integers(0, config.token_types, token_ids.shape))
    kind = to_huggingface(config)["architectures"][0]
    if not is_classifier:
        kind = kind.replace("ForSequenceClassification", "Model")
    with tempfile.TemporaryDirectory() as scratch:
        given, target = os.path.join(scratch, "inputs.npz"), os.path.join(scratch, "outputs.npz")
        np.savez(given, token_ids=token_ids, token_types=token_types, valid_length=lengths)
        try:
            done = subprocess.run(
                [python, reference.__file__, str(folder), kind, given, target],
                capture_output=True,
                text=True,
            )
        except OSError as error:
            raise EncoderError(
                "--check",
                f"{python} cannot be run ({error.strerror})",
                "a .npz file, or a Python interpreter with PyTorch and transformers",
            ) from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise EncoderError(
                "--check",
                f"the reference failed ({reason})",
                "a Python interpreter with PyTorch and transformers that reads this directory",
            )
        return _stored(target)
