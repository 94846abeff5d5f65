"""TREC runs beside the recipes: their headers, and the figures of the tables that they give."""

import re

import pytest
import trecqa
import wikiqa
from conftest import ROOT, shared_corpus
from run_headers import read_metadata

from wqa.data import read_questions
from wqa.evaluation import qrels_from, read_run, score_run
from wqa.evaluation.report import read_rows
from wqa.evaluation.significance import over_seeds
from wqa.io.files import sha256

RUNS = sorted((ROOT / "recipes").glob("*/runs/*"))


def named_runs():
    """Runs of each paper's list, by paper, row and drop ratio."""
    named = {}
    for path in (ROOT / "recipes").glob("*/runs.tsv"):
        for entry in read_rows(path, ("row", "file")):
            key = (path.parent.name, entry["row"], entry.get("drop_ratio", "0"))
            named.setdefault(key, []).append(path.parent / entry["file"])
    return named


def test_lists_name_the_runs():
    named = {path for paths in named_runs().values() for path in paths}
    assert sorted(named) == RUNS and len(RUNS) > 8
    assert sum(path.stat().st_size for path in RUNS) < 9e6


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_run_says_how_it_was_made(path):
    metadata = read_metadata(path)
    assert {"implementation", "method", "data"} < set(metadata)
    assert re.fullmatch("[0-9a-f]{40}", metadata["implementation"]["source"]["commit"])
    assert re.fullmatch("[0-9a-f]{64}", metadata["data"]["test collection"]["sha256"])
    assert not re.findall(r"(?:^|[\s=,])/\w+", str(metadata)), "a path of a machine"
    [retrieval] = metadata["method"]["retrieval"]
    for ranker in retrieval.get("rankers", [retrieval]):
        assert re.fullmatch("[0-9a-f]{64}", ranker["sha256"]["model.params"])
    count = metadata["data"]["test collection"]["questions"]
    assert 0.9 * count < len(read_run(path)) <= count  # some questions retrieved nothing


#: Tables that runs give, the script and the file of their corpus, the questions that they count,
#: how many these are, and how many rows have runs: exits of a cascade have none.
TABLES = {
    "mspp/results/separator_wikiqa.tsv": (wikiqa, "test.jsonl", "clean", 237, 4),
    "mhs/results/minilm_wikiqa.tsv": (wikiqa, "test.jsonl", "no-all-negative", 243, 14),
    "cascade/results/base_wikiqa.tsv": (wikiqa, "test.jsonl", "no-all-negative", 243, 11),
    "cascade/results/base_trecqa.tsv": (trecqa, "test-clean.jsonl", "all", 68, 4),
    "cascade/results/minilm_wikiqa.tsv": (wikiqa, "test.jsonl", "no-all-negative", 243, 15),
    "cascade/results/minilm_trecqa.tsv": (trecqa, "test-clean.jsonl", "all", 68, 15),
    "cosinet/results/minilm_wikiqa.tsv": (wikiqa, "test.jsonl", "no-all-negative", 243, 9),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_runs_give_the_figures_of_a_table(table, tmp_path):
    """The file that the script of the corpus writes is the one that was ranked."""
    script, file, counted, number, rows_with_runs = TABLES[table]
    corpus = script.__name__
    assert script.main(["--out", str(tmp_path), "--archive", str(shared_corpus(corpus))]) == 0
    questions = tmp_path / file
    qrels = qrels_from(read_questions(questions))
    named, found = named_runs(), 0
    for row in read_rows(ROOT / "recipes" / table):
        seeds = []
        for path in named.get((table.split("/")[0], row["row"], row["drop_ratio"]), ()):
            if path.name.startswith("base_") != ("/base_" in table):
                continue  # of the other size
            if read_metadata(path)["data"]["test collection"]["sha256"] == sha256(questions):
                seeds.append(score_run(read_run(path), qrels, counted))
        if not seeds:
            continue
        assert len(seeds) == int(row[f"{corpus}_seeds"])
        found += 1
        figures = over_seeds(seeds)
        for metric in ("map", "mrr", "p@1"):
            mean, deviation = (100 * value for value in figures[metric])
            spread = f" ({deviation:.2f})" if len(seeds) > 1 else ""
            assert row[f"{corpus}_{metric}"] == f"{mean:.2f}{spread}"
        assert {seed["questions"] for seed in seeds} == {number}
    assert found == rows_with_runs
