import importlib.util
import json
import subprocess
import sys

import pytest
from conftest import ROOT, child_environment

from wqa.cli import main
from wqa.errors import DataError
from wqa.evaluation.report import lay_out, read_rows

CORPORA = ("asnq", "wikiqa", "trecqa")


@pytest.mark.parametrize("columns", ["80", "100"])
def test_lines_fit_the_terminal(columns, capsys, monkeypatch):
    """But for a row whose name and one figure take more; each part of a table names its rows."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(ROOT)  # the names of files are in some lines
    for paper in ("cascade", "cosinet", "dcbert", "mhs", "mspp"):
        assert main(["reproduce", paper, "--check"]) == 0
        rows = [line for line in capsys.readouterr().out.splitlines() if " | " in line]
        assert len(rows) > 20 and max(map(len, rows)) <= 100, paper
    rows = [{"row": "a row", "drop_ratio": "0", "x_map": "1", "y_map": "2"}]
    assert lay_out(rows, 20) == (
        "row    drop_ratio  x_map\na row           0      1\n\n"
        "row    drop_ratio  y_map\na row           0      2"
    )
    assert lay_out(rows, 31) == "row    drop_ratio  x_map  y_map\na row           0      1      2"


def test_malformed_tables(tmp_path):
    path = tmp_path / "table.tsv"
    for text, found in (
        ("row\tdrop_ratio\nours\n", "line 2: 1 columns"),
        ("a\tb\n", "line 1"),
        ("", "line 1"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=found):
            read_rows(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "absent.tsv")


def test_every_published_table_is_whole():
    folder = ROOT / "recipes" / "cascade" / "published"
    for path in sorted((ROOT / "recipes").glob("*/published/*.tsv")):
        rows = read_rows(path)
        assert len({(row["row"], row["drop_ratio"]) for row in rows}) == len(rows)
        for row in rows:
            assert path.stem in (
                f"table{row['table']}",
                f"figure{row['table']}",
                row["table"],
            ) and (row["recipe"] in ("-", "data_scripts") or (ROOT / row["recipe"]).exists())
    table2 = {row["row"]: row for row in read_rows(folder / "table2.tsv")}
    table3 = {(row["row"], row["drop_ratio"]): row for row in read_rows(folder / "table3.tsv")}
    assert (table2["CT 12 layers"]["wikiqa_map"], table2["CT 12 layers"]["trecqa_mrr"]) == (
        "89.9",
        "96.7",
    )
    assert (table3["CT 12 layers", "0.3"]["asnq_p@1"], table3["SR", "0.5"]["gpd_mrr"]) == (
        "52.9",
        "72.3",
    )


def test_the_tables_of_dcbert(capsys):
    assert main(["reproduce", "dcbert", "--check", "--recipes", str(ROOT / "recipes")]) == 0
    text = capsys.readouterr().out
    assert all(f"Table {number}: " in text for number in (1, 2, 3))
    folder = ROOT / "recipes" / "dcbert" / "published"
    tables = [read_rows(folder / f"table{number}.tsv") for number in (1, 2, 3)]
    assert [len(rows) for rows in tables] == [4, 4, 3]
    assert [row["row"] for row in tables[0]] == [row["row"] for row in tables[1]]
    assert [row["squad_p@10"] for row in tables[0]] == ["71.5", "68.0", "56.4", "70.1"]
    assert [row["nq_em"] for row in tables[0]] == ["28.0", "27.5", "25.1", "27.4"]
    assert [row["squad_pbt@10"] for row in tables[1]] == ["19.8", "18.4", "14.3", "18.1"]
    assert [row["nq_ptb@10"] for row in tables[1]] == ["4.0", "4.5", "7.1", "6.8"]
    assert [row["nq_speedup"] for row in tables[2]] == ["43.6x", "8.2x", "10.3x"]
    for name in ("nq_p@10", "nq_speedup", "nq_em"):  # that two tables of the paper share
        assert tables[2][2][name] == tables[0][3][name]
    # Within a tenth the drops follow from the printed EM, but for those that the remarks name.
    differing = []
    for corpus in ("squad", "nq"):
        base = float(tables[0][0][f"{corpus}_em"])
        for row in tables[0]:
            drop = 100 * (1 - float(row[f"{corpus}_em"]) / base)
            if abs(drop - float(row[f"{corpus}_em_drop"])) > 0.051:
                differing.append(f"{drop:.1f}")
                assert f"{drop:.1f}" in text
    assert differing == ["2.2", "10.4", "2.1"]


def test_the_tables_of_the_multiple_heads_student(capsys):
    assert main(["reproduce", "mhs", "--check", "--recipes", str(ROOT / "recipes")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"Table {number}: " in text for number in (2, 3, 4, 5))
    assert "167,371,014 and 195,722,502 parameters" in text and "169M and 199M" in text
    folder = ROOT / "recipes" / "mhs" / "published"
    tables = {number: read_rows(folder / f"table{number}.tsv") for number in (2, 3, 4, 5)}
    assert [len(rows) for rows in tables.values()] == [14, 7, 4, 9]
    metrics = [
        f"{corpus}_{name}"
        for corpus in ("ias2", "asnq", "wikiqa")
        for name in ("p@1", "map", "mrr")
    ]
    by_row = {row["row"]: [row[name] for name in metrics] for row in tables[2]}
    assert by_row["14 MHS"] == [
        "64.3",
        "60.8",
        "70.3",
        "64.3",
        "75.1",
        "75.2",
        "89.3",
        "92.4",
        "93.5",
    ]
    assert by_row["13 Hydra"] == [
        "63.4",
        "59.9",
        "69.7",
        "62.7",
        "73.0",
        "73.3",
        "88.1",
        "91.5",
        "92.8",
    ]
    # Figures that two tables of the paper share.
    assert [tables[4][0][name] for name in metrics[:3]] == by_row["14 MHS"][:3]
    for index, row in ((1, 8), (6, 13)):
        figures = [tables[3][index][name] for name in metrics[:3]]
        assert figures == [tables[2][row][name] for name in metrics[:3]]
    params = {row["row"]: row["params"] for row in tables[5]}
    assert params["MHS B11_3H1"] == tables[2][13]["params"] == tables[4][0]["params"] == "124M"
    assert tables[5][3]["latency_avg"] == "47.0" and tables[5][8]["latency_std"] == "0.020"


def test_the_tables_of_cosinet(capsys):
    """What the paper's tables say twice, and where they differ, which the remarks name."""
    assert main(["reproduce", "cosinet", "--check", "--recipes", str(ROOT / "recipes")]) == 0
    text = capsys.readouterr().out
    assert all(f"Table {number}: " in text for number in (2, 3, 4, 5, 6))
    folder = ROOT / "recipes" / "cosinet" / "published"
    tables = {}
    for number in (2, 3, 4, 5, 6):
        rows = read_rows(folder / f"table{number}.tsv")
        tables[number] = {row["row"]: row for row in rows}
    assert [len(rows) for rows in tables.values()] == [14, 11, 16, 10, 9]
    differing = []
    for name in ("RR", "WO", "WO+RR"):
        for number, column, of_corpus in (
            (3, "wikiqa_map", "wikiqa_test"),
            (4, "wikiqa_map", "wikiqa_test"),
            (5, "squad_mrr", "squad_test"),
            (6, "nqla_map", "nqla_test"),
        ):
            figure = tables[number][name][column]
            if figure != tables[2][f"{name} MAP"][of_corpus]:
                differing.append((name, number, figure))
        if tables[5][name]["squad_p@1"] != tables[2][f"{name} P@1"]["squad_test"]:
            differing.append((name, 5, tables[5][name]["squad_p@1"]))
        assert tables[3][name]["wikiqa_mrr"] == tables[4][name]["wikiqa_mrr"]
    assert differing == [("RR", 5, "30.55"), ("WO", 6, "38.09")]
    assert "30.55 in Table 5" in text and "38.09 in Table 6" in text
    # Parameters in print are those of the networks, rounded, but for one.
    counts = [904201, 904201, 1174501, 1129501, 1986301, 1806301]
    counts += [2886601, 2886601, 5045401, 4865401, 11529001, 10809001]
    printed = [row["params"] for row in tables[4].values()][3:15]
    rounded = [f"{count / 1e6:.2f}M" if count > 1e6 else f"{count // 1000}k" for count in counts]
    wrong = [pair for pair in zip(printed, rounded) if pair[0] != pair[1]]
    assert wrong == [("1.12M", "1.13M")]
    for number in (5, 6):
        for name, row in tables[number].items():
            assert row["params"] == tables[4][name]["params"], name
    birnn = tables[4]["Cosinet list BiRNN"]
    assert (birnn["wikiqa_map"], birnn["wikiqa_mrr"]) == ("75.62 (0.8)", "77.13 (0.9)")
    assert (birnn["train_seconds"], tables[4]["BERT-base"]["train_seconds"]) == ("8.9", "1070")
    assert tables[5]["CA list"]["train_seconds"] == str(24 * 60 + 11)
    assert tables[6]["CA"]["train_seconds"] == str(5 * 3600 + 39 * 60)
    assert tables[6]["CA list BiRNN"]["nqla_map"] == "74.21" and "which are 4.33" in text


def test_the_tables_of_mspp(capsys):
    """What the paper's tables say twice is the same."""
    assert main(["reproduce", "mspp", "--check", "--recipes", str(ROOT / "recipes")]) == 0
    text = capsys.readouterr().out
    assert all(f"Table {number}: " in text for number in (1, 2, 3, 7, 8))
    folder = ROOT / "recipes" / "mspp" / "published"
    tables = {}
    for number in (1, 2, 3, 7, 8):
        rows = read_rows(folder / f"table{number}.tsv")
        tables[number] = {row["row"]: row for row in rows}
    assert [len(rows) for rows in tables.values()] == [5, 5, 10, 5, 14]
    assert list(tables[1]) == list(tables[2]) == list(tables[7])
    metrics = [f"{name}_{kind}" for name in CORPORA for kind in ("p@1", "map", "mrr")]
    for name, row in tables[7].items():
        for corpus in CORPORA:
            assert tables[2][name][f"{corpus}_p@1"].split()[0] == row[f"{corpus}_p@1"]
    first, joint = "Pairwise RoBERTa-Base", "Joint MSPP IE_k, FT IE_k"
    for name in metrics:
        assert tables[1][first][name].split()[0] == tables[7][first][name]
    assert [tables[7][joint][name] for name in metrics[3:6]] == ["82.7", "88.5", "89.0"]
    assert [tables[1][joint][name] for name in metrics[:3]] == [
        "63.0 (0.3)",
        "67.2 (0.2)",
        "73.7 (0.2)",
    ]
    assert tables[1]["Joint RoBERTa-Base, FT AE_k"]["trecqa_p@1"] == "29.7 (6.9)"
    for name, row in tables[3].items():
        assert row == {**tables[8][name], "table": "3"}
    assert set(tables[8]) - set(tables[3]) == {
        "Pairwise BERT-Base",
        "Joint BERT-Base",
        "DOMLIN++",
        "DREAM",
    }
    assert tables[8]["Joint MSPP AE_k, FT IE_1"]["fever_dev_accuracy"] == "81.18 (0.14)"
    assert tables[8]["DREAM"]["fever_test_accuracy"] == "76.85"


def collect(*arguments):
    command = [sys.executable, ROOT / "recipes" / "collect.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_collecting_figures_over_seeds(tmp_path):
    def write(name, value):
        figures = {
            "filter": "all",
            "questions": 5,
            "mrr": value,
            "p@1": 0.5,
            "ndcg@10": 0.5,
            "cost": 0.63,
            "seconds": 1,
        }
        rows = [
            {"drop_ratio": "0.3", "map": value, **figures},
            {"drop_ratio": "exit 2", "map": 0.25, **figures},
        ]
        (tmp_path / name).write_text(json.dumps(rows))
        return tmp_path / name

    table, files = tmp_path / "t.tsv", [write("0.json", 0.5), write("1.json", 0.7)]
    assert collect(table, "CT", "0.3", "x", *files).returncode == 0
    assert collect(table, "CT 2", "exit 2", "x", files[0]).returncode == 0
    assert collect(table, "CT", "0.3", "y", files[0]).returncode == 0
    one, two = read_rows(table)
    assert (one["x_map"], one["x_seeds"], one["x_cost_reduction"], one["y_map"]) == (
        "60.00 (14.14)",
        "2",
        "-37",
        "50.00",
    )
    assert (two["row"], two["drop_ratio"], two["x_map"], two["y_map"]) == (
        "CT 2",
        "0",
        "25.00",
        "-",
    )
    done = collect(table, "CT", "0.9", "x", files[0])
    assert (
        done.returncode == 2
        and "no row with drop ratio 0.9" in done.stderr
        and done.stderr.count("\n") == 1
    )


def count_corpora(*arguments):
    spec = importlib.util.spec_from_file_location("counts", ROOT / "recipes" / "counts.py")
    counts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(counts)
    counts.main(*arguments)


def test_table_1_counts_the_shorter_dev_set_of_trecqa(tmp_path):
    counts = {
        split: {"clean": {"questions": n, "candidates_per_question": 9, "correct_per_question": 1}}
        for split, n in (("dev", 69), ("dev-40", 65), ("test", 68))
    }
    (tmp_path / "trecqa").mkdir()
    (tmp_path / "trecqa" / "stats.json").write_text(json.dumps(counts))
    count_corpora("cascade", tmp_path / "table1.tsv", tmp_path)
    published = read_rows(ROOT / "recipes" / "cascade" / "published" / "table1.tsv")
    for mine, theirs in zip(read_rows(tmp_path / "table1.tsv")[1:], published[1:]):
        assert mine["trecqa_questions"] == theirs["trecqa_questions"]


@pytest.mark.parametrize(
    "paper, name, columns",
    [
        ("cascade", "table1", ("questions", "candidates", "correct")),
        ("mhs", "table1", ("questions", "pairs", "correct")),
        ("mspp", "table5", ("questions", "candidates", "candidates_per_question")),
    ],
)
def test_tables_from_the_counts_of_corpora(paper, name, columns, wikiqa_archive, tmp_path):
    import wikiqa

    assert wikiqa.main(["--archive", str(wikiqa_archive), "--out", str(tmp_path / "wikiqa")]) == 0
    count_corpora(paper, tmp_path / "table.tsv", tmp_path)
    published = read_rows(ROOT / "recipes" / paper / "published" / f"{name}.tsv")
    for mine, theirs in zip(read_rows(tmp_path / "table.tsv"), published):
        for column in columns:
            assert mine[f"wikiqa_{column}"] == theirs[f"wikiqa_{column}"]


def test_the_figure_that_follows_from_a_table():
    """Figure 2 of the Multiple-Heads Student is Table 2's P@1 over that of row 5."""
    folder = ROOT / "recipes" / "mhs" / "published"
    table, figure = (read_rows(folder / name) for name in ("table2.tsv", "figure2.tsv"))
    base = table[4]
    assert base["row"] == "5 roberta-base" and len(table) == len(figure)
    for row, point in zip(table, figure):
        assert (row["row"], row["params"]) == (point["row"], point["params"])
        for corpus in ("ias2", "asnq", "wikiqa"):
            improvement = 100 * (float(row[f"{corpus}_p@1"]) / float(base[f"{corpus}_p@1"]) - 1)
            assert point[f"{corpus}_improvement"] == f"{improvement:+.1f}"


def test_trainings_are_summarized(tmp_path):
    entries = [
        {"update": 1, "epoch": 0.5, "loss": 0.9},
        {"update": 1, "dev": {"questions": 4, "map": 0.75, "p@1": 0.5}},
        {"update": 2, "epoch": 1.0, "loss": 0.25},
        {"update": 2, "dev": {"questions": 4, "map": 0.5, "p@1": 0.75}},
    ]
    log = tmp_path / "b_seed0.metrics.jsonl"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    table = tmp_path / "trainings.tsv"
    table.write_text("training\tupdates\na\t9\nb_seed0\t9\n")
    command = [sys.executable, ROOT / "recipes" / "trainings.py", tmp_path]
    subprocess.run(command, check=True, env=child_environment())
    lines = table.read_text().splitlines()
    assert lines[0].startswith("training\tupdates\tepochs\tloss")
    assert lines[1:] == ["a\t9", "b_seed0\t2\t1.00\t0.2500\t4\tmap=0.7500 p@1=0.5000\t1"]
