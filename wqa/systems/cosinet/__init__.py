"""Cosinet, and Compare-Aggregate as its baseline (Bonadiman and Moschitti 2020)."""

from wqa.config.systems import System

#: What builds rankers by the rules of section 2.1, random, and BM25.
BASELINES = dict.fromkeys(
    ("rr", "wo", "wo+rr", "random", "bm25"), "wqa.systems.cosinet.baselines.build_baseline"
)

#: Records of the systems of this package.
SYSTEMS = tuple(
    System(
        name=name,
        help=f"{title}, on word vectors",
        network=f"wqa.systems.cosinet.network.{network}",
        task="wqa.systems.cosinet.task.ListTask",
        ranker="wqa.systems.cosinet.ranker.ListRanker",
        inputs="wqa.systems.cosinet.inputs.ListInputs",
    )
    for name, title, network in (
        ("cosinet", "Cosinet", "Cosinet"),
        ("compare_aggregate", "Compare-Aggregate", "CompareAggregate"),
    )
)
