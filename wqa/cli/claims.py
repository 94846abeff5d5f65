"""Evaluation of runs that label claims, for `wqa evaluate`."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Sequence

from wqa.cli.options import metric_names
from wqa.cli.output import show
from wqa.errors import OptionError

#: Options of rankings, and their names in errors.
_OF_RANKINGS = {
    "drops": "drop_ratio and keep",
    "per_exit": "per_exit",
    "trec_run": "trec_run",
    "trec_qrels": "write_qrels",
    "total": "total",
    "ties": "ties",
    "cache": "cache",
}
#: The same, which have a default.
_WITH_DEFAULT = ("filter", "metrics", "pool", "pool_size")
#: Options of `wqa.systems.load_readers.load_verifier`.
_LOADING = ("ctx", "precision", "engine", "threads", "long_questions")


def labels_claims(runs: Sequence[str]) -> bool:
    """Whether RUNs are a single run that labels claims."""
    from wqa.systems.run_directory import run_kind

    return len(runs) == 1 and run_kind(runs[0]) == "labels"


def loading_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Options of `wqa.systems.load_readers.load_verifier`."""
    return {name: getattr(options, name) for name in _LOADING}


def evaluate_claims(options: argparse.Namespace) -> None:
    """Evaluate a run that labels claims, and print its label accuracy and the confusion."""
    from wqa.data import read_claims
    from wqa.data.claims import LABELS
    from wqa.evaluation import label_accuracy
    from wqa.io.progress import with_bar
    from wqa.systems.load_readers import load_verifier
    from wqa.text import naming_file, note_long_questions

    _check_options(options)
    claims = list(read_claims(options.data))
    verifier = load_verifier(options.runs[0], **loading_options(options))
    with naming_file(options.data):
        prepared = verifier.prepare(claims)
    labelled = with_bar(
        verifier.label_all(prepared.claims), len(prepared.claims), "labelling", True, "claim"
    )
    predictions = {}
    cut = unread = 0
    for claim, verdict in zip(prepared.claims, labelled):
        predictions[claim.id] = verdict.label
        cut += sum(verdict.truncated)
        unread += verdict.unread
    scores = label_accuracy(predictions, prepared.claims)
    note_long_questions(prepared.truncated, prepared.skipped, names=verifier.texts)
    result = {
        "claims": scores.claims,
        "accuracy": scores.accuracy,
        "labels": list(LABELS),
        "confusion": [list(row) for row in scores.confusion],
        "truncated_claims": prepared.truncated,
        "skipped_claims": prepared.skipped,
        "truncated_evidence": cut,
        "unread_evidence": unread,
    }
    show("\n".join([*_title(result), scores.table()]), result, options.json)


def _check_options(options: argparse.Namespace) -> None:
    names: List[str] = []
    for name, shown in _OF_RANKINGS.items():
        if getattr(options, name):
            names.append(shown)
    for name in _WITH_DEFAULT:
        default = options.parser.get_default(name)
        if name == "metrics":
            default = metric_names(default)
        if getattr(options, name) != default:
            names.append(name)
    if names:
        raise OptionError(names[0], "with a RUN that labels claims and ranks nothing", "a ranker")


def _title(result: Dict[str, Any]) -> List[str]:
    title = f"{result['claims']:,} claims, label accuracy {100 * result['accuracy']:.2f}"
    if result["skipped_claims"]:
        title += f", {result['skipped_claims']:,} over-long left out"
    parts = []
    for name, what in (("truncated_evidence", "shortened"), ("unread_evidence", "not read")):
        if result[name]:
            parts.append(f"{result[name]:,} {what}")
    if not parts:
        return [title]
    return [title, "evidence: " + ", ".join(parts)]
