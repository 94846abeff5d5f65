"""Judged tables as text."""

from __future__ import annotations

import pathlib
import textwrap
from typing import Dict, List, Sequence, Tuple

from wqa.errors import printable
from wqa.evaluation.judging import FAILURES, Judgement
from wqa.evaluation.report import LARGEST_TABLE, WIDTH, align, lay_out
from wqa.io.lines import text_lines

#: Statuses in words.
WORDS = {
    "shown": "shown beside another unit or other hardware",
    "differs": "known to differ",
    "cannot": "cannot be had here",
}


def matrix(judgement: Judgement, width: int = WIDTH) -> str:
    """Lay out a table's figures, published beside reproduced, and its claims.

    Parameters
    ----------
    judgement : Judgement
        The table at one scale.
    width : int
        Greatest length of a line, in characters, where a table can be divided.

    Returns
    -------
    str
        The text, without a newline at its end.
    """
    table = judgement.file.table
    parts = [f"{table.title}: {table.about} ({summary(judgement)})"]
    reasons = {why: f"({number})" for number, why in enumerate(judgement.reasons(), 1)}
    rows: Dict[Tuple[str, str], Dict[str, str]] = {}
    for figure in judgement.figures:
        keys = (figure.row, figure.drop_ratio)
        row = rows.setdefault(keys, {"row": keys[0], "drop_ratio": keys[1]})
        ours = "" if figure.reproduced.is_empty else f"{figure.reproduced.text} "
        mark = reasons.get(figure.why, "") or figure.status
        row[figure.column] = f"{figure.published.text} | {ours}{mark}"
    if rows:
        columns = dict.fromkeys(name for row in rows.values() for name in row)
        whole = []
        for row in rows.values():
            whole.append({name: row.get(name, "-") for name in columns})
        parts.append(lay_out(whole, width))
        parts.append(_units(judgement))
    statuses = {figure.why: figure.status for figure in judgement.figures}
    for why, mark in reasons.items():
        words = WORDS.get(statuses[why], statuses[why])
        parts.append(f"{mark} {words}: {why}")
    if table.published:
        parts += _remarks(judgement.file.folder / table.published, width)
    for verdict in judgement.verdicts:
        shown = f"{verdict.outcome} {verdict.status}".strip()
        parts.append(f"claim: {verdict.claim}: {shown}")
    for name, runs in judgement.file.scale(judgement.scale).runs.items():
        parts.append(f"TREC runs of {name}: {', '.join(runs)}")
    return "\n".join(map(_printable, parts))


def _units(judgement: Judgement) -> str:
    columns: Dict[str, Dict[str, None]] = {}
    for figure in judgement.figures:
        columns.setdefault(figure.unit, {})[figure.column] = None
    if len(columns) == 1:
        return f"unit: {next(iter(columns))}"
    return "units: " + "; ".join(f"{', '.join(names)}: {unit}" for unit, names in columns.items())


def _remarks(published: pathlib.Path, width: int) -> List[str]:
    """Lines of the remarks on a published table, if there are any."""
    path = published.with_suffix(".txt")
    if not path.exists():
        return []
    texts = [line.strip() for _, line in text_lines(path, largest=LARGEST_TABLE)]
    return textwrap.wrap(" ".join(texts), width)


def _printable(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def summary(judgement: Judgement) -> str:
    """How many figures have which status, in words."""
    counts = judgement.counts()
    words = [f"{count} {WORDS.get(status, status)}" for status, count in counts.items()]
    failed = [verdict.claim for verdict in judgement.verdicts if verdict.status in FAILURES]
    if judgement.verdicts:
        words.append(f"{len(judgement.verdicts) - len(failed)} claims OK")
    if failed:
        words.append(f"{len(failed)} FAIL")
    return f"at the {judgement.scale} scale: " + ", ".join(words or ["no figure"])


def overview(judgements: Sequence[Judgement]) -> str:
    """Lay out a line for each table, and one for each figure or claim that fails.

    Parameters
    ----------
    judgements : sequence of Judgement
        Judged tables.

    Returns
    -------
    str
        The text, without a newline at its end.
    """
    lines = [align([(entry.file.name, summary(entry)) for entry in judgements], left=2)]
    for judgement in judgements:
        for figure in judgement.figures:
            if figure.status in FAILURES:
                lines.append(
                    f"{judgement.file.name}, {figure.title}: {figure.status}, {figure.why}"
                )
        for verdict in judgement.verdicts:
            if verdict.status in FAILURES:
                lines.append(
                    f"{judgement.file.name}, {verdict.claim}: {verdict.status}, {verdict.why}"
                )
    return "\n".join(map(_printable, lines))
