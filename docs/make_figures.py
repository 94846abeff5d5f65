#!/usr/bin/env python3
"""Write the figures of README and the pages of docs/ from the files that hold them.

    python docs/make_figures.py
    python docs/make_figures.py --check

A page marks a figure, a word or a table by a name:

    It is <!--=gap-->12.8<!--/--> below the ensemble.

    <!--=times-->

    | | seconds |
    | --- | --- |
    | teacher | 4.1 |

    <!--/-->

What stands between the marks comes from ``docs/figures/PAGE.yaml``: ``page`` is the page, ``files``
names results and logs, and ``figures`` has a text for each name, with expressions in braces, such
as ``{small["MHS", "wikiqa_map"] - small["ensemble", "wikiqa_map"]:.1f}``, which
`wqa.evaluation.expressions` explains. A cell alone is printed as it is, a list of cells as cells of
a row, a number by the format behind the colon. Further names are

    claim["mhs/table2", "wilcoxon"]    what its tests say: shown, not shown, refuted, not refuted
    claims["mhs"]                      rows of all claims of a paper and what their tests say
    coverage["mhs"]                    rows of all tables and figures of a paper

A table whose figures have no file stands behind a comment that says where they are from:

    <!--typed: `make bench` of version 0.1.0; the log was not kept-->

``numbers`` lists what else has a decimal point on the page, such as settings; any other number
outside the marks is an error. --check writes nothing, prints what differs and exits 1.
"""

from __future__ import annotations

import argparse
import collections
import difflib
import functools
import pathlib
import re
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

from wqa.config.yaml_text import parse_yaml
from wqa.errors import DataError, WqaError, shorten
from wqa.evaluation.cells import Cell, TableFile
from wqa.evaluation.claims import find_claims
from wqa.evaluation.expressions import compute, number_of
from wqa.evaluation.judging import Judgement
from wqa.evaluation.layout import WORDS
from wqa.evaluation.reproduction import check

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = ("page", "files", "figures", "numbers")

MARKED = re.compile(r"<!--=([\w.-]+)-->.*?<!--/-->", re.DOTALL)
_EXPRESSION = re.compile(r"\{([^{}]+?)(?::([-+,.0-9]*[fd%]))?\}")
_DECIMAL = re.compile(r"(?<![\w.-])\d[\d,]*\.\d+(?![\w.]*\d)")
#: What holds no figures: comments, code, targets of links.
_ASIDE = re.compile(r"<!--.*?-->|```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)

Lookup = Callable[[Sequence[str]], Any]


def read_spec(path: pathlib.Path) -> Dict[str, Any]:
    """Read the texts of a page, whose keys are checked."""
    try:
        spec = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(path, f"cannot be read ({error})", "YAML without aliases") from None
    unknown = set(spec) - set(KEYS)
    if unknown or not {"page", "figures"} <= set(spec):
        found = ", ".join(sorted(unknown)) or "no page or no figures"
        raise DataError(path, found, "the keys " + ", ".join(KEYS))
    return spec


@functools.lru_cache(maxsize=None)
def read_file(path: str) -> TableFile:
    """Read a file of figures once for all pages."""
    return TableFile(ROOT / path)


@functools.lru_cache(maxsize=None)
def judgements() -> List[Judgement]:
    """Judge all committed figures."""
    return check("", ROOT / "recipes")


def outcome_of(words: Sequence[str]) -> str:
    """Outcome of a claim of a table."""
    table, name = words
    for judgement in judgements():
        for verdict in judgement.verdicts:
            if (judgement.file.name, verdict.name) == (table, name):
                return verdict.outcome
    raise DataError(f"claim {name}", f"{table} has no such claim", "a name of its file of claims")


def claims_of(words: Sequence[str]) -> str:
    """Rows of the claims of a paper and their outcomes."""
    lines = []
    for judgement in judgements():
        if judgement.file.folder.name == words[0]:
            lines += [f"| {verdict.claim} | {verdict.outcome} |" for verdict in judgement.verdicts]
    return "\n".join(lines)


def coverage(words: Sequence[str]) -> str:
    """Rows of a table of all tables and figures of a paper."""
    lines = []
    for file in find_claims(words[0], ROOT / "recipes"):
        scales = {"paper": "", "small": ""}
        reasons: List[str] = []
        if file.table.nothing:
            reasons.append(file.table.nothing)
        for judgement in judgements():
            if judgement.file.name == file.name:
                scales[judgement.scale] = status_of(judgement)
                reasons += [why for why in judgement.reasons() if why not in reasons]
        cells = [file.table.title, file.table.about, *scales.values(), "; ".join(reasons)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def status_of(judgement: Judgement) -> str:
    """Numbers of figures by status, and of claims."""
    words = {**WORDS, "shown": "shown beside another unit", "cannot": "not to be had"}
    counts = judgement.counts()
    parts = [f"{count} {words.get(status, status)}" for status, count in counts.items()]
    if judgement.verdicts:
        outcomes = collections.Counter(entry.outcome for entry in judgement.verdicts)
        listed = (f"{count} {outcome}" for outcome, count in outcomes.items())
        parts.append(f"claims: {', '.join(listed)}")
    return "; ".join(parts)


def names_of(spec: Dict[str, Any]) -> Dict[str, Lookup]:
    """What the names in the expressions of a page stand for."""
    names: Dict[str, Lookup] = {"claim": outcome_of, "claims": claims_of, "coverage": coverage}
    for name, path in spec.get("files", {}).items():
        names[name] = read_file(path).cell
    return names


def written(template: str, names: Dict[str, Lookup]) -> str:
    """A text with its expressions replaced by what they give."""

    def replaced(match: re.Match) -> str:
        value = compute(match[1], names)
        if match[2]:
            return format(number_of(value), match[2])
        cells = value if isinstance(value, list) else [value]
        return " | ".join(map(text_of, cells))

    return _EXPRESSION.sub(replaced, template.strip())


def text_of(value: Any) -> str:
    """Text of a value that has no format; an empty cell is blank."""
    if isinstance(value, Cell):
        return "" if value.is_empty else value.text
    if isinstance(value, str):
        return value
    raise DataError("expression", shorten(value), "a format behind it, such as :.1f")


def page_of(path: pathlib.Path) -> Tuple[pathlib.Path, str, str]:
    """A page, its text, and its text with all figures written anew."""
    spec = read_spec(path)
    page = ROOT / spec["page"]
    text = page.read_text(encoding="utf-8")
    names = names_of(spec)
    used = set()

    def replaced(match: re.Match) -> str:
        name = match[1]
        if name not in spec["figures"]:
            raise DataError(page, f"the mark {name}", f"a figure of {path}")
        used.add(name)
        try:
            made = written(spec["figures"][name], names)
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
    try:
        sys.exit(main(sys.argv[1:]))
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
