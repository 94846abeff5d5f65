"""Conversion of pretrained weights to a run directory, with a report on every tensor."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from typing import Any, List, Optional, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig, RunConfig
from wqa.config.runs import as_json
from wqa.errors import OptionError, printable
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike
from wqa.models import Backbone, library_versions
from wqa.pretrained.load import without_gradients
from wqa.pretrained.source import DirectoryLayout, Source, TensorMap, read_sizes
from wqa.pretrained.weights import FORMATS
from wqa.systems.checkpoints import (
    Checkpoint,
    build_held,
    fill_held,
    find_layout,
    is_tensor_file,
)
from wqa.systems.saving import write_run
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
        return "\n".join(lines)


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
        If the files cannot be read, a tensor is missing, or tensors that repeat one another
        differ. Nothing is written then.
    OptionError
        If a checkpoint comes without its encoder, or an encoder with another.
    """
    is_checkpoint = is_tensor_file(pathlib.Path(source))
    _check_options(source, is_checkpoint, encoder)
    if is_checkpoint:
        return _convert_checkpoint(pathlib.Path(source), out, command, encoder or "")
    with encoder_directory(source) as folder:
        files = Source(folder)
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(files.config, folder)
        model, layout, max_length = _load(files)
        system, head = "encoder", "pooler"
        if layout is not None:
            system, head = layout.system, layout.head
        report = _report(files, model, files.config, system, head)
        _write(out, report, model, tokenizer, str(source), command, max_length)
    return report


def _check_options(source: PathLike, is_checkpoint: bool, encoder: Optional[PathLike]) -> None:
    if is_checkpoint and not encoder:
        raise OptionError(
            "encoder",
            f"none for {source}, a file without a configuration",
            "the encoder that the checkpoint was trained from, for its config.json and tokenizer",
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
