"""TREC runs beside the recipes: their headers, and the figures of the tables that they give."""

import re

import pytest
import wikiqa
from conftest import ROOT
from run_headers import read_metadata

from wqa.data import read_questions
from wqa.evaluation import qrels_from, read_run, score_run
from wqa.evaluation.report import read_rows
from wqa.evaluation.significance import over_seeds
from wqa.io.files import sha256

RUNS = sorted((ROOT / "recipes").glob("*/runs/*"))


def named_runs():
    """Runs of each paper's list, by paper and row."""
    named = {}
    for path in (ROOT / "recipes").glob("*/runs.tsv"):
        for entry in read_rows(path, ("row", "file")):
            key = (path.parent.name, entry["row"])
            named.setdefault(key, []).append(path.parent / entry["file"])
    return named


def test_lists_name_the_runs():
    named = {path for paths in named_runs().values() for path in paths}
    assert sorted(named) == RUNS and len(RUNS) > 8
    assert sum(path.stat().st_size for path in RUNS) < 6e6


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_run_says_how_it_was_made(path):
    metadata = read_metadata(path)
    parts = {"platform", "implementation", "resources", "method", "data", "research goal", "actor"}
    assert parts < set(metadata)
    assert re.fullmatch("[0-9a-f]{40}", metadata["implementation"]["source"]["commit"])
    assert re.fullmatch("[0-9a-f]{64}", metadata["data"]["test collection"]["sha256"])
    assert not re.findall(r"(?:^|[\s=,])/\w+", str(metadata)), "a path of a machine"
    [retrieval] = metadata["method"]["retrieval"]
    for ranker in retrieval.get("rankers", [retrieval]):
        assert re.fullmatch("[0-9a-f]{64}", ranker["sha256"]["model.params"])
    count = metadata["data"]["test collection"]["questions"]
    assert 0.9 * count < len(read_run(path)) <= count  # some questions retrieved nothing


#: Tables of WikiQA that runs give, the questions that they count, and how many these are.
TABLES = {
    "mspp/results/separator_wikiqa.tsv": ("clean", 237),
    "mhs/results/minilm_wikiqa.tsv": ("no-all-negative", 243),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_runs_give_the_figures_of_wikiqa(table, wikiqa_archive, tmp_path):
    """The file that the script of the corpus writes is the one that was ranked."""
    assert wikiqa.main(["--out", str(tmp_path), "--archive", str(wikiqa_archive)]) == 0
    questions = tmp_path / "test.jsonl"
    qrels = qrels_from(read_questions(questions))
    named, paper = named_runs(), table.split("/")[0]
    counted, number = TABLES[table]
    for row in read_rows(ROOT / "recipes" / table):
        seeds = []
        for path in named[paper, row["row"]]:
            assert read_metadata(path)["data"]["test collection"]["sha256"] == sha256(questions)
            seeds.append(score_run(read_run(path), qrels, counted))
        figures = over_seeds(seeds)
        for metric in ("map", "mrr", "p@1"):
            mean, deviation = (100 * value for value in figures[metric])
            spread = f" ({deviation:.2f})" if len(seeds) > 1 else ""
            assert row[f"wikiqa_{metric}"] == f"{mean:.2f}{spread}"
        assert {seed["questions"] for seed in seeds} == {number}
