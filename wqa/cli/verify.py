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
from typing import Any, List

from wqa.cli.claims import loading_options
from wqa.cli.options import add_engine, add_long_questions
from wqa.cli.output import add_json, show
from wqa.cli.rank import read_lines, utf8_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa verify`` to its parser."""
    parser.add_argument("run", metavar="RUN", help="run of `wqa train mspp_claims`")
    parser.add_argument("--claim", required=True, metavar="TEXT", help="the claim")
    parser.add_argument(
        "--evidence",
        metavar="FILE",
        help="evidence, one piece a line; - for standard input (default: none)",
    )
    add_json(parser)
    add_engine(parser)
    add_long_questions(parser, ("error", "truncate"))


def run(options: argparse.Namespace) -> None:
    """Run ``wqa verify`` and print the label of the claim."""
    claim = utf8_argument(options.claim, "claim")
    evidence: List[str] = []
    if options.evidence:
        evidence = read_lines(options.evidence, "evidence")
    # MXNet takes a second to load, longer than the errors above need.
    from wqa.systems.load_readers import load_verifier

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
