"""What is known and loaded before MXNet: threads, the processor, versions, devices, CUDA.

The extra ``cu112`` installs the CUDA libraries from wheels of their own, in folders that the loader
does not search, so they are loaded by path. ``libcuda.so.1`` comes with the driver alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import itertools
import os
import pathlib
import platform
import re
import sys
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import wqa
from wqa.errors import DeviceError, MissingDependency, OptionError, how_to_install, shorten

#: Names of what brings MXNet: for CPUs, and for GPUs.
MXNET_PACKAGES = ("mxnet", "mxnet-cu112")
#: Libraries that a model's figures depend on, beside MXNet.
_LIBRARIES = ("gluonnlp", "numpy", "tokenizers")


def installed_version(package: str) -> Optional[str]:
    """Version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def library_versions() -> Dict[str, str]:
    """Versions of the libraries that a model's figures depend on.

    Returns
    -------
    dict of str to str
        Version by name of the library; what is not installed is left out.
    """
    mxnet, mxnet_cu112 = map(installed_version, MXNET_PACKAGES)
    versions = {"wqa": wqa.__version__, "mxnet": mxnet or mxnet_cu112}
    versions.update({name: installed_version(name) for name in _LIBRARIES})
    versions["python"] = platform.python_version()
    return {name: version for name, version in versions.items() if version is not None}


def device_numbers(ctx: str) -> Tuple[str, List[int]]:
    """Parse the name of one or several devices.

    Parameters
    ----------
    ctx : str
        ``cpu``, ``gpu``, ``gpu:2``, a range such as ``gpu:0-7``, or several of these with commas
        between them.

    Returns
    -------
    kind : {"cpu", "gpu"}
        Kind of the devices.
    numbers : list of int
        Their numbers, at least one, all different.

    Raises
    ------
    DeviceError
        If the name is malformed.
    """
    kinds: Set[str] = set()
    numbers: List[int] = []
    for name in str(ctx).split(","):
        match = re.fullmatch(r"(cpu|gpu)(?::(\d{1,3})(?:-(\d{1,3}))?)?", name.strip())
        kind, first, last = match.groups() if match else ("", None, None)
        several = range(int(first or 0), int(last or first or 0) + 1)
        kinds.add(kind if several else "")
        numbers += several
    if len(kinds) == 1 and "" not in kinds and len(set(numbers)) == len(numbers):
        return kinds.pop(), numbers
    expected = "cpu, gpu:0, a range such as gpu:0-7, or different ones such as gpu:0,gpu:2"
    raise DeviceError("ctx", shorten(ctx), expected)


def openmp_threads(text: str, default: int) -> str:
    """Number of threads as MXNet takes it, from a value of ``OMP_NUM_THREADS``.

    OpenMP takes a list, a number for every level of nested parallel regions. MXNet aborts the
    process on a list, and on what is no number.
    """
    first = text.partition(",")[0].strip(" \t") or str(default)
    if not re.fullmatch("[0-9]{1,4}", first) or int(first) < 1:
        hint = "correct or unset the environment variable"
        raise OptionError("OMP_NUM_THREADS", shorten(text), "a whole number from 1 to 9999", hint)
    return first


#: Instruction sets that the kernels of oneDNN and MXNet use, as Linux names them, oldest first.
INSTRUCTION_SETS = (
    *("sse4_1", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
)
#: Environment variables that limit the instruction sets of oneDNN, and of the one inside MXNet.
CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def processor() -> Dict[str, Any]:
    """Describe the processor."""
    fields: Dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    return {
        "name": fields.get("model name", ""),
        "machine": platform.machine(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "caps": {name: os.environ[name] for name in CAPS if os.environ.get(name)},
    }


#: Libraries of the extra, ordered by dependence.
LIBRARIES = (
    "libcudart.so.11.0",
    "libnvrtc.so.11.2",
    "libcublasLt.so.11",
    "libcublas.so.11",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcudnn.so.8",
    "libnccl.so.2",
    "libnvToolsExt.so.1",
)
#: Library of the driver.
DRIVER = "libcuda.so.1"


def library_folders() -> List[str]:
    """Folders in which the wheels of the CUDA libraries are installed."""
    spec = importlib.util.find_spec("nvidia")
    return list(spec.submodule_search_locations or ()) if spec else []


def load_libraries(folders: Sequence[str]) -> List[str]:
    """Load the CUDA libraries that are there. What is missing, the import of MXNet names."""
    loaded = []
    for name, folder in itertools.product(LIBRARIES, folders):
        for path in sorted(map(str, pathlib.Path(folder).glob(f"*/lib/{name}"))):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                loaded.append(path)
    return loaded


def import_problem(error: Exception) -> MissingDependency:
    """Say what is missing where MXNet cannot be imported, and what to do."""
    missing = [library for library in (DRIVER, *LIBRARIES) if library in str(error)]
    hint = f"install it {how_to_install('cpu')}, or '.[cu112]' on a machine with an NVIDIA driver; "
    hint += "`wqa doctor` says more"
    if DRIVER in missing:
        hint = "install the NVIDIA driver, for CUDA 11.2 or newer; start a container with GPUs; "
        hint += f"without a GPU: pip uninstall mxnet-cu112, then {how_to_install('cpu')}"
    elif missing:
        hint = how_to_install("cu112")
    elif sys.version_info >= (3, 12):
        hint = "take one of these, or rank a folder that `wqa export --format onnx` wrote"
    where, problem = (missing or ["mxnet"])[0], f"MXNet cannot be imported ({error})"
    return MissingDependency(where, problem, "MXNet 1.9.1, on Python 3.8 to 3.11", hint)
