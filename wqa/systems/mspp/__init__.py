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
            "labels": "wqa.systems.mspp.verifier.Verifier",
        },
        inputs="wqa.systems.mspp.inputs.JointInputs",
        directory="wqa.systems.mspp.checkpoint.JointLayout",
    ),
    System(
        name="mspp_pretraining",
        help="pre-training of the joint model",
        network="wqa.systems.mspp.network.ParagraphTransformer",
        task="wqa.systems.mspp.pretraining.ParagraphTask",
        development="wqa.systems.mspp.pretraining.evaluate_examples",
        ranker="",
    ),
    System(
        name="mspp_claims",
        help="fact verification by the joint model",
        network="wqa.systems.mspp.network.ClaimTransformer",
        task="wqa.systems.mspp.claim_task.ClaimTask",
        development="wqa.systems.mspp.claim_task.evaluate_labels",
        ranker="wqa.systems.mspp.verifier.Verifier",
    ),
)
