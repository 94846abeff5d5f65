"""Work on a file in partitions: in one process, in shards, or on a Ray cluster."""

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
    "Job",
    "JobReport",
    "OUTPUTS",
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
