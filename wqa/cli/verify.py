"""Tell whether evidence supports or refutes a claim.

examples:
  wqa verify runs/claims --claim "Glacier caves form by melting ." --evidence sentences.txt
  grep -i glacier notes.txt | wqa verify runs/claims --claim "Glacier caves form by melting ." \\
      --evidence -

Evidence is read one piece a line, the best first: FEVER's is a title, a point and a sentence. The
run reads the first k pieces, and the text "no doc. " where there is none. The table shows the
probability of each label, the greatest first. `wqa evaluate` labels a file of claims. --json writes
all fields.
"""

from __future__ import annotations

import argparse
from typing import Any, Sequence

from wqa.cli.options import add_engine, add_json, add_long_questions, loading_options, refuse, show
from wqa.cli.rank import read_lines, utf8_argument

#: Options of rankings.
_OF_RANKINGS = (
    *("drop_rows", "per_exit", "trec_run", "trec_qrels", "total", "ties", "cache"),
    *("filter", "metrics", "pool", "pool_size", "run_metadata", "long_candidates"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa verify`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run of `wqa train mspp_claims`")
    parser.add_argument("--claim", required=True, metavar="TEXT", help="the claim")
    text = "evidence, one piece a line; - for standard input (default: none)"
    parser.add_argument("--evidence", metavar="FILE", help=text)
    add_json(parser)
    add_engine(parser)
    add_long_questions(parser, ("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa verify`` and print the label of the claim."""
    claim = utf8_argument(options.claim, "claim")
    evidence = read_lines(options.evidence) if options.evidence else []
    # MXNet takes a second to load, longer than the errors above need.
    from wqa.systems.run_directory import load_verifier

    verdict = load_verifier(options.run, **loading_options(options)).label(claim, evidence)
    result = {"claim": claim, **verdict._asdict()}
    result["truncated"] = list(verdict.truncated)
    show(_table(verdict), result, options.json)


def _table(verdict: Any) -> str:
    lines = ["probability  label"]
    for label, value in sorted(verdict.probabilities.items(), key=lambda item: -item[1]):
        lines.append(f"{value:11.4f}  {label}")
    if verdict.claim_truncated:
        lines.append("the claim is shortened")
    pieces = f"of {len(verdict.truncated):,} pieces of evidence are"
    if any(verdict.truncated):
        lines.append(f"{sum(verdict.truncated):,} {pieces} shortened")
    if verdict.unread:
        lines.append(f"{verdict.unread:,} {pieces} not read")
    return "\n".join(lines)


def labels_claims(runs: Sequence[str]) -> bool:
    """Whether RUNs are a single run that labels claims."""
    from wqa.systems.registry import run_kind

    return len(runs) == 1 and run_kind(runs[0]) == "labels"


def evaluate_claims(options: argparse.Namespace) -> None:
    """Evaluate a run that labels claims, and print its label accuracy and the confusion."""
    from wqa.data import read_claims
    from wqa.data.documents import LABELS
    from wqa.evaluation import label_accuracy
    from wqa.io.progress import with_bar
    from wqa.systems.run_directory import load_verifier
    from wqa.text import naming_file, note_long_questions

    problem = "with a RUN that labels claims and ranks nothing"
    refuse(options, _OF_RANKINGS, problem, "a ranker")
    claims = list(read_claims(options.data))
    verifier = load_verifier(options.runs[0], **loading_options(options))
    with naming_file(options.data):
        prepared = verifier.prepare(claims)
    verdicts, count = verifier.label_all(prepared.questions), len(prepared.questions)
    labelled = with_bar(verdicts, count, "labelling", True, "claim")
    predictions = {}
    cut = unread = 0
    for claim, verdict in zip(prepared.questions, labelled):
        predictions[claim.id] = verdict.label
        cut += sum(verdict.truncated)
        unread += verdict.unread
    scores = label_accuracy(predictions, prepared.questions)
    note_long_questions(prepared.truncated, prepared.skipped)
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
    title = f"{scores.claims:,} claims, label accuracy {100 * scores.accuracy:.2f}"
    if prepared.skipped:
        title += f", {prepared.skipped:,} over-long left out"
    if cut or unread:
        title += f"\nevidence: {cut:,} shortened, {unread:,} not read"
    show(f"{title}\n{scores.table()}", result, options.json)
