"""Scoring of a corpus in partitions: in one process, in shards, or on a Ray cluster."""

from wqa.cluster.merge import merge_partitions
from wqa.cluster.run import (
    ScoreReport,
    merge_shards,
    parse_shard,
    score_on_cluster,
    score_partitions,
    shard_partitions,
)
from wqa.cluster.scorer import OUTPUTS, PartitionScorer, ScoringJob

__all__ = [
    "OUTPUTS",
    "PartitionScorer",
    "ScoreReport",
    "ScoringJob",
    "merge_partitions",
    "merge_shards",
    "parse_shard",
    "score_on_cluster",
    "score_partitions",
    "shard_partitions",
]
