"""Figures of the pages come from files: `make figures`."""

import importlib.util
import re

import pytest
from conftest import ROOT

from wqa.errors import DataError


@pytest.fixture
def make_figures():
    path = ROOT / "docs" / "make_figures.py"
    spec = importlib.util.spec_from_file_location("make_figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_their_sources_give(make_figures, capsys):
    status = make_figures.main(["--check"])
    assert status == 0, f"run make figures:\n{capsys.readouterr().out}"


def test_tables_of_results_stand_between_marks(make_figures):
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        outside = make_figures.MARKED.sub("", page.read_text(encoding="utf-8"))
        assert not re.findall(r"^\|.*$", outside, re.MULTILINE), page


#: Pages with tables of numbers that nobody measured here: counts in print, limits, sections.
UNMEASURED = ("corpora.md", "papers.md")
#: A cell with a figure: a number with a point, thousands, or a unit.
FIGURE = re.compile(
    r"[+-]?\d+([,.]\d+)+( (to|and|%|ms|s)\b.*)?|[+-]?\d+ ?(%|(s|ms|h|MiB|GiB|MB|GB)\b).{,25}"
)


def test_tables_of_figures_have_a_source(make_figures):
    """Those of README and the guides stand between marks, or behind a comment with their source."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in [path for path in pages if path.name not in UNMEASURED]:
        outside = make_figures.MARKED.sub("", page.read_text(encoding="utf-8"))
        for table in re.finditer(r"^(?:\|.*\n)+", outside, re.MULTILINE):
            rows = [line.strip("|").split("|")[1:] for line in table[0].splitlines()]
            cells = [cell.strip() for row in rows for cell in row]
            if any(map(FIGURE.fullmatch, cells)):
                before = outside[: table.start()].rstrip()
                assert re.search(r"<!--typed: [^>]{20,}-->$", before), f"{page}: {table[0]}"


@pytest.fixture
def pages(make_figures, tmp_path, monkeypatch):
    monkeypatch.setattr(make_figures, "ROOT", tmp_path)
    make_figures.read_file.cache_clear()
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "t.tsv").write_text("row\tmap\tp@1\none\t78.36 (1.24)\t-\ntwo\t65.50\t70\n")
    (tmp_path / "docs" / "page.md").write_text(
        "It is <!--=gap-->1.0<!--/--> below.\n\n<!--=table-->\nold\n<!--/-->\n\nAt 0.3 and `0.4`.\n"
    )
    return tmp_path / "docs"


SPEC = """page: docs/page.md
files: {t: t.tsv}
numbers: [0.3]
figures:
  gap: '{t["one", "map"] - t["two", "map"]:+.1f} of MAP'
  table: |
    | | MAP | P@1 |
    | --- | --- | --- |
    | one | {t["one", ["map", "p@1"]]} |
"""


def test_figures_are_written_between_their_marks(make_figures, pages, capsys):
    (pages / "figures" / "page.yaml").write_text(SPEC)
    before = (pages / "page.md").read_text()
    assert make_figures.main(["--check"]) == 1
    assert "+It is <!--=gap-->+12.9 of MAP<!--/--> below." in capsys.readouterr().out
    assert (pages / "page.md").read_text() == before
    assert make_figures.main([]) == 0
    assert (pages / "page.md").read_text() == (
        "It is <!--=gap-->+12.9 of MAP<!--/--> below.\n\n<!--=table-->\n\n| | MAP | P@1 |\n"
        "| --- | --- | --- |\n| one | 78.36 (1.24) |  |\n\n<!--/-->\n\nAt 0.3 and `0.4`.\n"
    )
    assert make_figures.main(["--check"]) == 0


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("gap:", "lead:", "the mark gap"),
        ("  table: |", "  unused: '1'\n  table: |", "no mark for unused"),
        ("numbers: [0.3]", "numbers: []", "typed: 0.3"),
        ("numbers: [0.3]", "numbers: [0.3, 0.9]", "numbers that are not there: 0.9"),
        ("files:", "sources:", "sources; expected the keys"),
        (":+.1f", "", "a format behind it"),
        ('t["one", "map"] -', 't["three", "map"] -', "0 rows"),
        ("t.tsv", "absent.tsv", "cannot be read"),
        ("page: docs", "page: [", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_page_is_one_error(old, new, message, make_figures, pages):
    assert old in SPEC
    (pages / "figures" / "page.yaml").write_text(SPEC.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        make_figures.main(["--check"])
    assert message in str(caught.value)


def test_outcomes_of_claims(make_figures):
    assert make_figures.outcome_of(["mhs/table2", "distillation"]) == "not shown"
    assert "| transfer helps | shown |" in make_figures.claims_of(["cascade"]).splitlines()
    with pytest.raises(DataError, match="no such claim"):
        make_figures.outcome_of(["mhs/table2", "absent"])
