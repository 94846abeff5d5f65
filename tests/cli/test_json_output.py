"""``--json`` of commands whose result is not a table of figures."""

import json
import shutil

import pytest
from conftest import logged, needs_onednn

from wqa.cli import main
from wqa.data import builtin_path

DEV = str(builtin_path("dev"))


@pytest.fixture
def result_of(capsys, tmp_path):
    """What a command writes, to a file and to standard output alike."""

    def run(*arguments):
        path = tmp_path / "result.json"
        assert main([*map(str, arguments), "--json", str(path)]) == 0, capsys.readouterr().err
        text = capsys.readouterr().out
        assert text and not text.startswith("{")  # the text is printed too
        return json.loads(path.read_text())

    return run


@pytest.fixture
def own_run(tiny_run, tmp_path):
    """A copy of the run, to write into."""
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_train(result_of, tiny_encoder, tmp_path):
    train = ("train", "pairwise", "--encoder", tiny_encoder, "--train", DEV, "--dev", DEV)
    train += ("--out", tmp_path / "run", "--max-updates", 2, "--warmup-updates", 1)
    result = result_of(*train)
    assert result["run"] == str(tmp_path / "run") and result["updates"] == 2
    assert result["metric"] == "map" and not result["was_complete"]
    [figures] = logged(tmp_path / "run", "dev")
    assert (result["best_figure"], result["best_update"]) == (figures["map"], 2)
    assert result_of(*train, "--resume")["was_complete"]


def test_tokenize(result_of, tiny_encoder, tmp_path):
    store = tmp_path / "dev.store"
    result = result_of("tokenize", "--encoder", tiny_encoder, "--data", DEV, "--out", store)
    lines = builtin_path("dev").read_text().splitlines()
    assert result["questions"] == len(lines)
    assert result["pairs"] == sum(len(json.loads(line)["candidates"]) for line in lines)
    assert result["bytes"] == sum(
        path.stat().st_size for path in store.iterdir() if path.name != "meta.json"
    )


def test_convert(result_of, tiny_encoder, tmp_path):
    result = result_of("convert", tiny_encoder, tmp_path / "encoder")
    assert result["out"] == str(tmp_path / "encoder") and result["system"] == "encoder"
    assert result["mapped"] + len(result["unused"]) == result["read"] > 10
    assert result["config"]["num_layers"] == 3


def test_tune_an_ensemble(result_of, own_run, tmp_path):
    file = tmp_path / "ensemble.json"
    file.write_text('{"ensemble": ["run", "wo+rr"]}')
    result = result_of("tune", file, "--data", DEV, "--trials", 3)
    weights = [row["weight"] for row in result["weights"]]
    assert json.loads(file.read_text())["weights"] == pytest.approx(weights)
    assert result["metrics"]["map"] >= result["metrics_of_equal_weights"]["map"]


@needs_onednn
def test_quantize(result_of, own_run):
    result = result_of("quantize", own_run, "--data", DEV, "--questions", 4)
    assert result["file"] == f"{own_run}/int8.safetensors" and result["pairs"] > 4
