"""The machine of a measurement, which heads its log."""

import datetime
import os

import wqa

#: Flags of a processor on which speeds depend.
INSTRUCTIONS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def machine():
    """Name the processor, what it computes by, the version of the package and the day."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    fields = {name.strip(): value.split() for name, value in lines.items()}
    found = [flag for flag in INSTRUCTIONS if flag in fields.get("flags", ())]
    name = " ".join(fields.get("model name", ["a processor"]))
    count = len(os.sched_getaffinity(0))
    today = datetime.date.today().isoformat()
    return f"{count} processors: {name}, {' '.join(found)}; wqa {wqa.__version__}; {today}"
