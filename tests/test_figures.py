"""Figures of the pages come from files, and claims from intervals: `recipes/tables.py`."""

import re

import pytest
from conftest import ROOT, load_module

from wqa.errors import DataError


@pytest.fixture
def tables():
    return load_module(ROOT / "recipes" / "tables.py")


def test_the_pages_are_what_their_sources_give(tables, capsys):
    status = tables.main(["--check"])
    assert status == 0, f"run make figures:\n{capsys.readouterr().out}"


def test_tables_of_results_stand_between_marks(tables):
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        outside = tables.MARKED.sub("", page.read_text(encoding="utf-8"))
        assert not re.findall(r"^\|.*$", outside, re.MULTILINE), page


#: Pages with tables of numbers that nobody measured here: counts in print, limits, sections.
UNMEASURED = ("corpora.md", "papers.md")
#: A cell with a figure: a number with a point, thousands, or a unit.
FIGURE = re.compile(
    r"[+-]?\d+([,.]\d+)+( (to|and|%|ms|s)\b.*)?|[+-]?\d+ ?(%|(s|ms|h|MiB|GiB|MB|GB)\b).{,25}"
)


def test_tables_of_figures_have_a_source(tables):
    """Those of README and the guides stand between marks, or behind a comment with their source."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in [path for path in pages if path.name not in UNMEASURED]:
        outside = tables.MARKED.sub("", page.read_text(encoding="utf-8"))
        for table in re.finditer(r"^(?:\|.*\n)+", outside, re.MULTILINE):
            rows = [line.strip("|").split("|")[1:] for line in table[0].splitlines()]
            cells = [cell.strip() for row in rows for cell in row]
            if any(map(FIGURE.fullmatch, cells)):
                before = outside[: table.start()].rstrip()
                assert re.search(r"<!--typed: [^>]{20,}-->$", before), f"{page}: {table[0]}"


@pytest.fixture
def pages(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    tables.read_file.cache_clear()
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
  gap: '{{ (t["one", "map"] - t["two", "map"]) | number("+.1f") }} of MAP'
  table: |
    | | MAP | P@1 |
    | --- | --- | --- |
    | one | {{ t["one", ["map", "p@1"]] }} |
"""


def test_figures_are_written_between_their_marks(tables, pages, capsys):
    (pages / "figures" / "page.yaml").write_text(SPEC)
    before = (pages / "page.md").read_text()
    assert tables.main(["--check"]) == 1
    assert "+It is <!--=gap-->+12.9 of MAP<!--/--> below." in capsys.readouterr().out
    assert (pages / "page.md").read_text() == before
    assert tables.main([]) == 0
    assert (pages / "page.md").read_text() == (
        "It is <!--=gap-->+12.9 of MAP<!--/--> below.\n\n<!--=table-->\n\n| | MAP | P@1 |\n"
        "| --- | --- | --- |\n| one | 78.36 (1.24) |  |\n\n<!--/-->\n\nAt 0.3 and `0.4`.\n"
    )
    assert tables.main(["--check"]) == 0


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("gap:", "lead:", "the mark gap"),
        ("  table: |", "  unused: '1'\n  table: |", "no mark for unused"),
        ("numbers: [0.3]", "numbers: []", "typed: 0.3"),
        ("numbers: [0.3]", "numbers: [0.3, 0.9]", "numbers that are not there: 0.9"),
        ("files:", "sources:", "sources; expected the keys"),
        ('t["one", "map"] -', 't["three", "map"] -', "0 rows"),
        ("t.tsv", "absent.tsv", "cannot be read"),
        ("page: docs", "page: [", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_page_is_one_error(old, new, message, tables, pages):
    assert old in SPEC
    (pages / "figures" / "page.yaml").write_text(SPEC.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        tables.main(["--check"])
    assert message in str(caught.value)


def test_holms_correction_by_hand(tables):
    # Sorted: 0.01 x 4, 0.02 x 3, 0.02 x 2 (not below the one before), 0.9.
    assert tables.holm([0.02, 0.9, 0.01, 0.02]) == pytest.approx([0.06, 0.9, 0.04, 0.06])
    assert tables.holm([]) == []


CLAIMS = """# a; b
metric  difference   low  high
map           +4.0  +2.0  +6.0
p@1           -0.5  -1.5  +0.5

# a; c
metric  difference   low  high
map           -0.1  -0.3  +0.1
"""


@pytest.fixture
def paper(pages):
    """Folder of a paper's recipes, with a comparison of systems."""
    folder = pages.parent / "recipes" / "paper"
    for name in ("published", "results"):
        (folder / name).mkdir(parents=True)
    (folder / "tests.txt").write_text(CLAIMS)
    return folder


@pytest.mark.parametrize(
    "comparison, metric, margin, better, says",
    [
        ("a; b", "map", 0, "second", "shown"),
        ("a; b", "map", 0, "first", "refuted"),
        ("a; b", "p@1", 0, "second", "open"),
        ("a; b", "p@1", 2, "second", "shown"),
        ("a; c", "map", 1, "second", "shown"),
        ("a; c", "map", 1, "first", "shown"),
    ],
)
def test_a_claim_is_judged_by_its_interval(tables, paper, comparison, metric, margin, better, says):
    (paper / "claims.tsv").write_text(
        "claim\tdata\tfile\tcomparison\tmetric\tmargin\tbetter\tscale\n"
        f"it\tX\ttests.txt\t{comparison}\t{metric}\t{margin}\t{better}\t1\n"
    )
    assert tables.claims_of("paper").endswith(f"| {says} |")


@pytest.mark.usefixtures("paper")
def test_the_p_value_is_that_of_the_interval(tables):
    """4 with a standard error of 4 / (2 x 1.96): 3.92 standard deviations from 0."""
    row = {"file": "tests.txt", "comparison": "a; b", "metric": "map", "margin": "0"}
    claim = tables.read_claim("paper", {**row, "better": "second", "scale": "1"})
    assert claim.p_value == pytest.approx(8.857e-05, rel=1e-3)
    claim = tables.read_claim("paper", {**row, "better": "second", "scale": "100"})
    assert claim.high == pytest.approx(600)


def test_a_headline_has_the_figure_in_print_and_ours(tables, paper):
    published = "table\trow\tdrop_ratio\tmap\n2\tMT\t0\t89.1\n"
    (paper / "published" / "table2.tsv").write_text(published)
    (paper / "results" / "small.tsv").write_text("row\tdrop_ratio\tx_map\nours\t0\t81.65\n")
    head = "figure\ttable\trow\tdrop_ratio\tcolumn\tresults\t"
    head += "our_row\tour_drop_ratio\tour_column\twhy\n"
    row = "MAP\t2\tMT\t0\tmap\tsmall\tours\t0\tx_map\tsmaller\n"
    (paper / "headline.tsv").write_text(head + row)
    assert tables.headline_of("paper") == "| MAP | 89.1 | 81.65 | smaller |"
