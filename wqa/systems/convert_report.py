"""Report on a conversion, and the run directory that it writes."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List

from mxnet.gluon import Block

from wqa.config import BackboneConfig, RunConfig, to_json
from wqa.data.digests import record_digests
from wqa.errors import printable
from wqa.io.files import PathLike
from wqa.io.locks import new_directory
from wqa.models import library_versions
from wqa.pretrained.parameters import write_parameters
from wqa.systems.model_card import write_model_card
from wqa.text import Tokenizer

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


def write_run(
    out: PathLike,
    report: Report,
    model: Block,
    network: Dict[str, Any],
    tokenizer: Tokenizer,
    source: str,
    command: str,
    max_length: int = MAX_LENGTH,
) -> None:
    """Write what was converted as a run directory."""
    record = RunConfig(
        system=report.system,
        backbone=report.config,
        network=network,
        max_length=min(max_length, report.config.max_positions),
        encoder=source,
        versions=library_versions(),
        command=command,
    )
    with new_directory(out) as target:
        write_parameters(model, target / "model.params")
        tokenizer.save(target / "tokenizer.json")
        (target / "config.json").write_text(to_json(record), encoding="utf-8")
        record_digests(target)
        use = getattr(model, "computes", "encoder")
        write_model_card(target, record, use, pathlib.Path(out).absolute().name)
