"""Work on a file in partitions: in one process, in shards, or on a Ray cluster."""

from importlib import import_module
from typing import Any

from wqa.cluster.job import Job, PartitionRunner
from wqa.cluster.run import (
    JobReport,
    merge_partitions,
    merge_shards,
    parse_shard,
    run_on_cluster,
    run_partitions,
    shard_partitions,
)
from wqa.cluster.scorer import OUTPUTS, PartitionScorer, ScoringJob

__all__ = [
    "EncodingJob",
    "Job",
    "JobReport",
    "OUTPUTS",
    "PartitionEncoder",
    "PartitionRunner",
    "PartitionScorer",
    "ScoringJob",
    "merge_partitions",
    "merge_shards",
    "parse_shard",
    "run_on_cluster",
    "run_partitions",
    "shard_partitions",
]

#: Names of what encodes documents, by MXNet; each is imported when first used.
_ENCODING = ("EncodingJob", "PartitionEncoder")


def __getattr__(name: str) -> Any:
    if name not in _ENCODING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("wqa.cluster.encoder"), name)
