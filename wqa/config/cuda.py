"""The CUDA libraries that MXNet's wheel for GPUs links.

The extra ``cu112`` installs them from wheels of their own, in folders that the loader does not
search, so they are loaded by path before MXNet is imported. The library of the driver,
``libcuda.so.1``, comes with the driver alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import pathlib
from typing import Callable, Iterable, List

from wqa.errors import MissingDependency, how_to_install

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
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ())


def _load_globally(path: str) -> None:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def load_libraries(
    folders: Iterable[str], load: Callable[[str], None] = _load_globally
) -> List[str]:
    """Load the CUDA libraries that are there. What is missing, the import of MXNet names."""
    folders, loaded = list(folders), []
    for name in LIBRARIES:
        for folder in folders:
            for path in sorted(pathlib.Path(folder).glob(f"*/lib/{name}")):
                with contextlib.suppress(OSError):
                    load(str(path))
                    loaded.append(str(path))
    return loaded


def import_problem(error: Exception) -> MissingDependency:
    """Say what is missing where MXNet cannot be imported, and what to do."""
    text = str(error)
    if DRIVER in text:
        return MissingDependency(
            DRIVER,
            "the NVIDIA driver is missing, which brings this library",
            "a driver for CUDA 11.2 or newer, as MXNet for GPUs is installed here",
            "install the driver; in a container, start it with the GPUs; on a machine without a "
            f"GPU: pip uninstall mxnet-cu112, then {how_to_install('cpu')}",
        )
    for name in LIBRARIES:
        if name in text:
            return MissingDependency(
                name,
                "MXNet for GPUs cannot load this CUDA library",
                "the libraries of the extra cu112",
                f"install them {how_to_install('cu112')}",
            )
    return MissingDependency(
        "mxnet",
        f"MXNet cannot be imported ({error})",
        "MXNet 1.9.1",
        f"install it {how_to_install('cpu')}, or '.[cu112]' on a machine with an NVIDIA driver; "
        "`wqa doctor` says more",
    )
