"""Metrics equal to trec_eval's, rankers evaluated, TREC files, tables. Nothing here needs MXNet.

`wqa.evaluation.comparison` compares runs. It is not imported here, as it loads scipy.
"""

from wqa.evaluation.answers import (
    LabelScores,
    claim_evaluator,
    exact_match,
    f1,
    label_accuracy,
    reading_evaluator,
    score_answers,
    write_predictions,
)
from wqa.evaluation.evaluate import evaluate, score_run
from wqa.evaluation.metrics import (
    METRICS,
    average_precision,
    beyond_retrieval,
    hit,
    lost_by_ranking,
    ndcg,
    precision,
    reciprocal_rank,
)
from wqa.evaluation.rankers import dev_evaluator, evaluate_ranker
from wqa.evaluation.report import table
from wqa.evaluation.trec import (
    by_document_id,
    qrels_from,
    read_qrels,
    read_run,
    write_qrels,
    write_run,
)

__all__ = [
    "LabelScores",
    "METRICS",
    "average_precision",
    "beyond_retrieval",
    "by_document_id",
    "claim_evaluator",
    "dev_evaluator",
    "evaluate",
    "evaluate_ranker",
    "exact_match",
    "f1",
    "hit",
    "label_accuracy",
    "lost_by_ranking",
    "ndcg",
    "precision",
    "qrels_from",
    "read_qrels",
    "read_run",
    "reciprocal_rank",
    "reading_evaluator",
    "score_answers",
    "score_run",
    "table",
    "write_predictions",
    "write_qrels",
    "write_run",
]
