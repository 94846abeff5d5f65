"""Rankers of both engines, and what they rank when nothing disturbs them."""

import numpy as np

#: Questions with few and many, short, long and blank candidates.
QUESTIONS = (
    ("how do tides rise and fall ?", ["The moon pulls the water .", "", "Tides rise twice ."]),
    ("what is a glacier ?", ["A glacier is ice .", "Ice melts in the sun ."]),
    ("who wrote it ?", [f"Sentence {n} of many about the sea and the sky ." for n in range(24)]),
    ("where is the sea ?", ["long " * 60, "short", "The sea is far from here . " * 4]),
    ("when does it rain ?", ["It rains in autumn ."]),
)
#: Drop ratios that are set in between; the first is what a ranker begins with.
DROPS = (None, 0.4)


class Rankers:
    """A ranker of each engine that this machine has.

    Parameters
    ----------
    material : pathlib.Path
        What `soak.material` wrote.

    Attributes
    ----------
    engines : list of str
        Names of the engines.
    rankers : dict of str to wqa.inference.Ranker
        Ranker by engine.
    expected : dict of tuple to wqa.inference.Ranking
        Ranking by engine, number of the question and drop ratio.
    """

    def __init__(self, material):
        from wqa.engines.onednn.library import available

        self.engines = ["mxnet"] + ["onednn"] * available()
        self._material = material
        self.rankers, self.expected = {}, {}
        for engine in self.engines:
            ranker = self.load(engine)
            self.rankers[engine] = ranker
            for drop in DROPS:
                ranker.set_drops(drop)
                for number, (question, candidates) in enumerate(QUESTIONS):
                    self.expected[engine, number, drop] = ranker.rank(question, candidates)
            ranker.set_drops(None)

    def load(self, engine):
        """Load a ranker.

        Parameters
        ----------
        engine : str
            The engine.

        Returns
        -------
        wqa.inference.Ranker
            The ranker, which drops nothing.
        """
        from wqa.systems.load import load_ranker

        return load_ranker(self._material / "run", engine=engine)

    def records(self, numbers):
        """Questions as records, for `rank_all`."""
        from wqa.data import Candidate, Question

        for number in numbers:
            question, candidates = QUESTIONS[number]
            yield Question(f"q{number}", question, tuple(map(Candidate, candidates)))


def same(ranking, expected):
    """Whether two rankings agree; scores may differ by the rounding of another batch.

    Parameters
    ----------
    ranking, expected : wqa.inference.Ranking
        The rankings.

    Returns
    -------
    bool
    """
    if ranking.order.tolist() != expected.order.tolist():
        return False
    if ranking.exits.tolist() != expected.exits.tolist():
        return False
    return np.allclose(ranking.scores, expected.scores, rtol=1e-4, atol=1e-4)


def identical(ranking, expected):
    """Whether two rankings are the same to the bit.

    Parameters
    ----------
    ranking, expected : wqa.inference.Ranking
        The rankings.

    Returns
    -------
    bool
    """
    return same(ranking, expected) and ranking.scores.tobytes() == expected.scores.tobytes()
