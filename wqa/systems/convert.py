"""Conversion of pretrained weights to a run directory, with a report on every tensor."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import List, Optional

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig, RunConfig
from wqa.config.runs import as_json
from wqa.errors import OptionError, printable
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike
from wqa.models import Backbone, library_versions
from wqa.pretrained.load import initialize
from wqa.pretrained.source import Source
from wqa.pretrained.weights import FORMATS
from wqa.systems.checkpoints import Opened, open_checkpoint, open_network
from wqa.systems.saving import write_run
from wqa.text import load_tokenizer


@dataclasses.dataclass(frozen=True)
class Report:
    """What `wqa.systems.convert` read and wrote."""

    config: BackboneConfig
    system: str
    read: int
    mapped: int
    unused: List[str]
    parameters: int
    head_parameters: int

    def __str__(self) -> str:
        config = self.config
        lines = [
            f"family      {config.family.name}, {config.num_layers} layers, {config.units} units, "
            f"{config.num_heads} heads, {config.vocab_size:,} tokens",
            f"tensors     {self.read} read, {self.mapped} mapped",
            f"unused      {len(self.unused)}",
            *(f"            {printable(name)}" for name in self.unused),
            f"parameters  {self.parameters:,} in the encoder, {self.head_parameters:,} beside it",
        ]
        return "\n".join(lines)


class PretrainedEncoder(HybridBlock):
    """A backbone with its pooler: the system ``"encoder"`` of a converted directory."""

    def __init__(self, config: BackboneConfig, has_pooler: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.backbone = Backbone(config)
            self.pooler = nn.Dense(config.units, in_units=config.units) if has_pooler else None
        self.config, self.own_config = config, None

    def fill(self, files: Source) -> None:
        """Write the tensors of an encoder."""
        files.fill(self.backbone)
        if self.pooler is not None:
            files.fill_pooler(self.pooler)


def convert(
    source: PathLike, out: PathLike, command: str = "", encoder: Optional[PathLike] = None
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
        If the files cannot be read, or a tensor is missing. Nothing is written then.
    OptionError
        If a checkpoint comes without its encoder, or an encoder with another.
    """
    path = pathlib.Path(source)
    is_checkpoint = path.suffix in FORMATS and path.is_file()
    if is_checkpoint != bool(encoder):
        expected = f"that of a checkpoint, a file that ends in {', '.join(FORMATS)}, and no other"
        raise OptionError("encoder", f"{encoder or 'none'} for {source}", expected)
    with encoder_directory(encoder or source) as folder:
        opened = open_checkpoint(path, folder) if is_checkpoint else _open_directory(folder)
        tokenizer = load_tokenizer(folder)
        files, model = opened.files, opened.model
        tokenizer.check_fits(model.config, folder)
        initialize(model, mx.init.Zero())
        opened.fill()
    record = RunConfig(
        system=opened.system,
        backbone=model.config,
        network=as_json(model.own_config) if model.own_config else {},
        max_length=min(opened.max_length, model.config.max_positions),
        encoder=str(source),
        versions=library_versions(),
        command=command,
    )
    write_run(out, model, record, tokenizer)
    parameters = model._collect_params_with_prefix().values()
    encoder_count = model.backbone.parameter_count()
    return Report(
        config=model.config,
        system=opened.system,
        read=len(files.weights.shapes),
        mapped=len(files.used),
        unused=files.unused(),
        parameters=encoder_count,
        head_parameters=sum(math.prod(values.shape) for values in parameters) - encoder_count,
    )


def _open_directory(folder: pathlib.Path) -> Opened:
    """Open the network that a directory holds, else its encoder."""
    files = Source(folder)
    opened = open_network(files)
    if opened is not None:
        return opened
    model = PretrainedEncoder(files.config, files.has_pooler())
    files.check(model.backbone)
    return Opened(files, model, "encoder", lambda: model.fill(files))
