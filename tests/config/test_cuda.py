"""The CUDA libraries of the wheel for GPUs: what is loaded, and what is said to be missing."""

import ctypes
import pathlib
import re
import sys

import pytest
from conftest import ROOT, child_environment, run_python

from wqa.config import environment
from wqa.errors import DeviceError, MissingDependency
from wqa.models import parse_devices, runtime


def make_wheels(folder, names):
    """Folders as the wheels of NVIDIA install them, with empty libraries."""
    for package, name in names:
        path = folder / "nvidia" / package / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder / "nvidia"


def test_libraries_are_loaded_by_dependence(tmp_path, monkeypatch):
    names = [("cudnn", "libcudnn.so.8"), ("cublas", "libcublas.so.11")]
    names += [("cublas", "libcublasLt.so.11"), ("cuda_runtime", "libcudart.so.11.0")]
    names += [("cublas", "libnvblas.so.11"), ("cublas", "libcublas.so.12")]  # not for this wheel
    folder = make_wheels(tmp_path, names)
    given = []
    monkeypatch.setattr(environment.ctypes, "CDLL", lambda path, mode: given.append(path))
    loaded = environment.load_libraries([str(folder)])
    assert given == loaded
    assert [pathlib.Path(path).name for path in loaded] == [
        "libcudart.so.11.0",
        "libcublasLt.so.11",
        "libcublas.so.11",
        "libcudnn.so.8",
    ]
    assert environment.load_libraries([]) == []


def test_a_damaged_library_is_left_to_mxnet(tmp_path):
    folder = make_wheels(tmp_path, [("cudnn", "libcudnn.so.8"), ("nccl", "libnccl.so.2")])
    with pytest.raises(OSError):
        ctypes.CDLL(str(folder / "cudnn" / "lib" / "libcudnn.so.8"))
    assert environment.load_libraries([str(folder)]) == []


def test_the_folders_of_the_wheels(tmp_path, monkeypatch):
    """They share a namespace package, which may be in several places."""
    here = make_wheels(tmp_path / "here", [("cudnn", "libcudnn.so.8")])
    there = make_wheels(tmp_path / "there", [("nccl", "libnccl.so.2")])
    for folder in (there, here):
        monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert environment.library_folders()[:2] == [str(here), str(there)]
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    assert environment.library_folders() == []


ABSENT = "{}: cannot open shared object file: No such file or directory"


def test_a_missing_driver_is_no_missing_extra():
    problem = environment.import_problem(OSError(ABSENT.format("libcuda.so.1")))
    assert isinstance(problem, MissingDependency)
    assert str(problem).startswith("libcuda.so.1: ")
    assert "install the NVIDIA driver" in str(problem) and ".[cu112]" not in str(problem)


@pytest.mark.parametrize("name", environment.LIBRARIES)
def test_a_missing_library_is_one_of_the_extra(name):
    problem = str(environment.import_problem(OSError(ABSENT.format(name))))
    assert problem.startswith(f"{name}: ") and "'.[cu112]'" in problem
    assert "driver" not in problem


def test_a_missing_mxnet_is_either_extra():
    problem = str(environment.import_problem(ImportError("No module named 'mxnet'")))
    assert "No module named 'mxnet'" in problem
    assert "'.[cpu]'" in problem and "'.[cu112]'" in problem


@pytest.mark.parametrize("library, said", [("libcuda.so.1", "driver"), ("libnccl.so.2", "cu112")])
def test_the_command_line_says_it(library, said, tmp_path):
    (tmp_path / "mxnet.py").write_text(f"raise OSError({ABSENT.format(library)!r})\n")
    path = {"PYTHONPATH": f"{tmp_path}:{child_environment()['PYTHONPATH']}"}
    train = ("-m", "wqa", "train", "cascade", "--train", "t", "--out", "o")
    done = run_python(*train, variables=path, cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"error: {library}: ") and said in done.stderr


def test_a_device_that_the_driver_does_not_show(monkeypatch):
    monkeypatch.setattr(runtime, "gpu_count", lambda: 0)
    with pytest.raises(DeviceError, match="shows 0 GPUs.*install MXNet for GPUs"):
        parse_devices("gpu:0")
    monkeypatch.setattr(runtime.mx.runtime.Features, "is_enabled", lambda self, name: True)
    with pytest.raises(DeviceError, match="nvidia-smi") as caught:
        parse_devices("gpu:0")
    assert "cu112" not in str(caught.value)


def test_the_pins_of_the_extra():
    """A range would let a later CUDA in, whose libraries have other names."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    extra = text[text.index('"cu112": [') : text.index('"plots"')]
    packages = re.findall(r'"([a-z0-9-]+)==[\d.]+(?:;.*)?"', extra)
    assert sum(package.startswith("nvidia-") for package in packages) == 9
    assert {"mxnet-cu112", "onednn-cpu-gomp"} < set(packages)
    assert extra.count("==") - extra.count("platform_machine ==") == len(packages) == 12
