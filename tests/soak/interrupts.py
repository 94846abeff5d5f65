"""Interrupts: exceptions at random points of a ranking and of a training."""

import contextlib
import gc
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import time

from soak.attack import Attack, Fault
from soak.commands import check_same, contents
from soak.material import TRAINING

#: Questions with few and many, short, long and blank candidates.
QUESTIONS = (
    ("how do tides rise and fall ?", ["The moon pulls the water .", "", "Tides rise twice ."]),
    ("who wrote it ?", [f"Sentence {n} of many about the sea and the sky ." for n in range(24)]),
    ("where is the sea ?", ["long " * 60, "short", "The sea is far from here . " * 4]),
)
#: Share of the tries that interrupt a training, which takes long.
TRAININGS = 0.04
#: Start of the path of every file of the package.
PACKAGE = str(pathlib.Path(importlib.util.find_spec("wqa").origin).parent) + os.sep


class Interruption(Exception):
    """Raised in the package by this attack."""


class Interrupts(Attack):
    """An exception or a Ctrl-C comes at a random moment, or at a random line of the package, while
    it ranks or trains in this process. The next ranking is that of an undisturbed ranker, to the
    bit; the training resumes to the same bytes.
    """

    weight = 7
    threads = None
    limit = 240

    def prepare(self):
        from wqa.engines.onednn.library import available
        from wqa.systems.load import load_ranker

        self._rankers, self._expected, self._seconds, self._trained = {}, {}, {}, {}
        for engine in ["mxnet"] + ["onednn"] * available():
            self._rankers[engine] = load_ranker(self.material / "run", 0.4, engine=engine)
            for number in range(len(QUESTIONS)):
                self._expected[engine, number] = self._rank(engine, number)
            begin = time.perf_counter()
            self._rank(engine, 0)
            self._seconds[engine] = time.perf_counter() - begin

    def attempt(self, random):
        engine = random.choice(list(self._rankers))
        if random.random() < TRAININGS:
            return self._interrupt_training(random, engine)
        number, following = random.choices(range(len(QUESTIONS)), k=2)
        disturb(random, lambda: self._rank(engine, number), self._seconds[engine])
        if self._rank(engine, following) != self._expected[engine, following]:
            raise Fault(f"{engine}: another ranking of question {following} after an interrupt")
        return 1

    def _rank(self, engine, number):
        ranking = self._rankers[engine].rank(*QUESTIONS[number])
        return ranking.order.tolist(), ranking.exits.tolist(), ranking.scores.tobytes()

    def _interrupt_training(self, random, engine):
        if engine not in self._trained:
            begin = time.perf_counter()
            files = self._train(engine)
            self._trained[engine] = files, time.perf_counter() - begin
        expected, seconds = self._trained[engine]
        shutil.rmtree(self.folder / f"{engine}-training")
        disturb(random, lambda: self._train(engine), seconds)
        gc.collect()
        check_same(self._train(engine), expected, f"train {engine}")
        return 1

    def _train(self, engine):
        """Train in this process, or resume; returns the files."""
        cli = importlib.import_module("wqa.cli")
        out, files = self.folder / f"{engine}-training", self.material
        words = ["train", "cascade", "--encoder", str(files / "encoder"), "--engine", engine]
        words += ["--train", str(files / "train.jsonl"), "--dev", str(files / "dev.jsonl")]
        options = cli.parse([*words, "--out", str(out), "--resume", *TRAINING])
        options.command_line = ["wqa", "train"]
        with contextlib.redirect_stdout(None):
            cli.COMMANDS["train"].run(options)
        return contents(out)


def disturb(random, work, seconds):
    """Interrupt a function; whether it did not outrun the interrupt.

    The call may raise another exception in its place: a reader takes it for a bad file, and MXNet
    for an array of a wrong type. An exception that it does not cause is a fault.
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
        cause = error
        while cause is not None and not isinstance(cause, kind):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return True
    return False


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
