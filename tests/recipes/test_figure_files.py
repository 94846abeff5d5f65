import math

import pytest
from figure_files import Cell, TableFile
from tables import number, p_text, written

from wqa.errors import DataError

#: What `wqa evaluate` prints of two runs, with a title of a recipe.
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

#: A log of commands: two tables of one form, and one whose rows and titles differ in number.
TIMED = """$ wqa bench a --precision int8
drop_ratio  p50_ms
         0    89.8
       0.3    75.6

$ wqa bench a --precision bfloat16
drop_ratio  p50_ms
         0   104.0

     command  seconds  MiB of memory  MB written
      doctor      3.2            235
convert, one      2.6          1,373        91.6
       index      0.3             57         0.3

training  precision  tokens/s  times as fast as one, two
ours      float32        3735  1.25  0.70

               CPU seconds    seconds   overhead
one process          72.06      71.40      +0.0 %

    pairs  step     seconds  MiB
1,000,000  convert      5.7  83
1,000,000  read              (an epoch's plan: 0.09 s)
2,000,000  convert     13.3  84

encoder   parameters   alone of   seconds memory
one          108,891  4.3e-06  125.28  0.76  2.04
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
    (tmp_path / "timed.txt").write_text(TIMED)
    (tmp_path / "speed.json").write_text(
        '{"rows": [{"name": "ours", "drop_ratio": 0.0, "over": {"peer": 4.7705029}, "left": null},'
        ' {"name": "ours", "drop_ratio": 0.3, "over": {"peer": 8}}]}'
    )
    files = {"t": "t.tsv", "tests": "tests.txt", "log": "log.txt", "timed": "timed.txt"}
    files["speed"] = "speed.json"
    return {name: TableFile(tmp_path / path) for name, path in files.items()}


@pytest.mark.parametrize(
    "expression, value",
    [
        ('t["CT", 0.3, "map"]', 77.75),
        ('t["MT", "map"] - t["CT", 0, "map"]', -0.19),
        ('t["CT", 0, "params"]', 904_000),
        ('t["CT", 0.3, "params"]', 1_129_501),
        ('t["CT", 0, "speed"]', 10.3),
        ('tests["(a) wikiqa: transfer, seed 0", "map", "difference"]', 5.35),
        ('tests["(a) wikiqa: transfer, seed 0, longer", "map", "difference"]', 1.0),
        ('tests["(a) wikiqa: transfer, seed 0", "one.0.trec", "map"]', 72.63),
        ('log["ms a question", 2]', 1.9),
        ('log["roberta_12_768_12 of # takes # s", 2]', 1000),
        ('timed["$ wqa bench a --precision int8", "0", "p50_ms"]', 89.8),
        ('timed["$ wqa bench a --precision bf", 0, "p50_ms"]', 104),
        ('timed["doctor", "MiB of memory"]', 235),
        ('timed["convert, one", "MB written"]', 91.6),
        ('timed["ours", "float32", "two"]', 0.7),
        ('timed["one process", "CPU seconds"]', 72.06),
        ('timed["2,000,000", "convert", "MiB"]', 84),
        ('timed["one", 6]', 2.04),
        ('speed["ours", 0, "over peer"]', 4.7705),
        ('speed["ours", 0.3, "over peer"]', 8),
        ("max(3, 4) / 2", 2),
    ],
)
def test_figures_of_files(expression, value, names):
    text = written(f'{{{{ ({expression}) | number(".6f") }}}}', names)
    assert float(text) == pytest.approx(value)


def test_texts_and_rows(names):
    assert written('{{ t["CT", 0, "map"] }}', names) == "78.36 (1.24)"
    assert written('{{ t["CT", 0, ["map", "params"]] }}', names) == "78.36 (1.24) | 904k"
    assert written('{{ t["CT", 0.3, "speed"] }}', names) == ""
    longer = '"(a) wikiqa: transfer, seed 0, longer", "map", "t_test"'
    assert written(f"{{{{ p(tests[{longer}]) }}}}", names) == "p = 0.23"
    assert [p_text(0.0013), p_text(0.0)] == ["p = 0.001", "p < 0.001"]


@pytest.mark.parametrize(
    "expression, message",
    [
        ('t["CT", "map"]', "2 rows and columns of 'CT', 'map'; expected one; name more"),
        ('t["CT", 0, "mrr"]', "its columns are row, drop_ratio, map, params, speed"),
        ('tests["(b)", "map", "t_test"]', "0 sections"),
        ('t["CT", 0.3, "speed"] | number(".1f")', "line 3: ''; expected a number"),
        ('timed["$ wqa bench", "0", "p50_ms"]', "2 sections"),
        ('speed["ours", "name"]', "2 rows and columns"),
        ('(speed["ours", 0, "left"] + 1) | number(".1f")', "expected a number"),
        ('x["CT"]', "'x' is undefined"),
        ("1 / 0", "division by zero"),
        ("t[name]", "expected expressions"),
        ("t[", "expected expressions"),
    ],
)
def test_what_cannot_be_computed_is_one_error(expression, message, names):
    with pytest.raises(DataError) as caught:
        written(f"{{{{ {expression} }}}}", names)
    assert message in str(caught.value)


def test_json_without_rows_is_refused(tmp_path):
    for text in ('{"row": 1}', "[1]", '{"rows": {}}'):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(DataError, match="no list of objects"):
            TableFile(tmp_path / "t.json")


def test_cells_without_a_number():
    assert math.isnan(Cell("tuned"))
    with pytest.raises(DataError, match="expected a number"):
        number(Cell("tuned"), ".1f")
