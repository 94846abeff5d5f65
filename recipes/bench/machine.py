"""The machine of a measurement, which heads its log, and what a contender says of its own process.

A contender may run where wqa is not installed.
"""

import datetime
import json
import os
import sys

#: Flags of a processor on which speeds depend.
INSTRUCTIONS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def say(**values):
    """Write a line to the comparison."""
    print(json.dumps(values), flush=True)


def answer(work):
    """Answer each line of standard input, the first number and the one after the last.

    Parameters
    ----------
    work : callable
        Takes the two numbers and returns the fields of the answer.
    """
    for line in sys.stdin:
        say(**work(*map(int, line.split())))


def resident():
    """Memory of the process, in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def machine():
    """Name the processor, what it computes by, the version of the package and the day."""
    import wqa

    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    fields = {name.strip(): value.split() for name, value in lines.items()}
    found = [flag for flag in INSTRUCTIONS if flag in fields.get("flags", ())]
    name = " ".join(fields.get("model name", ["a processor"]))
    count = len(os.sched_getaffinity(0))
    today = datetime.date.today().isoformat()
    return f"{count} processors: {name}, {' '.join(found)}; wqa {wqa.__version__}; {today}"
