"""DC-BERT (Zhang et al. 2020)."""

from wqa.config.encoders import SIMILARITIES
from wqa.config.systems import System

#: What builds rankers by the similarity of texts that are encoded apart, without training.
BASELINES = dict.fromkeys(SIMILARITIES, "wqa.systems.dcbert.similarity.build_similarity")

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="dcbert",
        help="question and document encoded apart",
        network="wqa.systems.dcbert.network.DecoupledTransformer",
        task="wqa.systems.dcbert.task.DCBERTTask",
        ranker="wqa.systems.dcbert.ranker.DecoupledRanker",
        inputs="wqa.text.SplitInputs",
    ),
    System(
        name="similarity",
        help="an encoder, by the similarity of its encodings",
        network="wqa.systems.dcbert.similarity.SimilarityNetwork",
        task="wqa.systems.dcbert.task.SimilarityTask",
        ranker="wqa.systems.dcbert.ranker.SimilarityRanker",
        inputs="wqa.text.SplitInputs",
    ),
)
