"""Cosinet, and Compare-Aggregate as its baseline (Bonadiman and Moschitti 2020)."""

from wqa.config.systems import System

#: What builds rankers by the rules of section 2.1, random, and BM25.
BASELINES = dict.fromkeys(
    ("rr", "wo", "wo+rr", "random", "bm25"), "wqa.systems.cosinet.baselines.build_baseline"
)

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="cosinet",
        help="Cosinet, on word vectors",
        network="wqa.systems.cosinet.network.Cosinet",
        task="wqa.systems.cosinet.task.ListTask",
        ranker="wqa.systems.cosinet.ranker.ListRanker",
        inputs="wqa.systems.cosinet.inputs.ListInputs",
    ),
    System(
        name="compare_aggregate",
        help="Compare-Aggregate, on word vectors",
        network="wqa.systems.cosinet.network.CompareAggregate",
        task="wqa.systems.cosinet.task.ListTask",
        ranker="wqa.systems.cosinet.ranker.ListRanker",
        inputs="wqa.systems.cosinet.inputs.ListInputs",
    ),
)
