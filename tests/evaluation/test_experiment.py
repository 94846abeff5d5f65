"""One table of several rankers with their p-values, as CSV and LaTeX."""

import csv
import json
import math

import pytest

from wqa.cli import main
from wqa.data import builtin_path
from wqa.errors import OptionError
from wqa.evaluation.report import experiment_rows, experiment_table

TEST = builtin_path("test")
#: Two rankers of which the second is better, significantly by MAP alone; a third without a test.
RESULT = {
    "rows": [
        {"run": "a_1", "drop_ratio": "-", "map": 0.5, "p@1": 0.25, "cost": 1.0},
        {"run": "b", "drop_ratio": "0.3", "map": 0.75, "p@1": 0.5, "cost": 0.5},
        {"run": "c", "drop_ratio": "-", "map": 0.5, "p@1": 0.25, "cost": 2.0},
    ],
    "comparisons": [
        {"metrics": [{"metric": "map", "t_test": 0.01}, {"metric": "p@1", "t_test": 0.05}]},
        {"metrics": [{"metric": "map", "t_test": math.nan}, {"metric": "p@1", "t_test": 1.0}]},
    ],
}


def test_rows_by_hand():
    first, second, third = experiment_rows(RESULT)
    assert first == {
        "run": "a_1",
        "drop_ratio": "-",
        "map": 0.5,
        "map_p": None,
        "p@1": 0.25,
        "p@1_p": None,
        "cost": 1.0,
    }
    assert (second["map_p"], second["p@1_p"]) == (0.01, 0.05)
    assert (third["map_p"], third["p@1_p"]) == (None, 1.0)
    trec = {"run": "a", "map": 0.5, "p@1": 1.0}
    [row] = experiment_rows({"rows": [trec], "comparisons": RESULT["comparisons"]})
    assert row["drop_ratio"] == "-" and "cost" not in row


def test_csv_reads_back():
    rows = list(csv.DictReader(experiment_table(RESULT, "csv").splitlines()))
    assert list(rows[0]) == ["run", "drop_ratio", "map", "map_p", "p@1", "p@1_p", "cost"]
    assert rows[0]["map_p"] == "" and float(rows[1]["map"]) == 0.75 and rows[1]["map_p"] == "0.01"


def test_latex_by_hand():
    assert experiment_table(RESULT, "latex").splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"run & map & p@1 \\",
        r"\midrule",
        r"a\_1 & 50.00 & 25.00 \\",
        r"b at 0.3 & \textbf{75.00}$^{\dagger}$ & \textbf{50.00} \\",
        r"c & 50.00 & 25.00 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    with pytest.raises(OptionError, match="form: 'html'; expected one of csv, latex"):
        experiment_table(RESULT, "html")


def test_the_command_writes_what_it_prints(tmp_path, capsys):
    paths = [tmp_path / name for name in ("all.json", "table.csv", "table.tex")]
    json_file, csv_file, latex = map(str, paths)
    command = ["compare", "wo+rr", "rr", "bm25", "--data", str(TEST), "--metrics", "map,p@1"]
    assert main([*command, "--json", json_file, "--csv", csv_file, "--latex", latex]) == 0
    result = json.loads(paths[0].read_text())
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert [row["run"] for row in rows] == ["wo+rr", "rr", "bm25"]
    for row, figures in zip(rows, result["rows"]):
        assert float(row["map"]) == figures["map"]
    for row, comparison in zip(rows[1:], result["comparisons"]):
        assert float(row["p@1_p"]) == comparison["metrics"][1]["t_test"]
    assert paths[2].read_text() == experiment_table(result, "latex")
    assert main([*command, "--csv", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
