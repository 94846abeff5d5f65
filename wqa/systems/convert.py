"""Conversion of pretrained weights to a run directory, with a report on every tensor."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import subprocess
from typing import Any, Dict, List, Optional, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig, RunConfig
from wqa.errors import EncoderError, OptionError, printable, shorten
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike, scratch_folder
from wqa.models import Backbone, library_versions
from wqa.pretrained import reference
from wqa.pretrained.configs import to_huggingface
from wqa.pretrained.load import without_gradients
from wqa.pretrained.source import DirectoryLayout, Source, TensorMap, read_sizes
from wqa.pretrained.weights import FORMATS, read_outputs
from wqa.systems.checkpoints import (
    Checkpoint,
    build_held,
    fill_held,
    find_layout,
    is_tensor_file,
)
from wqa.systems.saving import as_json, write_run
from wqa.text import Tokenizer, load_tokenizer

#: Greatest length of a pair that a converted run records.
MAX_LENGTH = 128


@dataclasses.dataclass(frozen=True)
class Report:
    """What `wqa.systems.convert` read and wrote."""

    config: BackboneConfig
    system: str
    head: str
    read: int
    mapped: int
    missing: List[str]
    unused: List[str]
    parameters: int
    head_parameters: int
    differences: Dict[str, float] = dataclasses.field(default_factory=dict)
    repeated: int = 0

    def __str__(self) -> str:
        config = self.config
        tensors = f"{self.read} read, {self.mapped} mapped, {len(self.missing)} missing"
        if self.repeated:
            tensors += f", {self.repeated} repeated and equal"
        lines = [
            f"family      {config.family.name}, {config.num_layers} layers, {config.units} units, "
            f"{config.num_heads} heads, {config.vocab_size:,} tokens",
            f"tensors     {tensors}",
            f"unused      {len(self.unused)}",
        ]
        lines += [f"            {printable(name)}" for name in self.unused]
        numbers = f"{self.parameters:,} in the encoder, {self.head_parameters:,} in the {self.head}"
        lines.append(f"parameters  {numbers}")
        lines += [f"difference  {value:.1e} {part}" for part, value in self.differences.items()]
        return "\n".join(lines)


#: Greatest difference from the reference that `convert` accepts, in float32.
TOLERANCE = 1e-4

#: Lengths of the rows that a live check compares; the first row has no padding.
CHECKED_LENGTHS = (64, 41, 17, 5)


class PretrainedEncoder(HybridBlock):
    """A backbone with its pooler: the system ``"encoder"`` of a converted directory."""

    def __init__(self, config: BackboneConfig, has_pooler: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.backbone = Backbone(config)
            self.pooler = nn.Dense(config.units, in_units=config.units) if has_pooler else None


def convert(
    source: PathLike,
    out: PathLike,
    check: str = "",
    command: str = "",
    encoder: Optional[PathLike] = None,
) -> Report:
    """Write a pretrained encoder, or an authors' checkpoint, as a directory of this package.

    If the files hold a classifier, a head of spans or a system's network, the directory is a run,
    which ranks or reads, and can be trained further.

    Parameters
    ----------
    source : str or path-like
        The encoder, in any form that `wqa.pretrained.load_backbone` takes. Or the checkpoint of a
        paper's authors, ``cerberus_model.pt`` or a ``.safetensors`` file of the same names, which
        has no configuration.
    out : str or path-like
        New directory to write.
    check : str
        Reference for the hidden states of an encoder: a ``.npz`` file as
        `wqa.pretrained.reference` writes it, or a Python interpreter that has PyTorch and
        transformers, which then runs the encoder. Empty: no check.
    command : str
        Command line to record in ``config.json``.
    encoder : str or path-like, optional
        Encoder that a checkpoint was trained from, in any of these forms. Its configuration and
        its tokenizer are read, not its weights.

    Returns
    -------
    Report
        What was read and written.

    Raises
    ------
    EncoderError
        If the files cannot be read, a tensor is missing, tensors that repeat one another differ,
        or a difference exceeds `TOLERANCE`. Nothing is written then.
    OptionError
        If a checkpoint comes without its encoder, or an encoder with another.
    """
    is_checkpoint = is_tensor_file(pathlib.Path(source))
    _check_options(source, is_checkpoint, check, encoder)
    if is_checkpoint:
        return _convert_checkpoint(pathlib.Path(source), out, command, encoder or "")
    with encoder_directory(source) as folder:
        files = Source(folder)
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(files.config, folder)
        model, layout, max_length = _load(files)
        differences = {}
        if check:
            has_scores = layout is not None and layout.has_reference_scores
            differences = compare(model, folder, check, has_scores)
        system, head = "encoder", "pooler"
        if layout is not None:
            system, head = layout.system, layout.head
        report = _report(files, model, files.config, system, head, differences=differences)
        _write(out, report, model, tokenizer, str(source), command, max_length)
    return report


def _check_options(
    source: PathLike, is_checkpoint: bool, check: str, encoder: Optional[PathLike]
) -> None:
    if is_checkpoint and not encoder:
        raise OptionError(
            "encoder",
            f"none for {source}, a file without a configuration",
            "the encoder that the checkpoint was trained from, for its config.json and tokenizer",
        )
    if is_checkpoint and check:
        raise OptionError(
            "check", shorten(check), "no check of a checkpoint", "check its encoder by itself"
        )
    if encoder and not is_checkpoint:
        raise OptionError(
            "encoder",
            f"{encoder} for {source}, which is no file of tensors",
            "no encoder, or a file that ends in " + ", ".join(FORMATS),
            "an encoder's directory has its own config.json",
        )


def _convert_checkpoint(
    path: pathlib.Path, out: PathLike, command: str, encoder: PathLike
) -> Report:
    with encoder_directory(encoder) as folder:
        files = Checkpoint(path, functools.partial(read_sizes, folder))
        network = files.network
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(network.config, folder)
    files.check(network)
    files.check_copies()
    without_gradients(network)
    network.initialize(mx.init.Zero())
    files.fill(network)
    copies = len(files.copied)
    report = _report(files, network, network.config, files.system, "heads", repeated=copies)
    _write(out, report, network, tokenizer, str(path), command)
    return report


def _write(
    out: PathLike,
    report: Report,
    model: HybridBlock,
    tokenizer: Tokenizer,
    source: str,
    command: str,
    max_length: int = MAX_LENGTH,
) -> None:
    """Write what was converted as a run directory."""
    own_config = getattr(model, "own_config", None)
    record = RunConfig(
        system=report.system,
        backbone=report.config,
        network=as_json(own_config) if own_config else {},
        max_length=min(max_length, report.config.max_positions),
        encoder=source,
        versions=library_versions(),
        command=command,
    )
    write_run(out, model, record, tokenizer)


def _load(files: Source) -> Tuple[HybridBlock, Optional[DirectoryLayout], int]:
    """The network that the files hold, else the encoder; and the length that the run records."""
    layout = find_layout(files)
    if layout is None:
        model: HybridBlock = PretrainedEncoder(files.config, files.has_pooler())
        files.check(model.backbone)
    else:
        model = build_held(layout, files)
    without_gradients(model)
    model.initialize(mx.init.Zero())
    if layout is not None:
        fill_held(layout, model, files)
        return model, layout, max(MAX_LENGTH, layout.max_length(model))
    files.fill(model.backbone)
    if model.pooler is not None:
        files.fill_pooler(model.pooler)
    return model, None, MAX_LENGTH


def _report(
    files: TensorMap,
    model: HybridBlock,
    config: BackboneConfig,
    system: str,
    head: str,
    **fields: Any,
) -> Report:
    parameters = model._collect_params_with_prefix().values()
    count = sum(math.prod(parameter.shape) for parameter in parameters)
    encoder_count = model.backbone.parameter_count()
    return Report(
        config=config,
        system=system,
        head=head,
        read=len(files.weights.shapes),
        mapped=len(files.used),
        missing=files.missing(),
        unused=files.unused(),
        parameters=encoder_count,
        head_parameters=count - encoder_count,
        **fields,
    )


def compare(model: HybridBlock, folder: pathlib.Path, check: str, scores: bool) -> Dict[str, float]:
    """Compare hidden states, and scores where the reference has them, with the reference."""
    if check.endswith(".npz"):
        expected = read_outputs(check, model.backbone.config)
    else:
        expected = _live(check, folder, model.backbone.config, scores)
    _check_inputs(expected, check, model.backbone.config)
    token_ids = mx.nd.array(expected["token_ids"], dtype="int32")
    token_types = mx.nd.array(expected["token_types"], dtype="int32")
    valid_length = mx.nd.array(expected["valid_length"], dtype="float32")
    states = model.backbone.hidden_states(token_ids, valid_length, token_types)
    shape = (len(states), *states[0].shape)
    if expected["states"].shape != shape:
        raise EncoderError(check, f"hidden states of shape {expected['states'].shape}", str(shape))
    real = np.arange(shape[2])[None] < expected["valid_length"][:, None]
    differences = {}
    for layer, state in enumerate(states):
        difference = abs(state.asnumpy() - expected["states"][layer])[real].max()
        differences[f"layer {layer}" if layer else "embeddings' output"] = float(difference)
    if scores and "logits" in expected:
        logits = expected["logits"]
        log_odds = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        values = model(token_ids, token_types, valid_length).asnumpy()
        differences["scores"] = float(abs(values - log_odds).max())
    for part, value in differences.items():
        if not value <= TOLERANCE:
            raise EncoderError(
                folder,
                f"{part} departs from the reference by {value:.1e}",
                f"at most {TOLERANCE:.0e}",
            )
    return differences


def _check_inputs(arrays: Dict[str, np.ndarray], check: str, config: BackboneConfig) -> None:
    """Refuse token ids, token types and lengths that the encoder cannot take."""
    token_ids, valid_length = arrays["token_ids"], arrays["valid_length"]
    rows, length = token_ids.shape if token_ids.ndim == 2 else (0, 0)
    limits = {
        "token_ids": (token_ids, (rows, length), 0, config.vocab_size - 1),
        "token_types": (arrays["token_types"], (rows, length), 0, config.token_types - 1),
        "valid_length": (valid_length, (rows,), 1, length),
    }
    for name, (array, shape, least, most) in limits.items():
        sound = array.dtype.kind in "iuf" and array.shape == shape and array.size
        if not sound or not (array.min() >= least and array.max() <= most):
            raise EncoderError(
                check,
                f"{name} of shape {array.shape} and type {array.dtype}",
                f"numbers from {least} to {most} of shape (B, L), for lengths (B,)",
            )
    if length > config.max_positions:
        raise EncoderError(check, f"rows of {length} tokens", f"at most {config.max_positions}")
    floats = [arrays["states"].dtype.kind == "f"]
    if "logits" in arrays:
        logits = arrays["logits"]
        floats.append(logits.dtype.kind == "f" and logits.shape in ((rows, 1), (rows, 2)))
    if not all(floats):
        raise EncoderError(check, "states or logits of another kind", "floating-point numbers")


def _live(
    python: str, folder: pathlib.Path, config: BackboneConfig, is_classifier: bool
) -> Dict[str, np.ndarray]:
    """Run the encoder by an interpreter with PyTorch and transformers, on random rows."""
    kind = to_huggingface(config)["architectures"][0]
    if not is_classifier:
        kind = kind.replace("ForSequenceClassification", "Model")
    with scratch_folder("check") as scratch:
        inputs, outputs = os.path.join(scratch, "inputs.npz"), os.path.join(scratch, "outputs.npz")
        np.savez(inputs, **_random_rows(config))
        try:
            done = subprocess.run(
                [python, reference.__file__, str(folder), kind, inputs, outputs],
                capture_output=True,
                text=True,
            )
        except OSError as error:
            raise EncoderError(
                "check",
                f"{python} cannot be run ({error.strerror})",
                "a .npz file, or a Python interpreter with PyTorch and transformers",
            ) from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise EncoderError(
                "check",
                f"the reference failed ({reason})",
                "a Python interpreter with PyTorch and transformers that reads this directory",
            )
        return read_outputs(outputs, config)


def _random_rows(config: BackboneConfig) -> Dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    length = min(CHECKED_LENGTHS[0], config.max_positions)
    lengths = np.minimum(CHECKED_LENGTHS, length)
    first_id = min(5, config.vocab_size - 1)
    token_ids = rng.integers(first_id, config.vocab_size, (len(lengths), length))
    padded = np.arange(length)[None] >= lengths[:, None]
    token_ids[padded] = max(0, config.first_position - 1)
    token_types = np.where(padded, 0, rng.integers(0, config.token_types, token_ids.shape))
    return {"token_ids": token_ids, "token_types": token_types, "valid_length": lengths}
