"""How tests depend on the processor: marks that skip a case, a lower one, a hidden package."""

import os
import subprocess
import sys

import pytest
from conftest import HIDDEN, HIDE_ONEDNN, ROOT, lacks, needs_onednn, needs_precision, run_python

PRECISIONS = ("float32", "bfloat16", "int8")
LACKS = "import sys; sys.path[:0] = ['tests']; from conftest import lacks; print(lacks('{}'))"


def child(code, **variables):
    """Standard output of a Python process."""
    done = run_python("-c", code, variables=variables, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "precision", [pytest.param(name, marks=needs_precision(name)) for name in PRECISIONS]
)
def test_a_case_runs_where_its_precision_is_there(precision, request):
    assert not lacks(precision)
    assert request.node.get_closest_marker("onednn")


@pytest.mark.once
@needs_onednn
def test_a_lower_processor_lacks_a_precision(request):
    capped = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}
    assert child(LACKS.format("float32"), **capped) == ""
    assert "AVX512_BF16" in child(LACKS.format("bfloat16"), **capped)
    assert request.node.get_closest_marker("onednn")


@pytest.mark.onednn
def test_the_hidden_package_is_missing():
    if os.environ.get(HIDE_ONEDNN):
        for precision in PRECISIONS:
            assert "onednn-cpu-gomp" in lacks(precision)
    assert "onednn-cpu-gomp" in child(LACKS.format("float32"), **{HIDE_ONEDNN: "1"})


@pytest.mark.onednn
def test_a_process_of_a_hidden_process_does_not_see_the_package():
    code = (
        "import importlib.metadata as metadata\n"
        "assert metadata.version('numpy')\n"
        "try:\n"
        "    metadata.files('onednn-cpu-gomp')\n"
        "except metadata.PackageNotFoundError:\n"
        "    print('hidden')\n"
    )
    folders = os.pathsep.join((str(HIDDEN), os.environ.get("PYTHONPATH", "")))
    assert child(code, PYTHONPATH=folders, **{HIDE_ONEDNN: "1"}) == "hidden"


@pytest.mark.once
@needs_precision("int8")
def test_a_recipe_ranks_in_int8_where_the_processor_does(tmp_path, wqa_command):
    variables = {"OUT": str(tmp_path), "SMOKE": "1", "WQA": wqa_command, "PYTHON": sys.executable}
    command = ["bash", "-c", ". recipes/dcbert/settings.bash; possible float32 int8"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True)
    assert done.stdout.split() == [b"float32", b"int8"], done.stderr
