import json
import runpy

import pytest
from conftest import ROOT

from wqa.errors import DataError, OptionError, WqaError
from wqa.evaluation.claims import SCALES, find_claims, read_claims
from wqa.evaluation.judging import judge
from wqa.evaluation.layout import matrix, overview, summary
from wqa.evaluation.reproduction import check, reproduce

PUBLISHED = """table\trow\tdrop_ratio\trecipe\tx_map\tx_ms\ty_map\tcost
2\tours\t0\tr.sh\t80.0 (0.5)\t3\t70.0\t0
2\tours\t0.3\tr.sh\t79.0\t2\t-\t-37
2\tothers\t-\t-\t50\t-\t51\t-
"""
CLAIMS = """title: Table 2
about: a table
published: published/table2.tsv
units: {x_ms: milliseconds of a GPU, cost: cost, "*": per cent}
files: {tests: results/tests.txt, table: results/table2.tsv}
paper:
  results: [results/table2.tsv]
  tolerance: {map: 0.4}
  units: {x_ms: milliseconds of a CPU}
  cannot:
    - {columns: "y_*", why: Y is not public}
  differs:
    - {rows: ours, columns: cost, why: other layers}
small:
  command: >-
    mkdir -p $RESULTS; cp recipes/paper/made.tsv $RESULTS/small.tsv;
    echo ran >> ran.txt; echo $KEPT > kept.txt
  results: [results/small.tsv]
  runs: {tiny: [runs/seed0.trec.gz, runs/seed1.trec.gz]}
  rows: {ours: tiny, others: "-"}
  corpora: {x: z}
  units: {x_ms: milliseconds of a CPU}
  tolerance: {map: 1.0}
  cannot:
    - {columns: "y_*", why: Y is not public}
    - {columns: cost, why: not counted}
"""
RESULTS = """row\tdrop_ratio\tx_map\tx_ms\ty_map\tx_cost
ours\t0\t80.5\t300\t-\t0
ours\t0.3\t79.7\t200\t-\t-23
"""
SMALL = "row\tdrop_ratio\tz_map\tz_ms\ntiny\t0\t61.0 (2.0)\t5\ntiny\t0.3\t60.0\t4\n"
TESTS = """# seed 0
metric  difference  t_test  wilcoxon
   map        5.00  0.0100    0.2000
# seed 1
metric  difference  t_test  wilcoxon
   map       -1.00  0.0200    0.0100
"""


@pytest.fixture
def recipes(tmp_path):
    folder = tmp_path / "recipes" / "paper"
    for path, text in {
        "published/table2.tsv": PUBLISHED,
        "claims/table2.yaml": CLAIMS,
        "claims/small.tsv": SMALL,
        "results/table2.tsv": RESULTS,
        "results/small.tsv": SMALL,
        "results/tests.txt": TESTS,
        "made.tsv": SMALL,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return tmp_path / "recipes"


def rewrite(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def statuses(judgement):
    return {figure.title: figure.status for figure in judgement.figures}


def test_the_status_of_every_published_figure(recipes):
    [file] = find_claims("paper/table2", recipes)
    judgement = judge(file, "paper")
    assert statuses(judgement) == {
        "ours, x_map": "OK",  # 0.5 apart, which is the deviation in print
        "ours at 0.3, x_map": "near",  # 0.7 apart; the tolerance is 0.4
        "ours, x_ms": "shown",
        "ours at 0.3, x_ms": "shown",
        "ours, y_map": "cannot",
        "ours, cost": "OK",
        "ours at 0.3, cost": "differs",
        "others, x_map": "cannot",
        "others, y_map": "cannot",
    }
    assert not judgement.failed
    assert judgement.counts() == {"OK": 2, "near": 1, "shown": 2, "differs": 1, "cannot": 3}
    lines = matrix(judgement).splitlines()
    assert lines[0] == f"Table 2: a table ({summary(judgement)})"
    assert "80.0 (0.5) | 80.5 OK" in lines[2] and "70.0 | (2)" in lines[2]
    assert "(1) shown beside another unit or other hardware: milliseconds of a CPU" in lines[6]
    assert "(3) near: 79.7, expected 79.0 within 0.4" in lines
    assert "(4) known to differ: other layers" in lines


def test_expected_figures_of_the_small_scale_are_those_that_were_accepted(recipes):
    [file] = find_claims("paper", recipes)
    small = file.folder / "results" / "small.tsv"
    assert statuses(judge(file, "small"))["ours, x_map"] == "OK"
    for figure, status in (("63.0", "OK"), ("64.9", "near"), ("66.0", "FAIL")):
        small.write_text(SMALL.replace("61.0 (2.0)", figure))  # the deviation is the tolerance
        assert statuses(judge(file, "small"))["ours, x_map"] == status
    assert judge(file, "small").failed
    [judgement] = check("paper/table2", recipes, ["small"])
    line = "paper/table2, ours, x_map: FAIL, 66.0, expected 61.0 (2.0) within 2"
    assert line in overview([judgement])
    small.unlink()
    assert statuses(judge(file, "small"))["ours, x_map"] == "missing"


@pytest.mark.parametrize(
    "tests, outcome",
    [
        ('above: [[tests, "seed 0", map]]', "shown"),
        ('above: [[tests, "seed 1", map]]', "refuted"),
        ('above: [[tests, "seed 0", map], [tests, "seed 1", map]]', "not shown"),
        ('test: wilcoxon, above: [[tests, "seed 0", map]]', "not shown"),
        ('no_worse: [[tests, "seed 0", map]]', "not refuted"),
        ('no_worse: [[tests, "seed 1", map]]', "refuted"),
        ('holds: [\'table["ours", "0", "x_map"] > 80\']', "shown"),
        ('holds: [\'table["ours", "0", "x_map"] > 80\', \'1 > 2\']', "not shown"),
    ],
)
def test_outcomes_of_claims(tests, outcome, recipes):
    path = recipes / "paper" / "claims" / "table2.yaml"
    for expected, status in ((outcome, "OK"), ("shown", "FAIL")):
        claim = f"claims:\n  best: {{claim: ours is best, outcome: {expected}, {tests}}}\n"
        path.write_text(CLAIMS + claim)
        [verdict] = judge(read_claims(path), "small").verdicts
        assert verdict.outcome == outcome
        assert verdict.status == ("OK" if expected == outcome else status)
    (recipes / "paper" / "results" / "tests.txt").unlink()
    (recipes / "paper" / "results" / "table2.tsv").unlink()
    [verdict] = judge(read_claims(path), "small").verdicts
    assert verdict.status == "missing" and "cannot be read" in verdict.why


def test_figures_that_no_table_holds(recipes):
    path = recipes / "paper" / "claims" / "table2.yaml"
    figures = '  figures:\n    ours: {y_map: \'2 * table["ours", "0", "x_map"] - 91\'}\n'
    rewrite(path, "paper:\n", "paper:\n" + figures)
    judgement = judge(read_claims(path), "paper")
    assert statuses(judgement)["ours, y_map"] == "OK"
    assert "70.0 | 70 OK" in matrix(judgement)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("title: Table 2", "titel: Table 2", "table2.yaml: unknown field 'titel'"),
        ("about: a table\n", "", "table2.yaml: a field is missing"),
        ("tolerance: {map: 0.4}", "tolerance: {map: a}", "field paper, field tolerance, 'map'"),
        ("why: other layers", "because: x", "field differs: unknown field 'because'"),
        ("title: Table 2", "title: &a Table 2\nnothing: *a", "alias '*a'"),
        ("title: Table 2", "title: [", "cannot be read"),
        ("title: Table 2", "title: a\ntitle: b", "key 'title' occurs twice"),
        ("about: a table", "about: a table\nnothing: at all", "either it or the key nothing"),
        ("units: {x_ms: milliseconds of a GPU, cost: cost, ", "units: {", None),
        (
            'units: {x_ms: milliseconds of a GPU, cost: cost, "*": per cent}',
            "units: {}",
            "units: n",
        ),
    ],
)
def test_errors_name_the_file_and_the_key(old, new, message, recipes):
    rewrite(recipes / "paper" / "claims" / "table2.yaml", old, new)
    if message is None:
        assert check("paper", recipes)
        return
    with pytest.raises(DataError) as caught:
        check("paper", recipes)
    assert message in str(caught.value)


def test_claims_name_what_decides_them(recipes):
    path = recipes / "paper" / "claims" / "table2.yaml"
    for claim, message in (
        ("{claim: c, outcome: maybe, holds: ['1 > 2']}", "one of shown, not shown"),
        ("{claim: c, outcome: shown}", "one of above, no_worse and holds"),
        ("{claim: c, outcome: shown, above: [[t, map]]}", "claims, 'best'"),
    ):
        path.write_text(f"{CLAIMS}claims:\n  best: {claim}\n")
        if "[[t" in claim:
            [verdict] = judge(read_claims(path), "small").verdicts
            assert verdict.status == "missing" and "one of tests, table" in verdict.why
            continue
        with pytest.raises(DataError, match=message):
            read_claims(path)


def test_a_recipe_runs_where_figures_are_missing(recipes, tmp_path):
    [judgement] = reproduce("paper/table2", recipes)
    assert statuses(judgement)["ours, x_map"] == "OK" and not judgement.failed
    assert (tmp_path / "ran.txt").read_text() == "ran\n"
    assert (tmp_path / "kept.txt").read_text() == "runs/reproduced/paper/runs\n"
    assert "TREC runs of tiny: runs/seed0.trec.gz, runs/seed1.trec.gz" in matrix(judgement)
    made = tmp_path / "runs" / "reproduced" / "paper" / "small.tsv"
    made.write_text(SMALL.replace("61.0", "55.0"))
    [judgement] = reproduce("paper/table2", recipes)
    assert statuses(judgement)["ours, x_map"] == "FAIL"
    assert (tmp_path / "ran.txt").read_text() == "ran\n"  # its figures are there
    made.unlink()
    rewrite(recipes / "paper" / "claims" / "table2.yaml", "; cp recipes", "; exit 3; cp recipes")
    with pytest.raises(WqaError, match="ended with status 3"):
        reproduce("paper/table2", recipes)
    rewrite(recipes / "paper" / "published" / "table2.tsv", "y_map", "x_mrr")
    with pytest.raises(WqaError, match="no command at the scale paper"):
        reproduce("paper/table2", recipes, "paper")


def test_the_script(recipes, capsys, tmp_path):
    main = runpy.run_path(str(ROOT / "recipes" / "reproduce.py"))["main"]
    options = ["--recipes", str(recipes)]
    assert main(["paper/table2", "--check", *options]) == 0
    out = capsys.readouterr().out
    assert "at the paper scale" in out and "at the small scale" in out
    document = tmp_path / "judged.json"
    assert main(["--check", "--json", str(document), *options]) == 0
    assert capsys.readouterr().out.startswith("paper/table2  at the paper scale: 2 OK, 1 near")
    first, second = json.loads(document.read_text())
    assert first["scale"] == "paper" and first["figures"][0]["published"] == "80.0 (0.5)"
    assert second["figures"][0]["expected"] == "61.0 (2.0)"
    (recipes / "paper" / "results" / "table2.tsv").write_text(RESULTS.replace("80.5", "90"))
    assert main(["--check", "--scale", "paper", *options]) == 1
    assert "paper/table2, ours, x_map: FAIL, 90, expected" in capsys.readouterr().out
    for arguments in ([], ["bert"]):
        with pytest.raises(OptionError):
            main([*arguments, *options])
    with pytest.raises(OptionError, match="a checkout"):
        find_claims("paper", tmp_path / "absent")


# The claims of this repository


def test_committed_figures_and_claims_hold():
    """No figure fails, and none is without a source or a reason."""
    judgements = check("", ROOT / "recipes")
    failures = [entry.file.name for entry in judgements if entry.failed]
    assert not failures, overview(judgements)
    statuses = {figure.status for entry in judgements for figure in entry.figures}
    assert statuses <= {"OK", "near", "shown", "differs", "cannot"}
    claims = sum(len(entry.verdicts) for entry in judgements)
    assert claims > 20


def test_milliseconds_of_a_cpu_beside_microseconds_do_not_count():
    [paper] = check("mhs/table5", ROOT / "recipes", ["paper"])
    shown = [figure for figure in paper.figures if figure.column.startswith("latency")]
    assert {figure.status for figure in shown if not figure.reproduced.is_empty} == {"shown"}


def test_every_table_and_every_published_file_has_its_claims():
    """The tables and figures of the papers, by their numbers."""
    numbers = {
        "cascade": ["table1", "table2", "table3", "figure1", "figure2"],
        "cosinet": [f"table{number}" for number in range(1, 7)],
        "dcbert": ["table1", "table2", "table3", "figure1", "figure2"],
        "mhs": [
            *(f"table{number}" for number in range(1, 6)),
            *(f"figure{number}" for number in range(1, 5)),
        ],
        "mspp": [*(f"table{number}" for number in range(1, 9)), "figure1", "figure2", "c3"],
    }
    files = find_claims("", ROOT / "recipes")
    listed = {}
    for file in files:
        paper, _, table = file.name.partition("/")
        listed.setdefault(paper, set()).add(table)
    assert listed == {paper: set(tables) for paper, tables in numbers.items()}
    named = {file.folder / str(file.table.published) for file in files if file.table.published}
    assert named == set((ROOT / "recipes").glob("*/published/*.tsv"))


def test_accepted_figures_are_of_tables_that_are_named():
    for file in find_claims("", ROOT / "recipes"):
        for scale in SCALES:
            for path in file.scale(scale).results:
                accepted = file.folder / "claims" / path.partition("/")[2]
                assert scale == "paper" or accepted.exists(), file.name
