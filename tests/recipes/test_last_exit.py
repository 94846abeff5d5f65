"""The table of recipes/cascade/last_exit.py, from runs of a few candidates."""

import importlib.util
import json
import math
import sys

import pytest
from conftest import ROOT

from wqa.errors import DataError

#: Judgements; the average precision of a question is 1 over the rank of its correct document.
QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 a 1\nq2 0 b 0\n"


@pytest.fixture
def table(tmp_path, monkeypatch, capsys):
    """Rows of each corpus as the script prints them."""
    path = ROOT / "recipes" / "cascade" / "last_exit.py"
    spec = importlib.util.spec_from_file_location("last_exit", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def run(*variants, seeds=("3", "5"), corpora=("wikiqa",)):
        arguments = ["last_exit.py", str(tmp_path), "--variants", *variants, "--seeds", *seeds]
        arguments += ["--corpora", *corpora]
        monkeypatch.setattr(sys, "argv", arguments)
        script.main()
        sections = capsys.readouterr().out.split("# ")[1:]
        rows = {}
        for section in sections:
            corpus = section.split(",")[0]
            lines = [line for line in section.splitlines() if line.startswith("|")]
            rows[corpus] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
        return rows

    return run


@pytest.fixture
def write(tmp_path):
    """Writes the figures of a trained run, as `wqa evaluate` does."""

    def write_run(name, costs, **ranks):
        folder = tmp_path / name
        folder.mkdir()
        rows = [{"drop_ratio": ratio, "cost": cost} for ratio, cost in costs.items()]
        content = rows[0] if len(rows) == 1 else rows
        (folder / "dev.json").write_text(json.dumps(content))
        (folder / "dev.json.qrels").write_text(QRELS)
        for ratio, ranks_of_correct in zip(costs, zip(*ranks.values())):
            text = ""
            for qid, rank in zip(ranks, ranks_of_correct):
                if rank:  # 0 for a question that the run leaves out
                    documents = "ab" if rank == 1 else "ba"
                    text += f"{qid} Q0 {documents[0]} 1 2 wqa\n{qid} Q0 {documents[1]} 2 1 wqa\n"
            (folder / f"dev.json.{ratio}.trec").write_text(text)

    return write_run


def write_corpus(write, corpus):
    """The twin, a cascade at both drop ratios, and a variant whose second run leaves q2 out."""
    both = {"0": 1.0, "0.3": 0.7}
    write(f"mono_{corpus}_seed3", {"0": 1.0}, q1=[1], q2=[1])
    write(f"mono_{corpus}_seed5", {"0": 1.0}, q1=[1], q2=[2])
    write(f"uniform_{corpus}_seed3", both, q1=[2, 2], q2=[2, 2])
    write(f"uniform_{corpus}_seed5", {"0.3": 0.9, "0": 1.0}, q1=[2, 1], q2=[2, 1])
    write(f"head_{corpus}_seed3", {"0": 1.0}, q1=[1], q2=[1])
    write(f"head_{corpus}_seed5", {"0": 1.0}, q1=[1], q2=[0])


def test_the_table_of_two_seeds(write, table):
    write_corpus(write, "wikiqa")
    # Two MAPs differ by a deviation of their difference over the square root of 2. Of two questions
    # the bootstrap's means are those of either or of both; t has one degree of freedom, so that
    # p is 1 - 2 / pi * arctan |t|.
    expected = [
        # q1 1 and 1, q2 1 and 0.5: MAP 100 and 75.
        ["mono", "0", "1.00", "87.50", "17.68", "", "", ""],
        # q1 0.5 and 1, q2 0.5 and 1: -0.25 and 0 less than the twin's 1 and 0.75; t = -1.
        ["uniform", "0", "1.00", "75.00", "35.36", "-12.50", "-25.00 to +0.00", "0.500"],
        # q1 0.5, q2 0.5: -0.5 and -0.25; t = -3.
        ["uniform", "0.3", "0.80", "50.00", "0.00", "-37.50", "-50.00 to -25.00", "0.205"],
        # q1 1 and 1, q2 1 and none, which counts as 0: 0 and -0.25.
        ["head", "0", "1.00", "75.00", "35.36", "-12.50", "-25.00 to +0.00", "0.500"],
    ]
    assert f"{1 - 2 / math.pi * math.atan(3):.3f}" == "0.205"
    assert f"{50 / math.sqrt(2):.2f}" == "35.36"
    assert table("mono", "uniform", "head") == {"wikiqa": expected}
    alone = table("mono", "uniform", seeds=["3"])["wikiqa"]
    assert alone[0][:5] == ["mono", "0", "1.00", "100.00", "-"]
    assert alone[2][:6] == ["uniform", "0.3", "0.70", "50.00", "-", "-50.00"]


def test_a_variant_without_all_its_runs_is_left_out(write, table, tmp_path):
    for corpus in ("wikiqa", "trecqa"):
        write_corpus(write, corpus)
    (tmp_path / "uniform_wikiqa_seed5" / "dev.json").unlink()
    rows = table("mono", "uniform", "head", corpora=["wikiqa", "trecqa"])
    assert [row[0] for row in rows["wikiqa"]] == ["mono", "head"]
    assert [row[0] for row in rows["trecqa"]] == ["mono", "uniform", "uniform", "head"]
    # No other variant takes the place of the first one.
    with pytest.raises(DataError, match=r"uniform_wikiqa_seed5: no dev\.json"):
        table("uniform", "head", "mono")
    # A first variant that drops is compared with at drop ratio 0.
    rows = table("uniform", "head", "mono", corpora=["trecqa"])["trecqa"]
    assert [row[5] for row in rows] == ["", "-25.00", "+0.00", "+12.50"]


def test_a_run_without_the_cost_of_a_ratio_is_named(write, table, tmp_path):
    write_corpus(write, "wikiqa")
    path = tmp_path / "uniform_wikiqa_seed3" / "dev.json"
    path.write_text(json.dumps({"drop_ratio": "0", "cost": 1.0}))
    with pytest.raises(DataError, match=r"dev\.json: no row of this drop ratio; expected 0\.3"):
        table("mono", "uniform")
