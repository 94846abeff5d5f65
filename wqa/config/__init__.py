"""Frozen configurations, read from and written to JSON. Nothing here needs MXNet."""

from wqa.config.encoders import BACKBONES, FAMILIES, PAIR_FORMS, BackboneConfig
from wqa.config.runs import RunConfig, from_dict, parse_json, read_json, read_run_config
from wqa.config.training import EngineConfig, TrainingConfig

__all__ = [
    "BACKBONES",
    "BackboneConfig",
    "EngineConfig",
    "FAMILIES",
    "PAIR_FORMS",
    "RunConfig",
    "TrainingConfig",
    "from_dict",
    "parse_json",
    "read_json",
    "read_run_config",
]
