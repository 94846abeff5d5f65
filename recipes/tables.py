#!/usr/bin/env python3
"""Write the figures of README and the pages of docs/ from the files that hold them.

    python recipes/tables.py
    python recipes/tables.py --check

A page marks a figure, a word or a table by a name:

    It is <!--=gap-->12.8<!--/--> below the ensemble.

    <!--=times-->

    | | seconds |
    | --- | --- |
    | teacher | 4.1 |

    <!--/-->

What stands between the marks comes from ``docs/figures/PAGE.yaml``: ``page`` is the page, ``files``
names results and logs, and ``figures`` has a template of Jinja for each name, such as
``{{ (small["MHS", "wikiqa_map"] - small["ensemble", "wikiqa_map"]) | number(".1f") }}``. The last
word in brackets is a column, or a list of them, for a row; those before it are a section, if the
file has any, and the first cells of a row (`figure_files.py`). A cell alone is printed as it is.
Further functions are

    p(CELL)            a p-value
    cost(CELL)         a relative cost, from a difference in per cent
    claims("mhs")      rows of the claims of a paper, with their intervals and what they say
    headline("mhs")    rows of a paper's main figures: in the paper, here, and why they differ

A table whose figures have no file stands behind a comment that says where they are from:

    <!--typed: `make bench` of version 0.1.0; the log was not kept-->

``numbers`` lists what else has a decimal point on the page, such as settings; any other number
outside the marks is an error. --check writes nothing, prints what differs and exits 1.

A claim is a row of ``recipes/PAPER/claims.tsv``: which of two systems is better, or no worse by a
margin that the row names, on the paired differences of a file. Its p-value is that of a normal
distribution with the width of the bootstrap interval; those of a paper are corrected by Holm's
method. A claim is shown or refuted at 5 %, and open otherwise.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import math
import pathlib
import re
import sys
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import jinja2
import yaml
from figure_files import TableFile

from wqa.errors import DataError, WqaError, run_script, shorten
from wqa.evaluation.report import read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = ("page", "files", "figures", "numbers")

MARKED = re.compile(r"<!--=([\w.-]+)-->.*?<!--/-->", re.DOTALL)
_DECIMAL = re.compile(r"(?<![\w.-])\d[\d,]*\.\d+(?![\w.]*\d)")
#: What holds no figures: comments, code, targets of links.
_ASIDE = re.compile(r"<!--.*?-->|```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)


def read_spec(path: pathlib.Path) -> Dict[str, Any]:
    """Read the texts of a page, whose keys are checked."""
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise DataError(path, f"cannot be read ({error})", "YAML") from None
    unknown = set(spec) - set(KEYS)
    if unknown or not {"page", "figures"} <= set(spec):
        found = ", ".join(sorted(unknown)) or "no page or no figures"
        raise DataError(path, found, "the keys " + ", ".join(KEYS))
    return spec


@functools.lru_cache(maxsize=None)
def read_file(path: str) -> TableFile:
    """Read a file of figures once for all pages."""
    return TableFile(ROOT / path)


#: Level of a test, and the standard deviations of half a 95 % interval.
LEVEL, HALF_WIDTH = 0.05, 1.96


class Claim(NamedTuple):
    """A claim, the interval of its difference, and its p-value before the correction."""

    row: Dict[str, str]
    difference: float
    low: float
    high: float
    p_value: float


def read_claim(paper: str, row: Dict[str, str]) -> Claim:
    """Look up the difference of a claim, and test it against its margin."""
    file = read_file(f"recipes/{paper}/{row['file']}")
    words = [row["comparison"], row["metric"]]
    values = [file.cell([*words, name]) for name in ("difference", "low", "high")]
    difference, low, high = (float(row["scale"]) * value for value in values)
    if row["better"] == "first":
        difference, low, high = -difference, -high, -low
    error = max(high - low, 1e-9) / (2 * HALF_WIDTH)
    distance = abs(difference + float(row["margin"])) / error
    return Claim(row, difference, low, high, math.erfc(distance / math.sqrt(2)))


def holm(p_values: Sequence[float]) -> List[float]:
    """Correct p-values by Holm's method (1979).

    Parameters
    ----------
    p_values : sequence of float
        p-values of the claims of a paper.

    Returns
    -------
    list of float
        Corrected ones, in the same order.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    greatest = 0.0
    for rank, index in enumerate(order):
        greatest = max(greatest, (len(order) - rank) * p_values[index])
        corrected[index] = min(1.0, greatest)
    return corrected


def claims_of(paper: str) -> str:
    """Rows of the claims of a paper."""
    rows = read_rows(ROOT / "recipes" / paper / "claims.tsv", ("claim", "data"))
    claims = [read_claim(paper, row) for row in rows]
    lines = []
    for claim, p_value in zip(claims, holm([claim.p_value for claim in claims])):
        margin = float(claim.row["margin"])
        says = "open"
        if p_value < LEVEL:
            says = "shown" if claim.difference > -margin else "refuted"
        interval = f"{claim.difference:+.1f} ({claim.low:+.1f} to {claim.high:+.1f})"
        printed = f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"
        cells = [claim.row["claim"], claim.row["data"], interval]
        cells += [f"{margin:g}" if margin else "", printed, says]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def headline_of(paper: str) -> str:
    """Rows of the main figures of a paper."""
    folder = f"recipes/{paper}"
    lines = []
    for row in read_rows(ROOT / folder / "headline.tsv", ("figure", "table")):
        published = read_file(f"{folder}/published/table{row['table']}.tsv")
        ours = read_file(f"{folder}/results/{row['results']}.tsv")
        theirs = published.cell([row["table"], row["row"], row["drop_ratio"], row["column"]])
        here = ours.cell([row["our_row"], row["our_drop_ratio"], row["our_column"]])
        lines.append(f"| {row['figure']} | {theirs.text} | {here.text} | {row['why']} |")
    return "\n".join(lines)


def number(value: Any, specification: str) -> str:
    """A number by a format such as ``.1f``."""
    if math.isnan(value):
        where = getattr(value, "where", "expression")
        raise DataError(where, shorten(str(value)), "a number")
    return format(float(value), specification)


def p_text(value: float) -> str:
    """A p-value with two digits, or three where it is small."""
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.{3 if value < 0.0095 else 2}f}"


def cost_text(difference: float) -> str:
    """A relative cost with two digits, or 1 for the full network's."""
    return number(1 + difference / 100, ".2f") if difference else "1"


TEMPLATES = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
TEMPLATES.filters["number"] = number
TEMPLATES.globals.update(claims=claims_of, headline=headline_of, p=p_text, cost=cost_text, max=max)


def written(template: str, files: Dict[str, TableFile]) -> str:
    """A template with its expressions replaced by what they give."""
    try:
        return TEMPLATES.from_string(template).render(files).strip()
    except (jinja2.TemplateError, TypeError, ZeroDivisionError) as error:
        raise DataError(
            "template", shorten(str(error)), "expressions over cells of files"
        ) from None


def page_of(path: pathlib.Path) -> Tuple[pathlib.Path, str, str]:
    """A page, its text, and its text with all figures written anew."""
    spec = read_spec(path)
    page = ROOT / spec["page"]
    text = page.read_text(encoding="utf-8")
    files = {name: read_file(file) for name, file in spec.get("files", {}).items()}
    used = set()

    def replaced(match: re.Match) -> str:
        name = match[1]
        if name not in spec["figures"]:
            raise DataError(page, f"the mark {name}", f"a figure of {path}")
        used.add(name)
        try:
            made = written(spec["figures"][name], files)
        except WqaError as error:
            raise DataError(f"{path}, {name}", error) from None
        if "\n" in made:
            made = f"\n\n{made}\n\n"
        return f"<!--={name}-->{made}<!--/-->"

    new = MARKED.sub(replaced, text)
    left = set(spec["figures"]) - used
    if left:
        raise DataError(path, f"no mark for {', '.join(sorted(left))}", f"one on {page}")
    if "numbers" in spec:
        check_unmarked(page, new, set(map(str, spec["numbers"])))
    return page, text, new


def check_unmarked(page: pathlib.Path, text: str, allowed: set) -> None:
    """Refuse numbers with a decimal point outside the marks, but for those that are allowed."""
    outside = MARKED.sub("", text)
    typed = set(_DECIMAL.findall(_ASIDE.sub("", outside)))
    if typed - allowed:
        found = f"typed: {', '.join(sorted(typed - allowed))}"
        raise DataError(page, found, "figures between marks, or in the list numbers of its YAML")
    if allowed - typed:
        found = f"numbers that are not there: {', '.join(sorted(allowed - typed))}"
        raise DataError(page, found, "only numbers of the page")


def main(arguments: Sequence[str] = ()) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(list(arguments))
    status = 0
    for path in sorted((ROOT / "docs" / "figures").glob("*.yaml")):
        page, old, new = page_of(path)
        if old == new:
            continue
        if options.check:
            status = 1
            name = str(page.relative_to(ROOT))
            lines = difflib.unified_diff(
                old.splitlines(), new.splitlines(), name, "from its sources", lineterm="", n=0
            )
            print("\n".join(lines))
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    run_script(main, sys.argv[1:])
