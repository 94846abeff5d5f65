"""DC-BERT (Zhang et al. 2020)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="dcbert",
        help="question and document encoded apart",
        network="wqa.systems.dcbert.network.DecoupledTransformer",
        task="wqa.systems.dcbert.task.DCBERTTask",
        ranker="wqa.systems.dcbert.ranker.DecoupledRanker",
    ),
)
