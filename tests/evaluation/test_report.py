import json

from conftest import ROOT, load_module, script_result

from wqa.evaluation.report import read_rows


def test_every_published_table_is_whole():
    for path in sorted((ROOT / "recipes").glob("*/published/*.tsv")):
        rows = read_rows(path)
        assert len({(row["row"], row["drop_ratio"]) for row in rows}) == len(rows)
        for row in rows:
            named = row["table"]
            assert path.stem in (f"table{named}", f"figure{named}", named)
            assert row["recipe"] in ("-", "data_scripts") or (ROOT / row["recipe"]).exists()


def collect(table, row, label, corpus, *files):
    columns = "map,mrr,p@1,ndcg@10,seeds,cost_reduction"
    script = (ROOT / "recipes" / "rows.py", table, corpus, columns)
    return script_result(*script, "--row", row, *files, "--label", label)


def test_collecting_figures_over_seeds(tmp_path):
    def write(name, value):
        figures = {"filter": "all", "questions": 5, "mrr": value, "p@1": 0.5, "ndcg@10": 0.5}
        figures.update({"cost": 0.63, "seconds": 1})
        rows = [
            {"drop_ratio": "0.3", "map": value, **figures},
            {"drop_ratio": "exit 2", "map": 0.25, **figures},
        ]
        (tmp_path / name).write_text(json.dumps(rows))
        return tmp_path / name

    table, files = tmp_path / "t.tsv", [write("0.json", 0.5), write("1.json", 0.7)]
    assert collect(table, "CT", "0.3", "x", *files)[0] == 0
    assert collect(table, "CT 2", "exit 2", "x", files[0])[0] == 0
    assert collect(table, "CT", "0.3", "y", files[0])[0] == 0
    one, two = read_rows(table)
    assert (one["x_map"], one["x_seeds"], one["y_map"]) == ("60.00 (14.14)", "2", "50.00")
    assert one["x_cost_reduction"] == "-37" and (two["row"], two["drop_ratio"]) == ("CT 2", "0")
    assert (two["x_map"], two["y_map"]) == ("25.00", "-")
    status, _, error = collect(table, "CT", "0.9", "x", files[0])
    assert status == 2 and "no row with drop ratio 0.9" in error and error.count("\n") == 1
    rows = (ROOT / "recipes" / "rows.py", table, "x", "ndcg", "--row", "CT", files[0])
    assert "0.json: no ndcg; expected the" in script_result(*rows, "--label", 0.3)[2]


def count_corpora(*arguments):
    load_module(ROOT / "recipes" / "counts.py").main(*arguments)


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


def test_tables_from_the_counts_of_corpora(wikiqa_files, tmp_path):
    for paper, name, columns in (
        ("cascade", "table1", ("questions", "candidates", "correct")),
        ("mhs", "table1", ("questions", "pairs", "correct")),
        ("mspp", "table5", ("questions", "candidates", "candidates_per_question")),
    ):
        count_corpora(paper, tmp_path / f"{paper}.tsv", wikiqa_files.parent)
        published = read_rows(ROOT / "recipes" / paper / "published" / f"{name}.tsv")
        for mine, theirs in zip(read_rows(tmp_path / f"{paper}.tsv"), published):
            for column in columns:
                assert mine[f"wikiqa_{column}"] == theirs[f"wikiqa_{column}"]


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
    assert script_result(ROOT / "recipes" / "trainings.py", tmp_path)[0] == 0
    lines = table.read_text().splitlines()
    assert lines[0].startswith("training\tupdates\tepochs\tloss")
    assert lines[1:] == ["a\t9", "b_seed0\t2\t1.00\t0.2500\t4\tmap=0.7500 p@1=0.5000\t1"]
