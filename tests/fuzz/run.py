#!/usr/bin/env python3
"""Fuzz the readers of files from elsewhere, guided by coverage: `make fuzz`.

    .venv/bin/python tests/fuzz/run.py [--minutes 10] [--only NAME ...] [--page FILE]

atheris (libFuzzer) changes the files that tests/fuzz/targets.py starts from; each target runs in a
process of its own for an equal share of the minutes. An input that a reader does not refuse by an
error of `wqa.errors` is kept below tests/files/fuzz, where tests/test_fuzz.py reads it again.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOUND = ROOT / "tests" / "files" / "fuzz"
#: Bytes of an input, seconds that a reader may take, and memory in MB.
LONGEST, SLOWEST, MEMORY = 1 << 16, 120, 3000


def fuzz(name, seconds):
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["wqa"]):
        import targets
    file_name, _ = targets.TARGETS[name]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        folder = pathlib.Path(scratch)
        corpus, work = folder / "corpus", folder / "work"
        corpus.mkdir()
        work.mkdir()
        for number, content in enumerate(targets.seeds(name, folder)):
            (corpus / str(number)).write_bytes(content)
        (folder / "dictionary").write_text(targets.dictionary(name), encoding="utf-8")
        path = work / file_name

        def attempt(content):
            path.write_bytes(content)
            targets.read(name, path)

        (FOUND / name).mkdir(parents=True, exist_ok=True)
        limits = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={SLOWEST}"]
        limits += [f"-report_slow_units={SLOWEST}", f"-rss_limit_mb={MEMORY}"]
        limits += [f"-dict={folder / 'dictionary'}", "-print_final_stats=1"]
        atheris.Setup([name, *limits, f"-artifact_prefix={FOUND / name}/", str(corpus)], attempt)
        atheris.Fuzz()


def run(name, seconds):
    """Fuzz a target in a process of its own; returns a row of the log."""
    command = [sys.executable, __file__, "--target", name, "--seconds", str(round(seconds))]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    took = time.monotonic() - begin
    tries = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    cover = re.findall(r" cov: (\d+)", done.stderr)
    folder = FOUND / name
    kept = folder.is_dir() and any(path.is_file() for path in folder.iterdir())
    if folder.is_dir() and not kept:
        folder.rmdir()
    if done.returncode:
        print(done.stderr[-4000:], file=sys.stderr)
    row = [name, f"{int((tries or ['0'])[-1]):,}", (cover or ["0"])[-1], f"{took:.0f}"]
    return [*row, "fault" if done.returncode else ""]


def page_of(rows):
    """The log as Markdown."""
    lines = ["# Fuzzing", "", "`make fuzz`, by the readers of `tests/fuzz/targets.py`.", ""]
    lines += ["| reader | inputs | branches seen | seconds | |", "| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def parse_arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--page", type=pathlib.Path, help="Markdown file to write")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    """Fuzz all targets; the exit status is 1 if one has a fault."""
    options = parse_arguments()
    sys.path.insert(0, str(HERE))
    if options.target:
        fuzz(options.target, options.seconds)
        return 0
    import targets

    names = options.only or list(targets.TARGETS)
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    for name in names:
        rows.append(run(name, 60 * options.minutes / len(names)))
        print(" ".join(rows[-1]), flush=True)
    if options.page:
        options.page.write_text(page_of(rows), encoding="utf-8")
    return int(any(row[-1] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
