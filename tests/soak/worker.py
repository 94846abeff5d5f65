"""The process of an attack: it makes tries and reports every one before and after it.

A report is a line of JSON. A try is reported before it begins, so that the parent knows which one
crashed, hangs or takes all memory.
"""

import collections
import importlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import sys
import time
import traceback

from soak.attack import Fault, Unavailable

#: Names of the attacks, and of the module and the class of each.
ATTACKS = {
    "kills": ("soak.kills", "Kills"),
    "damage": ("soak.damage", "Damage"),
    "corpora": ("soak.corpora", "Corpora"),
    "pairs": ("soak.pairs", "Pairs"),
    "threads": ("soak.threads", "Threads"),
    "interrupts": ("soak.interrupts", "Interrupts"),
    "forks": ("soak.forks", "Forks"),
    "service": ("soak.service", "Service"),
}

#: Faults of one attack, and of one kind in one slice, that are kept; further ones are counted.
KEPT, KEPT_OF_A_KIND = 60, 2


def attack_type(name):
    """Import the class of an attack.

    Parameters
    ----------
    name : str
        A key of `ATTACKS`.

    Returns
    -------
    type
        A subclass of `soak.attack.Attack`.
    """
    module, kind = ATTACKS[name]
    return getattr(importlib.import_module(module), kind)


def keep(name, number, seed, reason, folder, faults):
    """Keep what is needed to repeat a try.

    Parameters
    ----------
    name : str
        The attack.
    number : int
        Number of the try.
    seed : int
        Seed of the run.
    reason : str
        What went wrong, perhaps in many lines.
    folder : pathlib.Path
        Folder of the worker, which is copied, and its output beside it.
    faults : pathlib.Path
        Folder of all faults.

    Returns
    -------
    str
        Path of the folder, or why it is not kept.
    """
    target = faults / f"{name}-{number:06}"
    if len(list(faults.glob(f"{name}-*"))) >= KEPT:
        return "not kept"
    for repetition in itertools.count(2):
        if not target.exists():
            break
        target = faults / f"{name}-{number:06}-{repetition}"
    target.mkdir(parents=True)
    command = f"make soak SOAK='--only {name} --seed {seed} --first {number} --tries 1'"
    (target / "fault.txt").write_text(f"{command}\n\n{reason}\n", encoding="utf-8")
    if folder.exists():
        shutil.copytree(folder, target / "folder", symlinks=True)
    output = folder.with_suffix(".txt")
    if output.exists():
        shutil.copyfile(output, target / "output.txt")
    return str(target)


class Worker:
    """One process of one attack.

    Parameters
    ----------
    options : dict
        ``attack``, ``seed``, ``first`` (number of the first try), ``tries`` (at most so many, or
        None), ``seconds`` (None for no end), and the folders ``material``, ``folder`` and
        ``faults``.
    """

    def __init__(self, options):
        self._options = options
        self._name, self._seed = options["attack"], options["seed"]
        self._folder = pathlib.Path(options["folder"])
        self._faults = pathlib.Path(options["faults"])
        self._kinds = collections.Counter()
        # Whatever the package prints goes to a file, and only reports to the pipe.
        self._reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
        output = os.open(self._folder.with_suffix(".txt"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)

    def run(self):
        """Make tries until the time or their number is up."""
        options = self._options
        try:
            kind = attack_type(self._name)
            attack = kind(pathlib.Path(options["material"]), self._folder)
        except Unavailable as reason:
            self._report("unavailable", text=str(reason))
            return
        for text in attack.lacks:
            self._report("unavailable", text=text)
        end = time.monotonic() + (options["seconds"] or 1e9)
        for number in itertools.count(options["first"]):
            if number - options["first"] == options["tries"] or time.monotonic() >= end:
                return
            self._try(attack, number)

    def _try(self, attack, number):
        self._report("try", number=number)
        os.truncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
        try:
            units = attack.attempt(random.Random(f"{self._seed} {self._name} {number}"))
        except Unavailable as reason:
            self._report("unavailable", text=str(reason))
            self._report("done", number=number, units=0)
        except BaseException as error:
            text = str(error)
            if not isinstance(error, Fault):
                text = f"{type(error).__name__}: {error}"
            self._fault(number, text, traceback.format_exc())
        else:
            self._report("done", number=number, units=units)

    def _fault(self, number, text, trace):
        sys.stdout.flush()
        sys.stderr.flush()
        kind = re.sub(r"\d+|/\S+", "", text)[:80]
        self._kinds[kind] += 1
        kept = "not kept"
        if self._kinds[kind] <= KEPT_OF_A_KIND:
            kept = keep(self._name, number, self._seed, trace, self._folder, self._faults)
        self._report("fault", number=number, text=text, folder=kept)

    def _report(self, kind, **fields):
        self._reports.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._reports.flush()
