"""One table of several rankers: each measure of each, and its p-value against the first ranker.

The table is that of PyTerrier's ``Experiment`` (Macdonald et al. 2021), made of what
`wqa.evaluation.comparison` returns.
"""

from __future__ import annotations

import csv
import io
import math
from typing import Any, Dict, List, Mapping, Sequence

from wqa.errors import check_choice, printable

#: Level below which a difference is marked in LaTeX.
SIGNIFICANT = 0.05

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def experiment_rows(result: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Rows of an experiment.

    Parameters
    ----------
    result : mapping
        What `wqa.evaluation.comparison.compare_rankers` or ``compare_trec_runs`` returns.

    Returns
    -------
    list of dict
        For each ranker its ``run`` and ``drop_ratio``, a dash where there is none; the mean of each
        measure, and beside it, as ``MEASURE_p``, the p-value of the paired t-test against the first
        ranker: None for the first ranker itself, and where the test has no value; then the
        ``cost`` of rankers, which TREC runs do not have.
    """
    rows = []
    for index, figures in enumerate(result["rows"]):
        row = {"run": figures["run"], "drop_ratio": figures.get("drop_ratio", "-")}
        for number, measured in enumerate(result["comparisons"][0]["metrics"]):
            name = measured["metric"]
            p_value = None
            if index:
                p_value = result["comparisons"][index - 1]["metrics"][number]["t_test"]
            row[name] = figures[name]
            row[f"{name}_p"] = None if p_value is None or math.isnan(p_value) else p_value
        if "cost" in figures:
            row["cost"] = figures["cost"]
        rows.append(row)
    return rows


def experiment_table(result: Mapping[str, Any], form: str) -> str:
    """Lay out an experiment for another program or for a paper.

    Parameters
    ----------
    result : mapping
        As `experiment_rows` takes it.
    form : {"csv", "latex"}
        ``csv`` has the columns of `experiment_rows`, figures as fractions of 1 in full precision.
        ``latex`` is a tabular of booktabs, with figures in per cent, the greatest of each measure
        in bold, and a dagger where a difference from the first ranker has p < 0.05.

    Returns
    -------
    str
        The table, with a newline at its end.

    Raises
    ------
    OptionError
        If the form is unknown.
    """
    check_choice("form", form, ("csv", "latex"))
    rows = experiment_rows(result)
    return _csv(rows) if form == "csv" else _latex(rows, result)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _latex(rows: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> str:
    measures = [measured["metric"] for measured in result["comparisons"][0]["metrics"]]
    greatest = {name: max(row[name] for row in rows) for name in measures}
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(measures)}}}",
        r"\toprule",
        " & ".join(["run", *map(_escaped, measures)]) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [_escaped(_title(row))]
        cells += [_figure(row, name, greatest[name]) for name in measures]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _title(row: Mapping[str, Any]) -> str:
    if row["drop_ratio"] == "-":
        return row["run"]
    return f"{row['run']} at {row['drop_ratio']}"


def _figure(row: Mapping[str, Any], name: str, greatest: float) -> str:
    text = f"{100 * row[name]:.2f}"
    if row[name] == greatest:
        text = rf"\textbf{{{text}}}"
    p_value = row[f"{name}_p"]
    if p_value is not None and p_value < SIGNIFICANT:
        text += r"$^{\dagger}$"
    return text


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in printable(text))
