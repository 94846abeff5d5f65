"""What a process may use of its machine: processors, their instructions, memory."""

from __future__ import annotations

import os
import pathlib
import platform
import resource
from typing import Any, Dict, List, Optional

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
