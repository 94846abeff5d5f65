"""Joint models and their pre-training, MSPP (Di Liello et al. 2022)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="mspp",
        help="the joint model",
        network="wqa.systems.mspp.network.JointTransformer",
        task="wqa.systems.mspp.task.MSPPTask",
        ranker={
            "scores": "wqa.systems.mspp.ranker.JointRanker",
            "labels": "wqa.systems.mspp.claims.Verifier",
        },
        inputs="wqa.systems.mspp.inputs.JointInputs",
        directory="wqa.systems.mspp.network.JointLayout",
    ),
    System(
        name="mspp_pretraining",
        help="pre-training of the joint model",
        network="wqa.systems.mspp.network.PredictingTransformer",
        task="wqa.systems.mspp.pretraining.PretrainingTask",
        ranker="wqa.systems.mspp.ranker.JointRanker",
        inputs="wqa.systems.mspp.inputs.JointInputs",
    ),
    System(
        name="mspp_claims",
        help="fact verification by the joint model",
        network="wqa.systems.mspp.network.ClaimTransformer",
        task="wqa.systems.mspp.claims.ClaimTask",
        development="wqa.systems.mspp.claims.evaluate_labels",
        ranker="wqa.systems.mspp.claims.Verifier",
    ),
)
