#!/usr/bin/env python3
"""Try the extra cu112 on a machine without a GPU, in the environment that it is installed in.

    make test-cu112

The driver's library, libcuda.so.1, is replaced by a stub that has no device: a C file with the
functions that MXNet's wheel links, each of which returns an error. With it the wheel imports, and
ranks on the CPU, by MXNet and by oneDNN. Without it, the error names the driver.

It needs a C compiler and nm. Kernels of GPUs are not tried.
"""

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
#: CUDA_ERROR_NO_DEVICE, what a driver without a GPU returns.
NO_DEVICE = 100
#: Prints the names of the libraries that the package loads, then the paths of all that are loaded.
PROBE = """
from wqa.config.environment import LIBRARIES
from wqa.models import runtime
import mxnet
assert mxnet.runtime.Features().is_enabled("CUDA") and runtime.gpu_count() == 0
print(*LIBRARIES)
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}), sep="\\n")
"""


def main():
    """Run all checks; the exit status is 0 if they hold."""
    check_pins()
    wheel = pathlib.Path(importlib.util.find_spec("mxnet").origin).parent
    if has_driver():
        print("a driver is installed here; what is said without one is not tried")
    else:
        status, _, error = run("-m", "wqa", "train", "cascade", "--train", "t", "--out", "o")
        expect(status == 2 and error.startswith("error: libcuda.so.1: the NVIDIA driver"), error)
        print("without a driver:", error.strip())
    with tempfile.TemporaryDirectory() as folder:
        names = driver_functions(wheel / "libmxnet.so")
        print(f"stub of the driver: {', '.join(names)}")
        compile_stub(pathlib.Path(folder), names)
        status, output, error = run("-c", PROBE, LD_LIBRARY_PATH=folder)
        expect(status == 0, error)
        check_libraries(output.splitlines())
        status, output, error = run("-m", "wqa", "doctor", "--json", "-", LD_LIBRARY_PATH=folder)
        report = json.loads(output) if output else {}
        expect(status == 0 and report["works"], error or output)
        check_engines(report)
    print("the extra cu112 imports, and ranks on the CPU")


def check_pins():
    """Every package of the extra is installed in the version that setup.py pins."""
    pins = {}
    for line in importlib.metadata.requires("wqa") or ():
        match = re.match(r"([\w-]+)==([\d.]+) ?;.*extra == .cu112.", line)
        if match:
            pins[match[1]] = match[2]
    expect(len(pins) >= 10, f"setup.py pins {pins}; is wqa installed with the extra cu112?")
    for package, version in pins.items():
        installed = importlib.metadata.version(package)
        expect(installed == version, f"{package} is {installed}, the extra pins {version}")


def has_driver():
    """Whether this machine has the real library."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def driver_functions(library):
    """Functions of the driver that a library links: cu and a capital letter, as cuLaunchKernel."""
    done = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    )
    return sorted(set(re.findall(r"\bU (cu[A-Z]\w*)", done.stdout)))


def compile_stub(folder, names):
    """Compile a libcuda.so.1 whose functions return NO_DEVICE."""
    source = folder / "stub.c"
    lines = [f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in names]
    source.write_text("\n".join(lines) + "\n", encoding="ascii")
    library = folder / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, "-o", str(library), str(source)], check=True)


def check_libraries(loaded):
    """The CUDA libraries come from the extra's wheels, whatever else the machine has."""
    names = loaded[0].split()  # the first line of the probe
    for name in names:
        paths = [path for path in loaded[1:] if path.endswith(f"/{name}")]
        expect(paths, f"{name} is not loaded")
        expect(all("/nvidia/" in path for path in paths), f"{name} is loaded from {paths}")


def check_engines(report):
    """MXNet ranks on the CPU, and oneDNN does where the processor can."""
    problems = {
        (engine["engine"], engine["precision"]): engine["problem"] for engine in report["engines"]
    }
    expect(not problems["mxnet", "float32"], problems)
    if report["processor"]["machine"] == "x86_64":
        expect(not problems["onednn", "float32"], problems)
    expect(report["gpus"] == 0, report)
    expect(report["versions"]["mxnet"] is None, "the extra cpu is installed too")


def run(*arguments, **variables):
    """Exit status, output and messages of this Python, with variables of the environment."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )
    return done.returncode, done.stdout, done.stderr


def expect(holds, found):
    """End with what was found where a check does not hold."""
    if not holds:
        sys.exit(f"failed: {found}")


if __name__ == "__main__":
    main()
