"""Forks: children of a process that has ranked."""

import os
import time

import numpy as np

from soak.attack import Attack, Fault
from soak.processes import Child
from soak.rankers import QUESTIONS, Rankers

#: Seconds in which a child ends.
SECONDS = 20


class Forks(Attack):
    """A process that has ranked, by either engine, forks children, which rank with the ranker of
    their parent or load it again. A child ends within seconds, with the right scores or with an
    error of `wqa.errors`; its parent ranks as before.
    """

    name = "forks"
    unit = "children"
    weight = 2
    threads = None

    def prepare(self):
        self._rankers = Rankers(self.material)

    def attempt(self, random):
        engine = random.choice(self._rankers.engines)
        number = random.randrange(len(QUESTIONS))
        anew = random.random() < 0.3
        ranker = self._rankers.rankers[engine]
        ranker.rank(*QUESTIONS[number])
        children = []
        for index in range(random.choice((1, 1, 2, 3))):
            target = self.folder / f"scores-{index}.npy"
            target.unlink(missing_ok=True)
            work = self._child(engine, number, anew, target)
            children.append((Child(work, self.folder / f"child-{index}.txt"), target))
        end = time.monotonic() + SECONDS
        try:
            for child, target in children:
                self._check(engine, number, child.wait(end - time.monotonic()), target)
        finally:
            for child, _ in children:
                child.kill()
        scores = ranker.rank(*QUESTIONS[number]).scores
        self._compare(engine, number, scores, "the parent")
        return len(children)

    def _child(self, engine, number, anew, target):
        def work():
            from wqa.errors import WqaError

            try:
                ranker = self._rankers.rankers[engine]
                if anew:
                    ranker = self._rankers.load(engine)
                scores = ranker.rank(*QUESTIONS[number]).scores
            except WqaError as error:
                print(error)
                return 2
            with open(target, "wb") as file:
                np.save(file, scores)
                file.flush()
                os.fsync(file.fileno())
            return 0

        return work

    def _check(self, engine, number, code, target):
        if code is None:
            raise Fault(f"{engine}: a child hangs for {SECONDS} seconds")
        if code not in (0, 2):
            raise Fault(f"{engine}: a child ends with {code}")
        if code == 0:
            self._compare(engine, number, np.load(target), "a child")

    def _compare(self, engine, number, scores, who):
        expected = self._rankers.expected[engine, number, None].scores
        if not np.allclose(scores, expected, rtol=1e-4, atol=1e-4):
            raise Fault(f"{engine}: {who} has other scores of question {number}")
