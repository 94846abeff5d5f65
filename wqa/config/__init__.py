"""Frozen configurations, read from and written to JSON. Nothing here needs MXNet."""

from wqa.config.encoders import BACKBONES, FAMILIES, PAIR_FORMS, BackboneConfig, Family, PairForm
from wqa.config.runs import (
    RunConfig,
    check_finished,
    config_digest,
    from_dict,
    parse_json,
    read_json,
    read_run_config,
    to_json,
)
from wqa.config.training import (
    ENGINES,
    LONG_CANDIDATES,
    LONG_QUESTIONS,
    PRECISIONS,
    RANKING_ENGINES,
    STRENGTH,
    EngineConfig,
    TrainingConfig,
)

__all__ = [
    "BACKBONES",
    "BackboneConfig",
    "ENGINES",
    "EngineConfig",
    "FAMILIES",
    "Family",
    "LONG_CANDIDATES",
    "LONG_QUESTIONS",
    "PAIR_FORMS",
    "PRECISIONS",
    "PairForm",
    "RANKING_ENGINES",
    "RunConfig",
    "STRENGTH",
    "TrainingConfig",
    "check_finished",
    "config_digest",
    "from_dict",
    "parse_json",
    "read_json",
    "read_run_config",
    "to_json",
]
