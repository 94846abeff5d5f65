"""`wqa doctor`: what it says of this machine, and where a library or a precision is missing."""

import json

import pytest
from conftest import HIDDEN, HIDE_ONEDNN, ROOT, child_environment, lacks, run_python

from wqa.cli import doctor


def report_of(folders=(), **variables):
    """Exit status and report of the real command, in a process."""
    variables = child_environment(**variables)
    paths = [*map(str, folders), variables["PYTHONPATH"]]
    variables = {**variables, "PYTHONPATH": ":".join(paths)}
    done = run_python("-m", "wqa", "doctor", "--json", "-", variables=variables, cwd=ROOT)
    assert not done.stderr
    return done.returncode, json.loads(done.stdout)


def problems(report):
    """What is wrong with each engine and precision, empty where they work."""
    return {(row["engine"], row["precision"]): row["problem"] for row in report["engines"]}


def test_this_machine():
    status, report = report_of()
    assert status == 0 and report["works"] and not report["problem"]
    states = problems(report)
    assert not states["mxnet", "float32"] and not states["onnxruntime", "float32"]
    for precision in ("float32", "bfloat16", "int8"):
        assert bool(states["onednn", precision]) == bool(lacks(precision)), precision
    assert report["versions"]["mxnet"] and {"numpy", "tokenizers", "ray"} < set(report["versions"])
    assert report["processor"]["name"] and "avx2" in report["processor"]["instruction_sets"]


@pytest.mark.once
@pytest.mark.onednn
def test_without_the_onednn_package():
    status, report = report_of([HIDDEN], **{HIDE_ONEDNN: "1"})
    assert status == 0
    states = problems(report)
    assert not states["mxnet", "float32"] and "onednn-cpu-gomp" in states["onednn", "float32"]


@pytest.mark.parametrize(
    "module, text, message",
    [
        ("mxnet", "import os; os.abort()", "exit status -6"),
        ("numpy", "raise ImportError('no numpy')", "no numpy"),
    ],
)
def test_a_library_that_cannot_be_imported(module, text, message, tmp_path):
    (tmp_path / f"{module}.py").write_text(text + "\n")
    status, report = report_of([tmp_path])
    assert status == 2 and not report["works"] and message in report["problem"]
    assert report["processor"]["machine"] and report["versions"]["python"]


def test_without_mxnet_exported_folders_can_be_ranked(monkeypatch):
    row = {"engine": "onnxruntime", "precision": "float32", "problem": ""}
    result = {"problem": "no mxnet", "gpus": 0, "engines": [row]}
    monkeypatch.setattr(doctor, "_probe_in_a_process", lambda: dict(result))
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    report = doctor.diagnose()
    text = doctor.as_text(report)
    assert report["works"] and "ranking works here; no mxnet" in text and "not installed" in text
    monkeypatch.setattr(doctor, "installed_version", lambda name: "1.9.1")
    assert not doctor.diagnose()["works"]  # where MXNet is installed, it has to work
