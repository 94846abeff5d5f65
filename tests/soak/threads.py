"""Threads on one ranker."""

import sys
import threading
import time

from soak.attack import Attack, Fault
from soak.rankers import DROPS, QUESTIONS, Rankers, same


class Threads(Attack):
    """Two to four threads rank with one ranker, by either engine, while drops are set and invalid
    questions raise errors. Every ranking equals one of the same question that nothing disturbed.
    """

    name = "threads"
    unit = "rankings"
    weight = 6
    threads = None
    limit = 180

    def prepare(self):
        self._rankers = Rankers(self.material)

    def attempt(self, random):
        engine = random.choice(self._rankers.engines)
        ranker = self._rankers.rankers[engine]
        changes_drops = random.random() < 0.5
        ranker.set_drops(None)
        # Threads change after few steps, so that they meet in more places.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(random.choice((1e-6, 1e-5, 1e-3, interval)))
        problems = []
        plans = []
        for _ in range(random.choice((2, 2, 3, 4))):
            plans.append([random.randrange(len(QUESTIONS)) for _ in range(8)])
        threads = []
        for plan in plans:
            target = self._rank_all if random.random() < 0.3 else self._rank
            arguments = (engine, plan, changes_drops, problems)
            threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        for thread in threads:
            thread.start()
        if changes_drops:
            for _ in range(10):
                ranker.set_drops(random.choice(DROPS))
        end = time.monotonic() + 60
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        sys.setswitchinterval(interval)
        if any(thread.is_alive() for thread in threads):
            raise Fault(f"{engine}: a thread hangs")
        if problems:
            raise Fault(f"{engine}, {len(threads)} threads: {problems[0]}")
        return sum(map(len, plans))

    def _rank(self, engine, plan, changes_drops, problems):
        from wqa.errors import InputError

        ranker = self._rankers.rankers[engine]
        for number in plan:
            question, candidates = QUESTIONS[number]
            try:
                if number % 3 == 0:
                    try:
                        ranker.rank(" ", candidates)
                        problems.append("an empty question is ranked")
                    except InputError:
                        pass
                self._check(engine, number, ranker.rank(question, candidates), changes_drops)
            except Exception as error:
                problems.append(f"{type(error).__name__}: {error}")

    def _rank_all(self, engine, plan, changes_drops, problems):
        ranker = self._rankers.rankers[engine]
        try:
            rankings = list(ranker.rank_all(self._rankers.records(plan)))
            if len(rankings) != len(plan):
                raise Fault(f"{len(rankings)} rankings of {len(plan)} questions")
            for number, ranking in zip(plan, rankings):
                self._check(engine, number, ranking, changes_drops)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")

    def _check(self, engine, number, ranking, changes_drops):
        allowed = DROPS if changes_drops else DROPS[:1]
        expected = [self._rankers.expected[engine, number, drop] for drop in allowed]
        if not any(same(ranking, other) for other in expected):
            raise Fault(f"another ranking of question {number}: {ranking.scores.tolist()}")
