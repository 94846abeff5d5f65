"""Interrupts: exceptions at random points of a ranking and of a training."""

import contextlib
import gc
import importlib.util
import os
import pathlib
import random as random_module
import shutil
import signal
import sys
import time

from soak.attack import Attack, Fault
from soak.commands import contents
from soak.material import TRAINING
from soak.rankers import DROPS, QUESTIONS, Rankers, identical

#: Share of the tries that interrupt a training, which takes long.
TRAININGS = 0.04
#: Greatest number of times that a ranking is disturbed until it is interrupted.
REPEATS = 10
#: Start of the path of every file of the package.
PACKAGE = str(pathlib.Path(importlib.util.find_spec("wqa").origin).parent) + os.sep


class Interruption(Exception):
    """Raised in the package by this attack."""


class Interrupts(Attack):
    """An exception or a Ctrl-C comes at a random moment, or at a random line of the package, while
    it ranks or trains in this process. The next ranking is that of an undisturbed ranker, to the
    bit; the training resumes to the same bytes.
    """

    name = "interrupts"
    unit = "interrupts"
    weight = 7
    threads = None
    limit = 240

    def prepare(self):
        self._rankers = Rankers(self.material)
        self._seconds = {}
        for engine in self._rankers.engines:
            begin = time.perf_counter()
            for number in range(len(QUESTIONS)):
                self._rank(engine, number, None)
            self._seconds[engine] = (time.perf_counter() - begin) / len(QUESTIONS)
        self._trained = {}

    def attempt(self, random):
        engine = random.choice(self._rankers.engines)
        if random.random() < TRAININGS:
            return self._interrupt_training(random, engine)
        drop = random.choice(DROPS)
        number = random.randrange(len(QUESTIONS))
        self._rankers.rankers[engine].set_drops(drop)
        many = random.random() < 0.3
        numbers = [number, *random_module.Random(number).sample(range(len(QUESTIONS)), 2)]

        def work():
            if many:
                for _ in self._rankers.rankers[engine].rank_all(self._rankers.records(numbers)):
                    pass
            else:
                self._rank(engine, number, drop)

        seconds = self._seconds[engine] * (3 if many else 1)
        interrupted = 0
        for _ in range(REPEATS):  # an interrupt may come too late
            interrupted = interrupted or self._disturb(random, work, seconds)
        following = random.randrange(len(QUESTIONS))
        self._rankers.rankers[engine].set_drops(drop)
        ranking = self._rank(engine, following, drop)
        if not identical(ranking, self._rankers.expected[engine, following, drop]):
            raise Fault(f"{engine}: another ranking of question {following} after an interrupt")
        return interrupted

    def _rank(self, engine, number, drop):
        return self._rankers.rankers[engine].rank(*QUESTIONS[number])

    def _interrupt_training(self, random, engine):
        if engine not in self._trained:
            self._trained[engine] = self._train(engine)
        expected, seconds = self._trained[engine]
        shutil.rmtree(self._run(engine))
        interrupted = self._disturb(random, lambda: self._train(engine), seconds)
        gc.collect()
        actual, _ = self._train(engine)
        for path in sorted(set(actual) | set(expected)):
            if actual.get(path) != expected.get(path):
                raise Fault(f"{engine}: {path} differs after an interrupt of the training")
        return interrupted

    def _run(self, engine):
        """Folder of every training by an engine, whose name its model card has."""
        return self.folder / f"{engine}-training"

    def _train(self, engine):
        """Train in this process, or resume; returns the files and the seconds."""
        cli = importlib.import_module("wqa.cli")
        out, files = self._run(engine), self.material
        words = ["train", "cascade", "--encoder", str(files / "encoder"), "--engine", engine]
        words += ["--train", str(files / "train.jsonl"), "--dev", str(files / "dev.jsonl")]
        options = cli.parse([*words, "--out", str(out), "--resume", *TRAINING])
        options.command_line = ["wqa", "train"]
        begin = time.perf_counter()
        with contextlib.redirect_stdout(None):
            cli.COMMANDS["train"].run(options)
        return contents(out), time.perf_counter() - begin

    @staticmethod
    def _disturb(random, work, seconds):
        """Interrupt a function; returns the number of interrupts that it did not outrun.

        The call may raise another exception in its place: a reader takes it for a bad file, and
        MXNet for an array of a wrong type. An exception that it does not cause is a fault.
        """
        kind = random.choice((KeyboardInterrupt, Interruption))
        if random.random() < 0.5:
            disturbance = _at_a_moment(kind, random.uniform(1e-5, seconds))
        else:
            disturbance = _at_a_line(kind, int(10 ** random.uniform(0, 3.7)))
        try:
            with disturbance:
                work()
        except BaseException as error:
            if not is_caused_by(error, kind):
                raise
            return 1
        return 0


def is_caused_by(error, kind):
    """Whether an exception is of a type, or was raised while one of that type was handled.

    Parameters
    ----------
    error : BaseException
        The exception.
    kind : type
        The type.

    Returns
    -------
    bool
    """
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


@contextlib.contextmanager
def _at_a_moment(kind, seconds):
    """Raise an exception in the main thread after some time."""

    def handle(*_):
        raise kind("interrupted")

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _at_a_line(kind, number):
    """Raise an exception at the n-th line of the package that the main thread runs."""
    left = number

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left -= 1
            if not left:
                sys.settrace(None)
                raise kind("interrupted")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
