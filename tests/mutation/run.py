#!/usr/bin/env python3
"""Change one place of a module at a time, and see whether a test fails: `make mutants`.

    .venv-mutants/bin/python tests/mutation/run.py [--sample 10] [--minutes 25] [--seed 0]

cosmic-ray makes the changes, in a copy of the checkout below build/. MODULES names the modules on
which figures rest, and the tests of each. A sample of their places is drawn, each with one change;
after the minutes the run ends with what it has. A change that no test notices survives. A survivor
that cannot change a result is in equivalent.tsv with the reason, and does not count. --page writes
the log, recipes/bench/logs/mutants.md.
"""

import argparse
import collections
import csv
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "build" / "mutants"
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.tsv")

#: Files of tests of each module, the fastest first.
MODULES = {
    "wqa/evaluation/metrics.py": ["evaluation/test_evaluation.py"],
    "wqa/evaluation/significance.py": ["evaluation/test_significance.py"],
    "wqa/evaluation/trec.py": ["evaluation/test_ties.py", "evaluation/test_evaluation.py"],
    "wqa/inference/dropping.py": ["inference/test_dropping.py", "inference/test_cost.py"],
    "wqa/training/losses.py": ["training/test_losses.py", "training/test_distillation.py"],
    "wqa/training/schedules.py": [
        *("training/test_updates.py", "training/test_training.py", "training/test_schedules.py")
    ],
    "wqa/training/pairs.py": ["training/test_pairs.py", "text/test_store.py"],
    "wqa/engines/onednn/quantize.py": [
        *("engines/test_engine.py", "systems/test_damaged_runs.py", "systems/mhs/test_mhs.py")
    ],
    "data_scripts/wikiqa.py": ["data_scripts/test_wikiqa.py"],
    "data_scripts/corpus.py": ["data_scripts/test_wikiqa.py", "data_scripts/test_corpora.py"],
    "data_scripts/trecqa.py": ["data_scripts/test_corpora.py"],
    "data_scripts/asnq.py": ["data_scripts/test_corpora.py"],
}
#: Which of these tests, where the others take long; by pytest's expressions.
CHOSEN = {
    "wqa/training/schedules.py": "triangular or exits_are_drawn or defaults or epoch_sees or "
    "share_of or slanted or peak or contradictory or anchors or above_the_sampled or plan_does or "
    "of_a_step or unequal_rows or decay_by",
    "wqa/engines/onednn/quantize.py": "(int8 or quantiz or 8_bit or calibrat) and not without_vnni",
    "data_scripts/corpus.py": "wikiqa or by_hand",
    "data_scripts/trecqa.py": "trecqa",
    "data_scripts/asnq.py": "asnq",
}
#: Seconds that the tests of a change may take, over those of the unchanged module, and in addition.
SLOWER, PATIENCE = 4, 20

Mutant = collections.namedtuple("Mutant", "module outcome line before after reason")


def copy_checkout():
    """Copy the files that git knows of, as they are now."""
    shutil.rmtree(COPY, ignore_errors=True)
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    command.append("--exclude-standard")
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        target = COPY / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


def test_command(module, python):
    """The tests of a module as a command that ends at the first failure."""
    files = [f"tests/{name}" for name in MODULES[module]]
    command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    if module in CHOSEN:
        command += ["-k", CHOSEN[module]]
    return shlex.join(command)


def places_of(module):
    """Changes of a module by their place; annotations are left out."""
    from cosmic_ray.commands.init import _all_work_items

    lines = pathlib.Path(module).read_text(encoding="utf-8").splitlines()
    places = collections.defaultdict(list)
    for item in _all_work_items([pathlib.Path(module)], {}):
        [mutation] = item.mutations
        text = lines[mutation.start_pos[0] - 1]
        # Decorators register tests' fixtures and the like; a definition's line has annotations.
        if not re.match(r"\s*(@|def |from |import |[\"#])", text):
            places[mutation.start_pos].append(item)
    return [places[place] for place in sorted(places)]


def sample_of(module, count, seed):
    """Changes at some places, one at each."""
    draw = random.Random(f"{seed} {module}")
    places = places_of(module)
    chosen = draw.sample(places, min(count, len(places)))
    return [draw.choice(items) for items in chosen], len(places)


def changed_lines(diff):
    """The first line that a difference takes away, and the one that it adds."""
    removed = re.findall(r"^-(?!--)(.*)$", diff, re.MULTILINE)
    added = re.findall(r"^\+(?!\+\+)(.*)$", diff, re.MULTILINE)
    return (removed or [""])[0].strip(), (added or [""])[0].strip()


def reasons():
    """Why changes cannot change a result, by module and both lines."""
    with open(EQUIVALENT, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {(row["module"], row["before"], row["after"]): row["reason"] for row in rows}


def run(module, items, command, timeout, deadline):
    """Try changes of a module one after another, until the deadline."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome

    known = reasons()
    for item in items:
        if time.monotonic() > deadline:
            return
        result = mutate_and_test(item.mutations, command, timeout)
        if result.worker_outcome != WorkerOutcome.NORMAL:
            continue
        before, after = changed_lines(result.diff)
        outcome = "survived" if result.test_outcome == TestOutcome.SURVIVED else "killed"
        reason = known.get((module, before, after), "")
        if reason and outcome == "survived":
            outcome = "equivalent"
        mutant = Mutant(module, outcome, item.mutations[0].start_pos[0], before, after, reason)
        print(f"{outcome:10} {module}, line {mutant.line}: {before}  ->  {after}", flush=True)
        yield mutant


def report(tried, places, options):
    """The log as Markdown."""
    settings = f"--sample {options.sample} --minutes {options.minutes:g} --seed {options.seed}"
    lines = [
        "# Mutants",
        "",
        "`make mutants` changes one place of a module at a time, and runs its tests. Log of",
        f"`MUTANTS='{settings}'`.",
        "",
        "| module | places | tried | killed | equivalent | survived | score |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for module in [*places, "all"]:
        own = [mutant for mutant in tried if module in (mutant.module, "all")]
        counts = collections.Counter(mutant.outcome for mutant in own)
        counted = counts["killed"] + counts["survived"]
        score = f"{100 * counts['killed'] / counted:.0f} %" if counted else ""
        total = sum(places.values()) if module == "all" else places[module]
        outcomes = [counts[name] for name in ("killed", "equivalent", "survived")]
        cells = [module, total, len(own), *outcomes, score]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    titles = {
        "survived": "Changes that survived:",
        "equivalent": "Changes that cannot change a result, and why:",
    }
    for outcome, title in titles.items():
        listed = [mutant for mutant in tried if mutant.outcome == outcome]
        if listed:
            lines += ["", title, ""]
        for mutant in listed:
            change = f"`{mutant.before}` to `{mutant.after}`"
            reason = f": {mutant.reason}" if mutant.reason else ""
            lines.append(f"- {mutant.module}, line {mutant.line}: {change}{reason}")
    return "\n".join(lines) + "\n"


def parse_arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=10, help="places of each module")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(MODULES), choices=MODULES, metavar="NAME")
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"))
    parser.add_argument("--page", type=pathlib.Path, help="Markdown file to write")
    return parser.parse_args()


def main():
    """Try a sample of every module; the exit status is 1 if a change survived."""
    options = parse_arguments()
    os.environ.setdefault("WQA_SHARED_DATA", str(ROOT.parent / "shared" / "data"))
    copy_checkout()
    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(COPY)
    begin = time.monotonic()
    tried, places = [], {}
    for number, module in enumerate(options.only, 1):
        command = test_command(module, options.python)
        started = time.monotonic()
        subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
        timeout = SLOWER * (time.monotonic() - started) + PATIENCE
        items, places[module] = sample_of(module, options.sample, options.seed)
        # A module that takes long leaves time to those behind it.
        deadline = begin + 60 * options.minutes * number / len(options.only)
        tried += run(module, items, command, timeout, deadline)
    page = report(tried, places, options)
    print(page)
    if options.page:
        (ROOT / options.page).write_text(page, encoding="utf-8")
    return int(any(mutant.outcome == "survived" for mutant in tried))


if __name__ == "__main__":
    sys.exit(main())
