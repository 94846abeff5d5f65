"""Metrics equal to trec_eval's, TREC files, tables. Nothing here needs MXNet."""

from wqa.evaluation.evaluate import evaluate, score_run, table
from wqa.evaluation.metrics import METRICS, average_precision, ndcg, precision, reciprocal_rank
from wqa.evaluation.trec import qrels_from, read_qrels, read_run, write_qrels, write_run

__all__ = [
    "METRICS",
    "average_precision",
    "evaluate",
    "ndcg",
    "precision",
    "qrels_from",
    "read_qrels",
    "read_run",
    "reciprocal_rank",
    "score_run",
    "table",
    "write_qrels",
    "write_run",
]
