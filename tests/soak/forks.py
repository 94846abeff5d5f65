"""Forks: children of a process that has ranked."""

import time

import numpy as np

from soak.attack import Attack, Fault
from soak.processes import Child
from soak.rankers import QUESTIONS, Rankers

#: Seconds in which a child ends.
SECONDS = 20
#: Exit status of a child that is told to be spawned.
REFUSED = 3


class Forks(Attack):
    """A process that has ranked, by either engine, forks children, which rank with the ranker of
    their parent or load it again. A child gets a `ProcessError` within seconds; its parent ranks
    as before.
    """

    name = "forks"
    unit = "children"
    weight = 3
    threads = None

    def prepare(self):
        self._rankers = Rankers(self.material)

    def attempt(self, random):
        engine = random.choice(self._rankers.engines)
        number = random.randrange(len(QUESTIONS))
        ranker = self._rankers.rankers[engine]
        ranker.rank(*QUESTIONS[number])
        children = []
        for index in range(random.choice((1, 1, 2, 3))):
            work = self._child(engine, number, random.random() < 0.5)
            children.append(Child(work, self.folder / f"child-{index}.txt"))
        end = time.monotonic() + SECONDS
        try:
            for child in children:
                code = child.wait(end - time.monotonic())
                if code is None:
                    raise Fault(f"{engine}: a child hangs for {SECONDS} seconds")
                if code != REFUSED:
                    raise Fault(f"{engine}: a child ends with {code}")
        finally:
            for child in children:
                child.kill()
        self._compare(engine, number, ranker.rank(*QUESTIONS[number]).scores, "the parent")
        return len(children)

    def _child(self, engine, number, loads):
        """Work of a child, which loads a ranker or takes its parent's."""

        def work():
            from wqa.errors import ProcessError

            try:
                ranker = self._rankers.load(engine) if loads else self._rankers.rankers[engine]
                ranker.rank(*QUESTIONS[number])
            except ProcessError:
                return REFUSED
            return 0

        return work

    def _compare(self, engine, number, scores, who):
        expected = self._rankers.expected[engine, number, None].scores
        if not np.allclose(scores, expected, rtol=1e-4, atol=1e-4):
            raise Fault(f"{engine}: {who} has other scores of question {number}")
