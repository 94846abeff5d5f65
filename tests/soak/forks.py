"""Forks: children of a process that has ranked."""

import os
import time

import numpy as np

from soak.attack import Attack, Fault
from soak.processes import Child
from soak.rankers import QUESTIONS, Rankers

#: Seconds in which a child ends.
SECONDS = 20
#: Exit status of a child that may not go on with what its parent has begun.
REFUSED = 3


class Forks(Attack):
    """A process that has ranked, by either engine, forks children, which rank with the ranker of
    their parent or load it again. A child ends within seconds, with the right scores; one that
    goes on with a `rank_all` of its parent gets a `ProcessError`. Its parent ranks as before.
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
        way = random.choices(("copied", "loaded", "begun"), (5, 3, 2))[0]
        ranker = self._rankers.rankers[engine]
        ranker.rank(*QUESTIONS[number])
        begun = ranker.rank_all(self._rankers.records([number] * 3))
        if way == "begun":
            next(begun)
        children = []
        for index in range(random.choice((1, 1, 2, 3))):
            target = self.folder / f"scores-{index}.npy"
            target.unlink(missing_ok=True)
            work = self._child(engine, number, begun if way == "begun" else way, target)
            children.append((Child(work, self.folder / f"child-{index}.txt"), target))
        end = time.monotonic() + SECONDS
        try:
            for child, target in children:
                code = child.wait(end - time.monotonic())
                self._check(engine, number, way, code, target)
        finally:
            for child, _ in children:
                child.kill()
        scores = ranker.rank(*QUESTIONS[number]).scores
        self._compare(engine, number, scores, "the parent")
        if way == "begun":
            rest = [ranking.scores for ranking in begun]
            if len(rest) != 2:
                raise Fault(f"{engine}: the parent ranks {len(rest)} of 2 further questions")
            for scores in rest:
                self._compare(engine, number, scores, "the parent")
        return len(children)

    def _child(self, engine, number, way, target):
        """Work of a child; ``way`` is a word, or the rankings that the parent has begun."""

        def work():
            from wqa.errors import ProcessError

            if way not in ("copied", "loaded"):
                try:
                    list(way)
                except ProcessError:
                    return REFUSED
                return 0
            ranker = self._rankers.rankers[engine]
            if way == "loaded":
                ranker = self._rankers.load(engine)
            scores = ranker.rank(*QUESTIONS[number]).scores
            with open(target, "wb") as file:
                np.save(file, scores)
                file.flush()
                os.fsync(file.fileno())
            return 0

        return work

    def _check(self, engine, number, way, code, target):
        if code is None:
            raise Fault(f"{engine}: a child hangs for {SECONDS} seconds")
        if code != (REFUSED if way == "begun" else 0):
            raise Fault(f"{engine}: a child ({way}) ends with {code}")
        if way != "begun":
            self._compare(engine, number, np.load(target), "a child")

    def _compare(self, engine, number, scores, who):
        expected = self._rankers.expected[engine, number, None].scores
        if not np.allclose(scores, expected, rtol=1e-4, atol=1e-4):
            raise Fault(f"{engine}: {who} has other scores of question {number}")
