#!/usr/bin/env python3
"""Build the distributions, and try the wheel on every Python of this machine: `make dist-check`.

    python tests/dist_check.py [--python PATH ...] [--keep FOLDER]

The source distribution is built first, and the wheel from it, so that neither lacks a file. For
each Python that MXNet supports, a fresh environment runs the commands of "From a wheel" in
docs/installation.md, as a stranger would: without the repository's constraints. They must rank the
right candidate first, and `wqa doctor` must find that a ranking works. On newer Pythons the wheel
is installed without MXNet. There an exported cascade must rank as its run does here, in the
environment of this script. It takes minutes and 2 GB for each Python.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from pages import blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_RANKING = 'title="first ranking"'
#: The last Python that is tried without MXNet.
NEWEST = (3, 13)
BUILTIN = ROOT / "wqa" / "data" / "builtin"
#: Variables that would make an installation another one than a stranger's.
_DROPPED = ("PYTHONPATH", "PIP_CONSTRAINT", "VIRTUAL_ENV")


def supported():
    """Return the versions from ``python_requires`` of setup.py up to the last that has MXNet."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    first = re.search(r'python_requires=">=3\.(\d+)"', text)[1]
    beyond = re.search(r"mxnet==[\d.]+; python_version < '3\.(\d+)'", text)[1]
    return [(3, minor) for minor in range(int(first), int(beyond))]


def without_mxnet():
    """Return the versions that are newer than those of MXNet."""
    return [(3, minor) for minor in range(supported()[-1][1] + 1, NEWEST[1] + 1)]


def version_of(python):
    """Return the version of a Python, None if it does not start."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def pythons_here():
    """Return a Python of each version that is on the path or under pyenv's folder."""
    wanted = [*supported(), *without_mxnet()]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    names = [shutil.which(f"python{major}.{minor}") for major, minor in wanted]
    names += sorted(map(str, pyenv.glob("versions/*/bin/python")))
    found = {}
    for name in filter(None, names):
        version = version_of(name)
        if version in wanted:
            found.setdefault(version, name)
    return [found[version] for version in sorted(found)]


def call(*command, **options):
    """Run a command, and end with its output if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode:
        output = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{output}")
    return done.stdout


def build(folder):
    """Build the source distribution and, from it, the wheel; return the wheel."""
    source = folder / "source"
    kept = shutil.ignore_patterns(".*", "build", "runs", "data", "*.egg-info", "__pycache__")
    shutil.copytree(
        ROOT,
        source,
        ignore=lambda path, names: kept(path, names) if pathlib.Path(path) == ROOT else set(),
    )
    backend = "from setuptools import build_meta; print(build_meta.build_sdist('..'))"
    call(sys.executable, "-c", backend, cwd=source)
    [archive] = folder.glob("*.tar.gz")
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, archive, cwd=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def export(folder):
    """Train a tiny cascade and export it; return the export, and how the run ranks."""
    wqa = [sys.executable, "-m", "wqa"]
    options = {"cwd": ROOT}
    call(sys.executable, "recipes/tiny_encoder.py", folder / "encoder", **options)
    training = ["--train", BUILTIN / "dev.jsonl", "--max-updates", 3, "--exits", "1,3"]
    training += ["--encoder", folder / "encoder", "--learning-rate", 1e-3, "--warmup-updates", 1]
    call(*wqa, "train", "cascade", *training, "--out", folder / "run", **options)
    call(*wqa, "export", folder / "run", folder / "exported", "--format", "onnx", **options)
    return folder / "exported", ranked(wqa, folder / "run", folder / "run.trec", options)


def ranked(wqa, ranker, out, options):
    """Rank the built-in test questions; return the lines of the TREC run without the scores."""
    data = ["--data", BUILTIN / "test.jsonl", "--drop-ratio", 0.5]
    call(*wqa, "evaluate", ranker, *data, "--trec-run", out, **options)
    return [line.split()[:4] for line in out.read_text(encoding="utf-8").splitlines()]


def environment_of(python, folder):
    """Make a fresh environment; return its programs, and options of processes in it."""
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    call(python, "-m", "venv", folder / "venv", cwd=folder, env=environment)
    programs = folder / "venv" / "bin"
    path = f"{programs}:{environment['PATH']}"
    return programs, {"cwd": folder, "env": {**environment, "PATH": path}}


def check_exported(python, wheel, folder, exported, expected):
    """Install the wheel without MXNet and rank an export; return what was installed."""
    programs, options = environment_of(python, folder)
    call(programs / "python", "-m", "pip", "install", f"{wheel}[onnx]", **options)
    if ranked([programs / "wqa"], exported, folder / "exported.trec", options) != expected:
        sys.exit(f"{python}: the export ranks in another order than its run")
    report = json.loads(call(programs / "wqa", "doctor", "--json", "-", **options))
    if report["versions"]["mxnet"] or not report["works"]:
        sys.exit(f"{python}: {report}")
    versions = report["versions"]
    return f"{versions['python']}: onnxruntime float32, NumPy {versions['numpy']}, without MXNet"


def check(python, wheel, folder):
    """Install the wheel beside a Python and try it; return what it says."""
    programs, options = environment_of(python, folder)
    shutil.copy(wheel, folder)
    page = ROOT / "docs" / "installation.md"
    [script] = [text for rest, text in blocks(page, "sh") if rest == FIRST_RANKING]
    printed = call("bash", "-euo", "pipefail", "-c", script, **options)
    if not re.search("^ +1 .* A kettle whistles", printed, re.MULTILINE):
        sys.exit(f"{python}: the wrong candidate is first: {printed}")
    report = json.loads(call(programs / "wqa", "doctor", "--json", "-", **options))
    working = [
        f"{row['engine']} {row['precision']}" for row in report["engines"] if not row["problem"]
    ]
    return f"{report['versions']['python']}: {', '.join(working)}"


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="Python to try, instead of all")
    parser.add_argument("--keep", type=pathlib.Path, help="folder to keep the distributions in")
    options = parser.parse_args()
    pythons = options.python or pythons_here()
    with tempfile.TemporaryDirectory(prefix="wqa_dist_") as name:
        folder = pathlib.Path(name)
        wheel = build(folder)
        print(f"built {wheel.name} from {next(folder.glob('*.tar.gz')).name}", flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for path in (wheel, *folder.glob("*.tar.gz")):
                shutil.copy(path, options.keep)
        export_here = None
        for number, python in enumerate(pythons):
            place = folder / str(number)
            place.mkdir()
            if version_of(python) in supported():
                print(check(python, wheel, place), flush=True)
            else:
                export_here = export_here or export(folder)
                print(check_exported(python, wheel, place, *export_here), flush=True)
            shutil.rmtree(place)
    tried = set(map(version_of, pythons))
    for major, minor in (*supported(), *without_mxnet()):
        if (major, minor) not in tried:
            print(f"not tried: Python {major}.{minor}")


if __name__ == "__main__":
    main()
