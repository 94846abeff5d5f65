"""Every recipe in its smoke mode, and the house's own rules."""
import ast
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

RECIPES = sorted((ROOT / "recipes").rglob("*.sh"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_in_smoke_mode(recipe, minilm, tmp_path):
    command = tmp_path / "wqa"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wqa "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "SMOKE": "1", "OUT": str(tmp_path / "out"), "WQA": str(command), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", str(recipe)], capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = list((tmp_path / "out").glob("*.txt"))
    assert results and "questions scored" in results[0].read_text()
    assert list((tmp_path / "out").glob("*.metrics.jsonl"))


LAYERS = ["errors", "config", "data", "evaluation", "text", "models", "pretrained", "training", "inference", "cli"]
WITHOUT_MXNET = {"errors", "config", "data", "evaluation"}
NOT_BESIDE = [("training", "inference"), ("evaluation", "text"), ("models", "data"), ("pretrained", "data"),
              ("text", "evaluation"), ("models", "evaluation"), ("training", "evaluation"), ("inference", "evaluation")]


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
            nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


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
                assert (layer, other) not in NOT_BESIDE and (other, layer) not in NOT_BESIDE[:1], f"{path} imports {name}"


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
        if path.suffix in (".py", ".sh", ".md", ".txt", ".toml", ".jsonl") and path != pathlib.Path(__file__):
            text = path.read_text(encoding="utf-8")
            for place in ("/ro" + "ot/", "/wo" + "rk/", "/ho" + "me/", "/tm" + "p/"):
                assert place not in text, f"{name} names {place}"
