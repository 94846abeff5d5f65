"""`wqa doctor`: what it says of this machine, and where a library or a precision is missing."""

import ast
import json
import subprocess
import sys

import pytest
from conftest import HIDDEN, HIDE_ONEDNN, ROOT, child_environment, lacks, needs_onednn

from wqa.cli.doctor import CORE, ENGINES, EXTRAS, as_text, diagnose
from wqa.config.environment import process_limits, processor
from wqa.errors import how_to_install


def doctor(folders=(), **variables):
    """Exit status, report and standard error of the real command, in a process."""
    variables = child_environment(**variables)
    paths = [*map(str, folders), variables["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, "-m", "wqa", "doctor", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**variables, "PYTHONPATH": ":".join(paths)},
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def problems(report):
    """What is wrong with each engine and precision, empty where they work."""
    return {(row["engine"], row["precision"]): row["problem"] for row in report["engines"]}


def test_this_machine():
    status, report, _ = doctor()
    assert status == 0 and report["works"]
    found = problems(report)
    assert not found["mxnet", "float32"] and not found["onnxruntime", "float32"]
    for precision in ("float32", "bfloat16", "int8"):
        assert bool(found["onednn", precision]) == bool(lacks(precision)), precision
    assert report["versions"]["mxnet"] and set(CORE) < set(report["versions"])
    assert report["devices"][0] == "cpu" and report["limits"]["processors"] >= 1
    assert not any("MXNet" in line for line in report["advice"])


@needs_onednn
def test_a_cap_of_the_instruction_sets():
    status, report, _ = doctor(ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="AVX2")
    assert status == 0 and report["processor"]["onednn_uses"] == "AVX2"
    assert report["processor"]["caps"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert "AVX512_BF16" in problems(report)["onednn", "bfloat16"]
    assert any(line.startswith("ONEDNN_MAX_CPU_ISA=AVX2 limits") for line in report["advice"])


@pytest.mark.onednn
def test_without_the_onednn_package():
    status, report, _ = doctor([HIDDEN], **{HIDE_ONEDNN: "1"})
    assert status == 0 and report["processor"]["onednn_uses"] is None
    found = problems(report)
    assert not found["mxnet", "float32"] and "onednn-cpu-gomp" in found["onednn", "float32"]
    assert any("onednn-cpu-gomp is missing" in line for line in report["advice"])


@pytest.mark.parametrize(
    "module, text, message",
    [
        ("mxnet", "raise ImportError('no such library')", "no such library"),
        ("mxnet", "import os; os.abort()", "SIGABRT ended the process"),
        ("numpy", "raise ImportError('no numpy')", "no numpy"),
        ("tokenizers", "raise ImportError('no tokenizers')", "no tokenizers"),
    ],
)
def test_a_library_that_cannot_be_imported(module, text, message, tmp_path):
    (tmp_path / f"{module}.py").write_text(text + "\n")
    status, report, error = doctor([tmp_path])
    assert status == 2 and not report["works"] and not error
    assert message in report["advice"][0]
    assert report["processor"]["machine"] and report["versions"]["python"]


def test_without_mxnet_exported_folders_can_be_ranked(monkeypatch):
    versions = {"mxnet": None, "mxnet-cu112": None, "gluonnlp": None, "numpy": "2.1.0"}
    row = {"engine": "onnxruntime", "precision": "float32", "problem": ""}
    result = {"problem": "no mxnet", "engines": [row]}
    monkeypatch.setattr("wqa.cli.doctor._rank_in_a_process", lambda: result)
    monkeypatch.setattr(
        "wqa.cli.doctor.installed_version", lambda package: versions.get(package, "1")
    )
    report = diagnose()
    assert report["works"] and "ranking works here" in as_text(report)
    assert report["advice"][:2] == [
        "exported folders alone can be ranked: no mxnet",
        f"MXNet is missing; {how_to_install('cpu')}",
    ]
    row["problem"] = "no such library"
    report = diagnose()
    assert not report["works"] and report["advice"][0] == "nothing can be ranked: no mxnet"


def test_a_variable_that_mxnet_cannot_take():
    status, report, _ = doctor(OMP_NUM_THREADS="abc")
    assert status == 2 and "OMP_NUM_THREADS" in report["advice"][0]


def test_missing_packages_and_what_to_install(monkeypatch):
    monkeypatch.setattr("wqa.cli.doctor._rank_in_a_process", lambda: {"problem": "no mxnet"})
    monkeypatch.setattr("wqa.cli.doctor.installed_version", lambda package: None)
    text = as_text(diagnose())
    for extra in ("plots", "tune", "corpora", "cpu"):
        assert how_to_install(extra) in text
    assert "ranking does not work here" in text and "gluonnlp" in text


def test_numpy_that_is_too_new(monkeypatch):
    versions = {"numpy": "2.1.0", "mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}
    monkeypatch.setattr("wqa.cli.doctor._rank_in_a_process", lambda: {"problem": "np.bool"})
    monkeypatch.setattr(
        "wqa.cli.doctor.installed_version", lambda package: versions.get(package, "1")
    )
    advice = diagnose()["advice"]
    assert any("'numpy<1.24'" in line for line in advice)
    assert any("uninstall one of the two" in line for line in advice)


def test_the_limits_of_a_process():
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
    code += (
        "from wqa.config.environment import process_limits; print(process_limits()['memory_limit'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert int(done.stdout) <= 1 << 31
    limits = process_limits()
    assert limits["processors"] <= limits["processors_of_machine"]
    assert 0 < limits["memory_available"] <= limits["memory"]
    assert processor()["name"]


def test_the_extras_are_those_of_the_package():
    """Names and packages are those of setup.py, whichever installation this is."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    [call] = [node.value for node in tree.body if isinstance(node, ast.Expr)][1:]
    arguments = {keyword.arg: keyword.value for keyword in call.keywords}
    extras = ast.literal_eval(arguments["extras_require"])
    for name, (packages, _) in EXTRAS.items():
        assert [requirement_name(text) for text in extras[name]] == list(packages)
    assert set(extras) - set(EXTRAS) == {"cpu", "cu112", "docs", "test"}
    assert {requirement_name(text) for text in extras["cpu"]} <= {*ENGINES, *CORE}
    required = ast.literal_eval(arguments["install_requires"])
    assert {requirement_name(text) for text in required} == set(CORE)
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    for name in extras:
        assert f"| `{name}` |" in page, name


def requirement_name(text):
    """Name of the package that a requirement names."""
    return text.split(";")[0].split("<")[0].split(">")[0].split("=")[0].strip()
