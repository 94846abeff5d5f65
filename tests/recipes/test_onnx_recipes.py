"""The scripts that quantize and time exported graphs, and that time bare products."""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, child_environment, needs_onednn

from wqa import load_ranker, read_questions
from wqa.config import TrainingConfig
from wqa.data import builtin_path
from wqa.systems.export_onnx import export_onnx
from wqa.systems.train import train


def script(name, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "recipes" / "bench" / name, *map(str, arguments)],
        env=child_environment(),
        capture_output=True,
        text=True,
    )


def table_rows(output):
    """Cells of the rows below the header of a table, which ends the output."""
    lines = [re.split(" {2,}", line.strip()) for line in output.splitlines()]
    start = [line[0] for line in lines].index("contender")
    return lines[start + 1 :]


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "cascade"
    export_onnx(tiny_run, out)
    return out


def test_an_export_in_8_bits_ranks_nearly_as_in_float32(exported, tmp_path):
    out = tmp_path / "int8"
    done = script("onnx_int8.py", exported, out, "--data", builtin_path("dev"), "--questions", 5)
    assert done.returncode == 0, done.stderr
    ours, exact = load_ranker(out, drop_ratio=0.5), load_ranker(exported, drop_ratio=0.5)
    assert ours.capabilities == exact.capabilities
    differences = []
    for question in list(read_questions(builtin_path("test")))[:5]:
        scores = [ranker.rank(question.question, question.texts) for ranker in (ours, exact)]
        both = [ranking.exit_scores[0] for ranking in scores]
        differences.append(np.abs(both[0] - both[1]))
    worst = np.concatenate(differences).max()
    assert 1e-5 < worst < 0.2


def test_texts_that_are_encoded_apart_stay_in_float32(dcbert_run, tmp_path):
    export_onnx(dcbert_run, tmp_path / "exported")
    given = tmp_path / "exported", tmp_path / "out", "--data", builtin_path("dev")
    done = script("onnx_int8.py", *given)
    assert done.returncode and "an export of the system dcbert" in done.stderr
    assert not (tmp_path / "out").exists()


def test_contenders_rank_in_turn(tiny_run, exported):
    given = tiny_run, exported, "--data", builtin_path("dev"), "--questions", 3, "--rounds", 1
    names = ["oneDNN, run", "ONNX Runtime, stages", "ONNX Runtime, one graph"]
    done = script("onnx_speed.py", *given, "--contenders", *names)
    assert done.returncode == 0, done.stderr
    rows = table_rows(done.stdout)
    assert [row[0] for row in rows] == names
    assert all(row[2] == "3" and float(row[3]) < 1e-4 for row in rows)


def test_all_layers_rank_as_the_run(tiny_encoder, tmp_path):
    run, exported = tmp_path / "run", tmp_path / "exported"
    config = TrainingConfig(max_updates=1, learning_rate=1e-2, tokens_per_batch=500)
    options = {"config": config, "max_length": 64}
    train("pairwise", str(builtin_path("dev")), str(run), str(tiny_encoder), **options)
    export_onnx(run, exported)
    given = run, exported, "--data", builtin_path("dev"), "--questions", 3, "--rounds", 1
    names = ["oneDNN, run", "ONNX Runtime, all layers"]
    done = script("onnx_speed.py", *given, "--contenders", *names)
    assert done.returncode == 0, done.stderr
    rows = table_rows(done.stdout)
    assert [row[0] for row in rows] == names
    assert all(row[2] == "3" and float(row[3]) < 1e-4 for row in rows)


@needs_onednn
def test_bare_products_have_a_speed_in_each_precision():
    done = script("products.py", "--units", 32, "--rows", 64, "--seconds", 0.01)
    assert done.returncode == 0, done.stderr
    machine, *lines = done.stdout.splitlines()
    assert "processors: " in machine
    left_out = [line for line in lines if line.startswith("left out: precision: ")]
    header, *rows = [line.split() for line in lines if line not in left_out]
    assert header == ["precision", "units", "tops"] and len(rows) + len(left_out) == 3
    assert rows[0][:2] == ["float32", "32"] and all(float(row[2]) > 0 for row in rows)
