"""Cosinet, and Compare-Aggregate as its baseline (Bonadiman and Moschitti 2020)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="cosinet",
        help="Cosinet, on word vectors",
        network="wqa.systems.cosinet.network.Cosinet",
        task="wqa.systems.cosinet.task.ListTask",
        ranker="wqa.systems.cosinet.ranker.ListRanker",
    ),
    System(
        name="compare_aggregate",
        help="Compare-Aggregate, on word vectors",
        network="wqa.systems.cosinet.compare_aggregate.CompareAggregate",
        task="wqa.systems.cosinet.task.ListTask",
        ranker="wqa.systems.cosinet.ranker.ListRanker",
    ),
)
