import math

import pytest

from wqa.errors import DataError
from wqa.evaluation.cells import Cell, TableFile, compute

#: What `wqa compare` prints of two runs, with a title of a recipe.
COMPARED = """# (a) wikiqa: transfer, seed 0
243 questions scored, filter all
       run    map    p@1
one.0.trec  72.63  60.91

two less one; Spearman's rho of the rankings 0.783
metric  first  second  difference  t_test
   map  72.63   77.99        5.35  0.0013
   p@1  60.91   67.08        6.17  0.0000

# (a) wikiqa: transfer, seed 0, longer
metric  first  second  difference  t_test
   map  72.63   73.63        1.00  0.2300

| variant | drop ratio | t-test |
| --- | ---: | ---: |
| all | 0 | 0.777 |
| all | 0.3 | 0.388 |
"""


@pytest.fixture
def names(tmp_path):
    (tmp_path / "t.tsv").write_text(
        "row\tdrop_ratio\tmap\tparams\tspeed\nCT\t0\t78.36 (1.24)\t904k\t10.3x\n"
        "CT\t0.3\t77.75 (1.14)\t1,129,501\t-\nMT\t0\t78.17\t1.17M\t\n"
    )
    (tmp_path / "tests.txt").write_text(COMPARED)
    (tmp_path / "log.txt").write_text(
        "ms a question: 46.9 to encode it, 1.9 to read\nroberta_12_768_12 of -3 takes 1,000 s\n"
    )
    files = {"t": "t.tsv", "tests": "tests.txt", "log": "log.txt"}
    return {name: TableFile(tmp_path / path).cell for name, path in files.items()}


@pytest.mark.parametrize(
    "expression, value",
    [
        ('t["CT", 0.3, "map"]', 77.75),
        ('t["MT", "map"] - t["CT", 0, "map"]', -0.19),
        ('deviation(t["CT", 0, "map"])', 1.24),
        ('t["CT", 0, "params"]', 904_000),
        ('t["CT", 0.3, "params"]', 1_129_501),
        ('t["MT", 0, "params"]', 1_170_000),
        ('t["CT", 0, "speed"]', 10.3),
        ('tests["(a) wikiqa: transfer, seed 0", "map", "difference"]', 5.35),
        ('tests["(a) wikiqa: transfer, seed 0, longer", "map", "difference"]', 1.0),
        ('tests["(a) wikiqa: transfer, seed 0, lon", "all", "0.3", "t_test"]', 0.388),
        ('tests["(a) wikiqa: transfer, seed 0", "one.0.trec", "map"]', 72.63),
        ('log["ms a question", 2]', 1.9),
        ('log["roberta_12_768_12 of # takes # s", 2]', 1000),
        ("mean(1, 2) * max(3, 4) / abs(-2) + min(1, 2)", 4),
    ],
)
def test_figures_of_files(expression, value, names):
    result = compute(expression, names)
    assert getattr(result, "value", result) == pytest.approx(value)


def test_text_lists_and_comparisons(names):
    assert compute('t["CT", 0, "map"]', names).text == "78.36 (1.24)"
    cells = compute('t["CT", 0, ["map", "params"]]', names)
    assert [cell.text for cell in cells] == ["78.36 (1.24)", "904k"]
    assert compute('1 <= t["CT", 0.3, "map"] < 78', names) is True
    assert compute('t["CT", 0.3, "map"] > 78', names) is False
    longer = '"(a) wikiqa: transfer, seed 0, longer", "map", "t_test"'
    assert compute(f"p(tests[{longer}])", names) == "p = 0.23"
    seed = '"(a) wikiqa: transfer, seed 0"'
    assert compute(f'p(tests[{seed}, "map", "t_test"])', names) == "p = 0.001"
    assert compute(f'p(tests[{seed}, "p@1", "t_test"])', names) == "p < 0.001"


@pytest.mark.parametrize(
    "expression, message",
    [
        ('t["CT", "map"]', "2 rows and columns of 'CT', 'map'; expected one; name more"),
        ('t["CT", 0, "mrr"]', "its columns are row, drop_ratio, map, params, speed"),
        ('t["AT", 0, "map"]', "0 rows"),
        ('tests["(b)", "map", "t_test"]', "0 sections"),
        ('tests["(a)", "map", "t_test"]', "2 sections"),
        ('t["CT", 0.3, "speed"] + 1', "line 3: '-'; expected a number"),
        ('x["CT"]', "x is none of t, tests, log"),
        ('eval("1")', "eval is none of abs"),
        ('t["CT", 0, "map"].text', "Attribute is no part of one"),
        ("1 / 0", "division by zero"),
        ("1 +", "invalid syntax"),
        ("t[name]", "cannot be computed"),
    ],
)
def test_what_cannot_be_computed_is_one_error(expression, message, names):
    with pytest.raises(DataError) as caught:
        compute(expression, names)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text, rounding", [("88.9", 0.05), ("77.1 (2.1)", 0.05), ("1.12M", 5000), ("57242", 0.5)]
)
def test_half_a_unit_of_the_last_digit(text, rounding):
    assert Cell(text).rounding == pytest.approx(rounding)


def test_cells_without_a_number():
    assert Cell("-").is_empty and Cell("").is_empty and not Cell("0").is_empty
    assert math.isnan(Cell("tuned").value) and math.isnan(Cell("88.9").deviation)
