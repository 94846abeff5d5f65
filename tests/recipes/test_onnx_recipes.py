"""The script that quantizes exported graphs."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, child_environment

from wqa import load_ranker, read_questions
from wqa.data import builtin_path
from wqa.systems.export_onnx import export_onnx


def script(name, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "recipes" / "bench" / name, *map(str, arguments)],
        env=child_environment(),
        capture_output=True,
        text=True,
    )


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
