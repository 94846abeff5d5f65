"""Rankers, with one interface for every system, readers, and verifiers of claims."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.inference.baselines import BASELINES, Baseline
from wqa.inference.calibrated import Calibration
from wqa.inference.cascade import CascadeRanker
from wqa.inference.cost import Cost, relative_cost
from wqa.inference.dropping import Drop
from wqa.inference.encoding_runs import encode_documents, remove_documents
from wqa.inference.ensemble import EnsembleRanker
from wqa.inference.joint import JointRanker
from wqa.inference.lists import ListRanker
from wqa.inference.load import RANKERS, build_ranker, load_ranker, rank_all
from wqa.inference.pipeline import Answered, Pipeline, RetrievedDocument
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking
from wqa.inference.reader import Reader, load_reader
from wqa.inference.saving import save_run
from wqa.inference.scoring_runs import score_in_memory, write_scores
from wqa.inference.sequential import SequentialRanker
from wqa.inference.spans import Answer
from wqa.inference.verifier import Verdict, Verifier, load_verifier
from wqa.inference.word_tables import TableReport, embed_words

__all__ = [
    "Answer",
    "Answered",
    "BASELINES",
    "Baseline",
    "Calibration",
    "CascadeRanker",
    "Capabilities",
    "Cost",
    "Drop",
    "EnsembleRanker",
    "JointRanker",
    "ListRanker",
    "Pipeline",
    "RANKERS",
    "Ranker",
    "Ranking",
    "Reader",
    "RetrievedDocument",
    "SequentialRanker",
    "TableReport",
    "Verdict",
    "Verifier",
    "build_ranker",
    "embed_words",
    "encode_documents",
    "load_ranker",
    "load_reader",
    "load_verifier",
    "rank_all",
    "relative_cost",
    "remove_documents",
    "save_run",
    "score_in_memory",
    "write_scores",
]
