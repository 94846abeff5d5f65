"""Every recipe in its smoke mode, and the house's own rules."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

RECIPES = sorted((ROOT / "recipes").rglob("*/*.sh"))
#: What a recipe leaves in its results, and a word that stands in it.
RESULTS = {
    "table2": ("table2.tsv", "CT 3 layers"),
    "table3": ("table3.tsv", "SR"),
    "figure2": ("figure2.txt", "tuned"),
    "place_exits": ("place_exits.txt", "tuned"),
    "minilm_tables": ("minilm_claims.txt", "t_test"),
    "wikiqa_minilm": ("wikiqa_minilm.txt", "questions scored"),
}


@pytest.fixture(scope="session")
def recipe_out(tmp_path_factory):
    """Where all recipes leave their runs: one goes on with what another has trained, as it does at
    full size."""
    return tmp_path_factory.mktemp("recipes")


def run_recipe(recipe, out, folder):
    command = folder / "wqa"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wqa "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "SMOKE": "1",
        "OUT": str(out),
        "WQA": str(command),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        ["bash", str(recipe)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=folder,
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recipe_in_smoke_mode(recipe, minilm, recipe_out, tmp_path):
    done = run_recipe(recipe, recipe_out, tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(recipe_out.rglob("model.params"))
    if recipe.stem in RESULTS:
        name, word = RESULTS[recipe.stem]
        assert word in (recipe_out / name).read_text()


def test_a_recipe_that_has_run_does_not_train_again(recipe_out, tmp_path):
    recipe = ROOT / "recipes" / "tanda" / "transfer.sh"
    assert run_recipe(recipe, recipe_out, tmp_path).returncode == 0
    again = run_recipe(recipe, recipe_out, tmp_path)
    assert again.returncode == 0 and "==" not in again.stdout and "training" not in again.stderr


BENCH = ROOT / "recipes" / "bench"


def test_the_comparison_of_speeds(tmp_path):
    """All of it but the peers, which another environment holds."""
    command = [
        sys.executable,
        BENCH / "compare.py",
        "--shape",
        "tiny",
        "--questions",
        "4",
        "--candidates",
        "12",
    ]
    done = subprocess.run(
        [*command, "--chunk", "2", "--json", tmp_path / "bench.json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "4 questions, 48 candidates" in done.stdout
    rows = {
        (row["name"], row["precision"], row["drop_ratio"]): row
        for row in json.loads((tmp_path / "bench.json").read_text())["rows"]
    }
    assert len(rows) == 12
    for (name, precision, ratio), row in rows.items():
        assert (
            row["candidates_per_s"] > 0
            and row["tokens_per_s"] > row["candidates_per_s"]
            and row["memory_mib"] > 0
        )
        assert row["time_over_0"] == 1 or ratio > 0
        assert row["spearman"] > (0.5 if ratio == 0 else -1), (name, precision)
    assert rows["wqa pairwise", "float32", 0.0]["same_first"] == 1


def test_the_comparison_of_trainings(tmp_path):
    command = [
        sys.executable,
        BENCH / "compare_training.py",
        "--shape",
        "tiny",
        "--updates",
        "1",
        "--turns",
        "2",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 turns of 1 updates") and len(lines) == 7
    for line in lines[2:]:
        assert float(line.split()[4]) > 0, line


def test_the_log_of_memory(tiny_run):
    done = subprocess.run(
        [sys.executable, BENCH / "memory.py", tiny_run, "100", "float32"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "after 10 questions" in done.stdout and "after 100" in done.stdout


def test_the_comparison_lays_peers_beside(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import compare

    def contender(name, precision, seconds, scores, **extra):
        made = compare.Contender.__new__(compare.Contender)
        made.name, made.precision, made.memory = name, precision, 1.0
        made.turns = [
            {
                "tokens": 30,
                "rows": [{"drop_ratio": 0.0, "seconds": each, "scores": scores, **extra}],
            }
            for each in seconds
        ]
        return made

    found = [
        contender("pytorch", "float32", [4, 9, 4], [[1, 2, 3]]),
        contender("cross-encoder", "float32", [8, 8, 8], [[1, 2, 3]]),
        contender("wqa pairwise", "int8", [1, 3, 2], [[1, 3, 2]], end_to_end=2.0),
    ]
    rows = compare.rows_of(found, [("q", ["a", "b", "c"])] * 3)
    ours = rows[-1]
    assert ours["over"] == {
        "pytorch float32": 3,
        "cross-encoder float32": 4,
    }  # text in beside text in
    assert ours["candidates_per_s"] == 9 / 6 and ours["tokens_per_s"] == 90 / 6
    assert ours["end_to_end"] == 1 and ours["spearman"] == 0.5 and ours["same_first"] == 0
    assert "wqa pairwise  int8" in compare.table(rows)


LAYERS = [
    "errors",
    "config",
    "data",
    "evaluation",
    "text",
    "models",
    "onednn",
    "pretrained",
    "training",
    "inference",
    "tuning",
    "cli",
]
WITHOUT_MXNET = {"errors", "config", "data", "evaluation"}
NOT_BESIDE = [
    ("training", "inference"),
    ("evaluation", "text"),
    ("models", "data"),
    ("pretrained", "data"),
    ("text", "evaluation"),
    ("models", "evaluation"),
    ("training", "evaluation"),
    ("inference", "evaluation"),
]


def imported(path):
    """Modules imported when a file is imported, those inside functions left out."""
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield node.module
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes.extend(
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
            )


def test_imports_run_one_way():
    files = sorted((ROOT / "wqa").rglob("*.py"))
    assert len(files) > 40
    for path in files:
        layer = path.relative_to(ROOT / "wqa").parts[0].replace(".py", "")
        for name in imported(path):
            if name.split(".")[0] == "mxnet":
                assert layer not in WITHOUT_MXNET, f"{path} imports MXNet"
            parts = name.split(".")
            if parts[0] == "wqa" and len(parts) > 1 and layer in LAYERS:
                other = parts[1]
                assert LAYERS.index(other) <= LAYERS.index(layer), f"{path} imports {name}"
                assert (layer, other) not in NOT_BESIDE and (other, layer) not in NOT_BESIDE[:1], (
                    f"{path} imports {name}"
                )


def test_sibling_models_do_not_import_one_another():
    siblings = {"cascade", "pairwise"}
    for name in siblings:
        others = {part.split(".")[-1] for part in imported(ROOT / "wqa" / "models" / f"{name}.py")}
        assert not others & siblings


def test_the_repository_names_no_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".py", ".sh", ".md", ".txt", ".toml", ".jsonl") and path != pathlib.Path(
            __file__
        ):
            text = path.read_text(encoding="utf-8")
            for place in ("/ro" + "ot/", "/wo" + "rk/", "/ho" + "me/", "/tm" + "p/"):
                assert place not in text, f"{name} names {place}"


def test_the_measurement_of_asnq(minilm, tmp_path):
    command = [sys.executable, ROOT / "recipes" / "tanda" / "measure_asnq.py", tmp_path, "2000"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["convert", "tokenize", "read", "read"]
    assert (
        all("2,000" in line for line in lines[1:]) and int(lines[2].split()[3].replace(",", "")) > 0
    )
