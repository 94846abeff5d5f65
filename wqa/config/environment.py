"""What is checked and loaded before MXNet: environment variables, memory, processors, CUDA.

MXNet and oneDNN read variables in C++. A value that MXNet cannot parse aborts the process, and so
does a thread that the system cannot start, as there are too many or no address space is left for
its stack. oneDNN ignores the name of an unknown instruction set.

The extra ``cu112`` installs the CUDA libraries from wheels of their own, in folders that the loader
does not search, so they are loaded by path. ``libcuda.so.1`` comes with the driver alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import platform
import re
import resource
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from wqa.errors import MissingDependency, OptionError, StorageError, how_to_install, shorten

#: Greatest number of threads, far above that of any machine's processors.
MOST_THREADS = 1024

#: Numbers of threads.
_THREADS = (
    "OMP_NUM_THREADS",
    "MXNET_CPU_PRIORITY_NTHREADS",
    "MXNET_CPU_WORKER_NTHREADS",
    "MXNET_GPU_COPY_NTHREADS",
    "MXNET_GPU_WORKER_NTHREADS",
    "MXNET_KVSTORE_REDUCTION_NTHREADS",
    "MXNET_MP_WORKER_NTHREADS",
    "MXNET_OMP_MAX_THREADS",
)
#: Whole numbers of 32 bits.
_INTEGERS = (
    "MXNET_CPU_PARALLEL_RAND_COPY",
    "MXNET_CPU_PARALLEL_SIZE",
    "MXNET_CPU_TEMP_COPY",
    "MXNET_DISABLE_MKLDNN_CONV_OPT",
    "MXNET_DISABLE_MKLDNN_FC_OPT",
    "MXNET_DISABLE_MKLDNN_FUSE_CONV_BN",
    "MXNET_DISABLE_MKLDNN_FUSE_CONV_RELU",
    "MXNET_DISABLE_MKLDNN_FUSE_CONV_SUM",
    "MXNET_DISABLE_MKLDNN_TRANSFORMER_OPT",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD",
    "MXNET_EXEC_INPLACE_GRAD_SUM_CAP",
    "MXNET_GPU_PARALLEL_RAND_COPY",
    "MXNET_GPU_TEMP_COPY",
    "MXNET_KVSTORE_BIGARRAY_BOUND",
    "MXNET_MKLDNN_CACHE_NUM",
    "MXNET_MP_OPENCV_NUM_THREADS",
    "MXNET_OPTIMIZER_AGGREGATION_SIZE",
    "MXNET_PROFILER_AUTOSTART",
    "MXNET_PROFILER_MODE",
    "MXNET_UPDATE_ON_KVSTORE",
)
#: Switches.
_SWITCHES = (
    "MXNET_DISABLE_MKLDNN_FUSE_FC_ELTWISE",
    "MXNET_DISABLE_MKLDNN_QEM_FLOAT_OUTPUT",
    "MXNET_DISABLE_MKLDNN_QEM_FUSE_ALL",
    "MXNET_DISABLE_MKLDNN_QFC_FLOAT_OUTPUT",
    "MXNET_DISABLE_MKLDNN_QFC_FUSE_ALL",
    "MXNET_DISABLE_MKLDNN_QTRANSFORMER_FLOAT_OUTPUT",
    "MXNET_DISABLE_MKLDNN_QTRANSFORMER_FUSE_ALL",
    "MXNET_ELIMINATE_COMMON_EXPR",
    "MXNET_ENGINE_INFO",
    "MXNET_EXEC_BULK_EXEC_INFERENCE",
    "MXNET_EXEC_BULK_EXEC_TRAIN",
    "MXNET_INFER_STORAGE_TYPE_VERBOSE_LOGGING",
    "MXNET_KVSTORE_LOGTREE",
    "MXNET_MEM_PLAN_VERBOSE_LOGGING",
    "MXNET_MKLDNN_DEBUG",
    "MXNET_MKLDNN_ENABLED",
    "MXNET_MKLDNN_FORCE_FC_AB_FORMAT",
    "MXNET_OUTPUT_TUNING_DATA",
    "MXNET_SAFE_ACCUMULATION",
    "MXNET_VERBOSE_TUNING_INFO",
)
_ENGINES = ("NaiveEngine", "ThreadedEngine", "ThreadedEnginePerDevice")
#: Names that oneDNN takes, in upper or lower case.
_INSTRUCTION_SETS = (
    "ALL",
    "DEFAULT",
    "SSE41",
    "AVX",
    "AVX2",
    "AVX2_VNNI",
    "AVX2_VNNI_2",
    "AVX512_CORE",
    "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16",
    "AVX512_CORE_FP16",
    "AVX512_CORE_AMX",
    "AVX512_CORE_AMX_FP16",
)


#: Bytes of address space that MXNet's libraries, threads and a small encoder take.
LEAST_ADDRESS_SPACE = 2_000_000_000


def check_address_space(limit: int) -> None:
    """Check the limit of ``ulimit -v``, before MXNet is loaded."""
    if 0 <= limit < LEAST_ADDRESS_SPACE:
        raise StorageError(
            "ulimit -v",
            f"a limit of {limit // 1024:,} KiB of address space",
            f"{LEAST_ADDRESS_SPACE // 1024:,} KiB or more",
            "raise the limit; one of resident memory, as a container has it, may be lower",
        )


def check_environment(environment: Mapping[str, str]) -> None:
    """Check the variables that MXNet and oneDNN parse, before they are loaded."""
    for name in _THREADS:
        levels = environment.get(name, "").split(",")
        if name != "OMP_NUM_THREADS":
            levels = [",".join(levels)]
        expected = f"a whole number from 1 to {MOST_THREADS}"
        _check(environment, name, all(map(_is_thread_count, levels)), expected)
    for name in _INTEGERS:
        _check(environment, name, _is_integer(environment.get(name, "")), "a whole number")
    for name in _SWITCHES:
        is_switch = environment.get(name, "").lower() in ("0", "1", "true", "false")
        _check(environment, name, is_switch, "0 or 1")
    name = "MXNET_ENGINE_TYPE"
    _check(environment, name, environment.get(name) in _ENGINES, "one of " + ", ".join(_ENGINES))
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        is_known = environment.get(name, "").upper() in _INSTRUCTION_SETS
        _check(environment, name, is_known, "one of " + ", ".join(_INSTRUCTION_SETS))


def openmp_threads(text: str, default: int) -> str:
    """Number of threads as MXNet takes it, from a value of ``OMP_NUM_THREADS``.

    OpenMP takes a list, a number for every level of nested parallel regions. MXNet aborts the
    process on a list, and nests none.
    """
    return text.partition(",")[0].strip() or str(default)


def _check(environment: Mapping[str, str], name: str, holds: bool, expected: str) -> None:
    value = environment.get(name, "")
    if value and not holds:
        mend = "correct or unset the environment variable"
        raise OptionError(name, shorten(value), expected, mend)


def _is_thread_count(text: str) -> bool:
    return bool(re.fullmatch(r"[ \t]*[0-9]{1,4}[ \t]*", text)) and 1 <= int(text) <= MOST_THREADS


def _is_integer(text: str) -> bool:
    match = re.fullmatch(r"[ \t]*[+-]?[0-9]{1,10}[ \t]*", text)
    return bool(match) and -(2**31) <= int(text) < 2**31


#: Instruction sets that the kernels of oneDNN and MXNet use, as Linux names them, oldest first.
INSTRUCTION_SETS = (
    "sse4_1",
    "avx",
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
)
#: Environment variables that limit the instruction sets of oneDNN, and of the one inside MXNet.
CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

#: Files of control groups with the limit of a container's memory, by their two versions.
_MEMORY_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def processor() -> Dict[str, Any]:
    """Describe the processor."""
    lines = _text("/proc/cpuinfo").splitlines()
    flags = set(_field(lines, "flags").split())
    return {
        "name": _field(lines, "model name"),
        "machine": platform.machine(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "caps": {name: os.environ[name] for name in CAPS if os.environ.get(name)},
    }


def process_limits() -> Dict[str, Optional[int]]:
    """What this process may use."""
    lines = _text("/proc/meminfo").splitlines()
    limits = [_whole(_text(path).strip()) for path in _MEMORY_LIMITS]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    total = _bytes(lines, "MemTotal")
    # A control group without a limit holds a number above all memory.
    known = [limit for limit in limits if limit is not None and limit < (total or 1 << 60)]
    return {
        "processors": len(os.sched_getaffinity(0)),
        "processors_of_machine": os.cpu_count(),
        "memory": total,
        "memory_available": _bytes(lines, "MemAvailable"),
        "memory_limit": min(known, default=None),
    }


def _text(path: str) -> str:
    """Content of a file of the kernel; empty where it is missing."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(lines: List[str], name: str) -> str:
    """Value of the first line ``name: value``; empty without one."""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _bytes(lines: List[str], name: str) -> Optional[int]:
    """Bytes of a field of /proc/meminfo, which counts in KiB."""
    kilobytes = _whole(_field(lines, name).partition(" ")[0])
    return None if kilobytes is None else 1024 * kilobytes


def _whole(text: str) -> Optional[int]:
    return int(text) if text.isdecimal() else None


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
    if sys.version_info >= (3, 12):
        return MissingDependency(
            "mxnet",
            f"Python {platform.python_version()} has no MXNet",
            "MXNet 1.9.1, on Python 3.8 to 3.11",
            "take one of these, or rank a folder that `wqa export --format onnx` wrote",
        )
    return MissingDependency(
        "mxnet",
        f"MXNet cannot be imported ({error})",
        "MXNet 1.9.1",
        f"install it {how_to_install('cpu')}, or '.[cu112]' on a machine with an NVIDIA driver; "
        "`wqa doctor` says more",
    )
