"""The one place that prepares the process for MXNet, and that names its devices.

MXNet reads ``OMP_NUM_THREADS`` when it is first imported. Left alone it takes half of the
processors, for machines whose cores are hyper-threads; here it is given all that the process may
use, unless the variable is already set.

The CUDA wheel links libraries that come as wheels of their own (the extra ``cu112``), in folders
where the loader does not look; they are loaded by path first.

MXNet's oneDNN has kernels for AMX, Intel's matrix unit, but leaves them off unless it is told,
before the import, how far it may go. It is told so on processors that have the unit.

MXNet's CPU storage asks the C library for each array anew, and glibc hands large blocks back to the
system at once, so that every operator faults its output in page by page. The C library is told to
keep them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import platform
import re
from typing import Dict, List, Union

import wqa
from wqa.errors import DeviceError, MissingDependency, shorten

#: In the order in which they need one another.
_CUDA_LIBRARIES = (
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


def _load_cuda() -> None:
    spec = importlib.util.find_spec("nvidia")
    for name in _CUDA_LIBRARIES if spec else ():
        for folder in spec.submodule_search_locations or ():  # type: ignore[union-attr]
            for path in sorted(pathlib.Path(folder).glob(f"*/lib/{name}")):
                with contextlib.suppress(OSError):  # MXNet's own import says what is still missing
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _has_amx() -> bool:
    try:
        return "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text(
            encoding="ascii", errors="replace"
        )
    except OSError:
        return False


os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
if not {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & set(os.environ) and _has_amx():
    os.environ["DNNL_MAX_CPU_ISA"] = "AVX512_CORE_AMX"
try:
    _libc = ctypes.CDLL("libc.so.6")
    _libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: blocks up to 1 GiB come from the heap
    _libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: and stay there
except (OSError, AttributeError):  # another C library; slower, otherwise the same
    pass
_load_cuda()
try:
    import mxnet as mx
except (ModuleNotFoundError, OSError) as error:  # OSError: a library that the wheel links is absent
    raise MissingDependency(
        "mxnet",
        f"MXNet cannot be imported ({error})",
        "MXNet 1.9.1",
        "install wqa with an extra: pip install 'wqa[cpu]', or 'wqa[cu112]' on a machine "
        "with an NVIDIA driver",
    ) from None

#: Arrays or symbols: what flows through ``hybrid_forward``.
Tensor = Union[mx.nd.NDArray, mx.sym.Symbol]


def parse_devices(ctx: str) -> List[mx.Context]:
    """Devices that a name stands for.

    Parameters
    ----------
    ctx : str
        ``cpu``, ``gpu``, ``gpu:2``, or a range such as ``gpu:0-7``; ``cpu:0-1`` makes two
        separate CPU contexts.

    Returns
    -------
    list of mxnet.Context

    Raises
    ------
    DeviceError
        If the name is not of that form, or this machine lacks such a GPU.
    """
    match = re.fullmatch(
        r"(cpu|gpu)(?::(\d{1,3})(?:-(\d{1,3}))?)?", ctx if isinstance(ctx, str) else ""
    )
    first = int(match.group(2) or 0) if match else 0
    last = int(match.group(3) or first) if match else -1
    if not match or last < first:
        raise DeviceError("ctx", shorten(ctx), "cpu, gpu:0, or a range such as gpu:0-7")
    kind = match.group(1)
    if kind == "gpu" and last >= _gpus():
        raise DeviceError(
            "ctx",
            f"gpu:{last}, but this machine shows {_gpus()} GPUs to MXNet",
            "a GPU that is there",
            'take ctx="cpu", or install the extra wqa[cu112] where there is a GPU',
        )
    return [mx.Context(kind, place) for place in range(first, last + 1)]


def library_versions() -> Dict[str, str]:
    """Versions of what a model's numbers depend on, for the record.

    Returns
    -------
    dict of str to str
    """
    import gluonnlp
    import numpy as np
    import tokenizers

    return {
        "wqa": wqa.__version__,
        "mxnet": mx.__version__,
        "gluonnlp": gluonnlp.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
        "python": platform.python_version(),
    }


def _gpus() -> int:
    try:
        return mx.context.num_gpus()
    except mx.base.MXNetError:  # a CUDA build without a driver
        return 0
