"""Preparation of the process for MXNet, and its devices.

MXNet reads ``OMP_NUM_THREADS`` when it is first imported. By default it uses half of the
processors, as for hyper-threads. This module sets the variable to all processors that the process
may use, unless it is already set. A list, which OpenMP takes and MXNet does not, is reduced to its
first number.

The CUDA libraries of the wheel for GPUs are loaded first (`wqa.config.environment`).

MXNet's oneDNN uses its kernels for AMX, Intel's matrix unit, only if the environment allows it
before the import. This module allows it on processors with AMX.

MXNet's CPU storage allocates each array by the C library. glibc returns large blocks to the system
at once, so that every operator takes a page fault for each page of its output. This module
configures glibc to keep the blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pathlib
from typing import List, Union

from wqa.config.environment import (
    device_numbers,
    import_problem,
    library_folders,
    load_libraries,
    openmp_threads,
)
from wqa.errors import DeviceError, how_to_install

os.environ["OMP_NUM_THREADS"] = openmp_threads(
    os.environ.get("OMP_NUM_THREADS", ""), len(os.sched_getaffinity(0))
)
if not {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & set(os.environ):
    with contextlib.suppress(OSError):
        if b"amx_bf16" in pathlib.Path("/proc/cpuinfo").read_bytes():
            os.environ["DNNL_MAX_CPU_ISA"] = "AVX512_CORE_AMX"
try:
    _libc = ctypes.CDLL("libc.so.6")
    _libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: blocks up to 1 GiB come from the heap
    _libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: and stay there
except (OSError, AttributeError):  # another C library, which is only slower
    pass
load_libraries(library_folders())
# The import makes 26,000 functions, and is 5 % shorter without the collector.
_collects = gc.isenabled()
gc.disable()
try:
    import mxnet as mx
except (ImportError, OSError) as error:  # OSError: a library that the wheel links is absent
    raise import_problem(error) from None
finally:
    if _collects:
        gc.enable()

#: Arrays or symbols, the inputs and outputs of ``hybrid_forward``.
Tensor = Union[mx.nd.NDArray, mx.sym.Symbol]


def parse_devices(ctx: str) -> List[mx.Context]:
    """Parse the name of one or several devices.

    Parameters
    ----------
    ctx : str
        ``cpu``, ``gpu``, ``gpu:2``, or a range such as ``gpu:0-7``; ``cpu:0-1`` is two separate CPU
        contexts.

    Returns
    -------
    list of mxnet.Context
        The devices, in order.

    Raises
    ------
    DeviceError
        If the name is malformed, or this machine lacks such a GPU.
    """
    kind, numbers = device_numbers(ctx)
    if kind == "gpu" and numbers[-1] >= gpu_count():
        problem = f"gpu:{numbers[-1]}, but this machine shows {gpu_count()} GPUs to MXNet"
        hint = f"install MXNet for GPUs {how_to_install('cu112')}"
        if mx.runtime.Features().is_enabled("CUDA"):
            hint = "let the NVIDIA driver show the GPU: `nvidia-smi` lists those that it shows"
        raise DeviceError("ctx", problem, "a GPU of this machine", f'take ctx="cpu", or {hint}')
    return [mx.Context(kind, index) for index in numbers]


def gpu_count() -> int:
    """Number of GPUs that MXNet sees; 0 for a build without CUDA, or without a driver."""
    try:
        return mx.context.num_gpus()
    except mx.base.MXNetError:  # a CUDA build without a driver
        return 0
