"""Cosinet, and Compare-Aggregate as its baseline (Bonadiman and Moschitti 2020)."""

from wqa.config.systems import System

#: What builds rankers by the rules of section 2.1, random, and BM25.
BASELINES = {
    "rr": "wqa.systems.cosinet.baselines.OriginalRank",
    "wo": "wqa.systems.cosinet.baselines.WordOverlap",
    "wo+rr": "wqa.systems.cosinet.baselines.WordOverlapByRank",
    "random": "wqa.systems.cosinet.baselines.RandomScores",
    "bm25": "wqa.systems.cosinet.baselines.CandidateBM25",
}

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
