"""The monolithic ranker of TANDA (Garg et al. 2020)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="pairwise",
        help="the monolithic ranker",
        network="wqa.systems.pairwise.network.PairwiseTransformer",
        task="wqa.training.schedules.ExitTask",
        directory="wqa.systems.pairwise.network.ClassifierLayout",
    ),
)
