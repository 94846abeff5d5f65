"""Configurations of the joint model, its pre-training and fact verification.

Di Liello et al. 2022, sections 3.1 to 3.4 and appendix B.1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

from wqa.config.encoders import MOST_LAYERS
from wqa.config.systems import option, without_option
from wqa.data.documents import LABELS
from wqa.errors import OptionError, check_choice, check_range
from wqa.models.network import NetworkConfig
from wqa.systems.mspp.inputs import FORMS

#: Heads, by the paper's names.
HEADS = ("IE_k", "AE_k", "IE_1", "AE_1")
#: Heads that give one label to the whole input.
SINGLE_LABEL = ("IE_1", "AE_1")
#: Order in which candidates are put into groups of k to be ranked.
ORDERS = ("shuffled", "original")
#: How AE_1 aggregates the embeddings of the segments that are there.
AGGREGATIONS = ("mean", "sum")

#: Claims of an update (appendix B.1).
CLAIMS_AN_UPDATE = 64
#: Groups of k candidates of an update (appendix B.1).
GROUPS_AN_UPDATE = 32
#: Greatest length of a segment, above the positions of all encoders.
_MOST_LENGTH = 1 << 16


@dataclasses.dataclass(frozen=True)
class MSPPConfig(NetworkConfig):
    """Configuration of the joint model.

    Parameters
    ----------
    head : {"IE_k", "AE_k", "IE_1", "AE_1"}
        Head (section 3.3). IE_k and AE_k rank, IE_1 and AE_1 classify.
    k : int
        Number of candidates of an input.
    segment_length : int
        L, the most tokens of a question or a candidate, special tokens included.
    positions : {"tokens", "slots"}
        How tokens are numbered, as `wqa.systems.mspp.inputs.FORMS` says: as the authors' code, or
        as the paper.
    missing : {"absent", "visible"}
        What stands for a missing candidate, as `wqa.systems.mspp.inputs.FORMS` says.
    marks : {"start", "separator"}
        First token of a candidate, as `wqa.systems.mspp.inputs.FORMS` says.
    order : {"shuffled", "original"}
        Order in which a ranker puts the candidates of a question into groups of k: that of a
        shuffle with seed 0, as the authors' code, or the order in which they were retrieved.
    labels : int
        Number of labels of IE_1 and AE_1.
    aggregation : {"mean", "sum"}
        How AE_1 aggregates: the average of section 3.3, or the sum of the authors' code.
    type_initialisation : float
        Standard deviation of a new row 0 of the token-type table, that of the question; 0 to keep
        the encoder's. The authors' code starts it from 1 where it loads plain RoBERTa, fifty times
        the deviation of the other new rows.

    Raises
    ------
    OptionError
        If a name is unknown, or a number is out of range.
    """

    head: str = option("IE_k", "IE_k or AE_k")
    k: int = option(5, "candidates of an input")
    segment_length: int = option(64, "most tokens of a question or a candidate")
    positions: str = option("tokens", "number tokens one after another, or in slots a segment")
    missing: str = option("absent", "a missing candidate: absent, or visible without a text")
    marks: str = option("start", "first token of a candidate: start (authors), or separator")
    order: str = option("shuffled", "order of candidates in ranking: shuffled, or original")
    labels: int = without_option(len(LABELS))
    aggregation: str = without_option("mean")
    type_initialisation: float = option(0.0, "deviation of the question's new token type, 0: kept")

    #: Values that some fields are limited to.
    CHOICES = {"head": HEADS, **FORMS, "order": ORDERS, "aggregation": AGGREGATIONS}

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        check_range("k", self.k, 1, MOST_LAYERS)
        check_range("segment_length", self.segment_length, 3, _MOST_LENGTH)
        check_range("labels", self.labels, 2, MOST_LAYERS)
        check_range("type_initialisation", self.type_initialisation, 0.0)

    @property
    def computes(self) -> str:
        return "labels" if self.head in SINGLE_LABEL else "scores"

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1 for WikiQA and TREC-QA, and the patience of the code."""
        return {
            "epochs": 40,
            "learning_rate": 2e-6,
            "warmup_updates": 1000,
            "patience": 8,
            "tokens_per_update": GROUPS_AN_UPDATE * self.segment_length * (self.k + 1),
        }


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(MSPPConfig):
    """Configuration of the pre-training: that of the joint model, and of its losses.

    Parameters
    ----------
    head : {"IE_k", "AE_k"}
        Head (section 3.3).
    mask_rate : float
        Probability that a token is predicted; 0 trains MSPP alone.
    mspp_weight : float
        Weight of the loss of MSPP beside that of the masked tokens; 0 trains these alone. The
        paper's is 1.

    Raises
    ------
    OptionError
        If a number is out of range, no loss is left, or the head gives one label to the input.
    """

    mask_rate: float = option(0.15, "probability that a token is predicted, 0 for MSPP alone")
    mspp_weight: float = option(1.0, "weight of the loss of MSPP, 0 for masked tokens alone")

    CHOICES = {**MSPPConfig.CHOICES, "head": ("IE_k", "AE_k")}
    # By these a training of version 0.2 drew its examples.
    RETIRED = dict.fromkeys(
        ("hard", "easy", "other_paragraphs", "premise_sentences", "candidate_sentences")
        + ("least_sentence", "least_paragraph", "least_document", "buffer_documents")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("mask_rate", self.mask_rate, 0.0, 1.0)
        check_range("mspp_weight", self.mspp_weight, 0.0)
        if not self.mask_rate and not self.mspp_weight:
            raise OptionError("mspp_weight", "0 with mask_rate=0", "one of the two losses")

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1, but for its 100,000 updates of 4,096 examples.

        The warm-up is a tenth of the updates, as there, by the default of all trainings.
        """
        return {"learning_rate": 5e-5, "weight_decay": 0.01, "clip_norm": 1.0}


@dataclasses.dataclass(frozen=True)
class ClaimConfig(MSPPConfig):
    """Configuration of the joint model of claims.

    Parameters
    ----------
    head : {"IE_1", "AE_1"}
        Head (section 3.3).

    Raises
    ------
    OptionError
        If the head gives no label to the whole input.
    """

    head: str = option("IE_1", "IE_1 or AE_1, which give one label to a claim")
    order: str = without_option("original")  # nothing is ranked
    aggregation: str = option("mean", "how AE_1 aggregates: the mean, or the authors' sum")

    CHOICES = {**MSPPConfig.CHOICES, "head": SINGLE_LABEL}
    RETIRED = {"label_names": list(LABELS)}

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1, the epochs of ASNQ there, and the patience of the code."""
        return {
            "epochs": 6,
            "learning_rate": 1e-5,
            "warmup_updates": 1000,
            "patience": 8,
            "tokens_per_update": CLAIMS_AN_UPDATE * self.segment_length * (self.k + 1),
        }
