"""Weights of an ensemble, tuned on development questions (Matsubara et al. 2022, section 3.2).

The paper combines the rankers' outputs linearly and tunes the weights by Optuna (Akiba et al.
2019). Every ranker ranks the questions once; each trial combines these scores with other weights.
The first trial has equal weights, so that the result is not worse than they are.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from wqa.config import read_json
from wqa.data import DEFAULT_FILTER, Question, read_questions
from wqa.data.probe import ranker_file_kind
from wqa.errors import OptionError, check_choice, check_range, not_installed, shorten
from wqa.evaluation import METRICS
from wqa.evaluation.rankers import questions_that_count
from wqa.inference.ensemble import COMBINATIONS, normalized_weights
from wqa.inference.ranking import Ranking
from wqa.io.files import PathLike, lock_output, write_json
from wqa.io.progress import with_bar
from wqa.systems.load import load_ranker
from wqa.text import naming_file
from wqa.tuning.replay import mean_metrics, padded, tuning_record

#: Trials of a search by default.
TRIALS = 200
#: Decimals of the weights in the file, which are those that a trial evaluates.
_DECIMALS = 6


@dataclasses.dataclass(frozen=True)
class TunedWeights:
    """Result of tuning the weights of an ensemble.

    Attributes
    ----------
    names : tuple of str
        The rankers, as the file has them.
    weights : tuple of float
        Weight of each ranker.
    metrics : dict of str to float
        Means over the questions with these weights, in [0, 1].
    equal : dict of str to float
        The same with equal weights.
    questions : int
        Number of questions that were scored.
    path : pathlib.Path
        File of the ensemble, which holds the weights now.
    truncated_questions, skipped_questions : int
        Number of over-long questions that were truncated, and that were left out.
    """

    names: Tuple[str, ...]
    weights: Tuple[float, ...]
    metrics: Dict[str, float]
    equal: Dict[str, float]
    questions: int
    path: pathlib.Path
    truncated_questions: int = 0
    skipped_questions: int = 0

    def to_dict(self) -> Dict[str, Any]:
        """The weights of the rankers and their figures, in types of JSON."""
        pairs = zip(self.weights, self.names)
        return {
            "questions": self.questions,
            "weights": [{"weight": weight, "ranker": name} for weight, name in pairs],
            "metrics": self.metrics,
            "metrics_of_equal_weights": self.equal,
            "file": str(self.path),
        }


def tune_weights(
    run: PathLike,
    data: PathLike,
    trials: int = TRIALS,
    seed: int = 0,
    metric: str = "map",
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
    **options: Any,
) -> TunedWeights:
    """Tune the weights of an ensemble and store them in its file.

    Parameters
    ----------
    run : str or path-like
        ``.json`` file of an ensemble of at least two rankers. It gets the field ``weights``, and
        ``tuned``, which says how they were chosen.
    data : str or path-like
        Labelled development questions, canonical JSONL.
    trials : int
        Number of trials; the first has equal weights.
    seed : int
        Seed of the search. The same scores and seed give the same weights.
    metric : {"map", "mrr", "p@1", "ndcg@10"}
        Metric to be greatest. Of weights that are equally good, the first are taken.
    filter : {"all", "no-all-negative", "clean"}
        Filter of questions.
    progress : bool
        Show a bar on standard error while scoring.
    **options
        Further parameters of `wqa.load_ranker`.

    Returns
    -------
    TunedWeights
        The weights, and the metrics with them and with equal weights.

    Raises
    ------
    OptionError
        If an option does not fit, or ``run`` is no ensemble of at least two rankers.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    MissingDependency
        If Optuna is not installed.
    OutputLocked
        If another process writes to the file.
    """
    try:
        import optuna  # noqa: F401 - refused early where it is missing
    except ImportError:
        raise not_installed("optuna", "the library that searches weights", "tune") from None
    check_range("trials", trials, 1)
    check_range("seed", seed, 0)
    check_choice("metric", metric, METRICS)
    path = pathlib.Path(run)
    if ranker_file_kind(path) != "ensemble":
        raise OptionError("run", f"{run}, no file of an ensemble", 'a .json file with "ensemble"')
    long_candidates = options.get("long_candidates", "truncate")
    if long_candidates != "truncate":
        expected = "truncate, for which weights are tuned"
        raise OptionError("long_candidates", shorten(long_candidates), expected)
    with naming_file(data):
        judged = questions_that_count(read_questions(data), filter)
    with lock_output(path):
        ranker: Any = load_ranker(path, **options)
        names = tuple(ranker.names)
        if len(names) < 2:
            raise OptionError("run", f"{run}, an ensemble of one ranker", "at least two rankers")
        with naming_file(data):
            prepared = ranker.prepare(judged)
        rankings = ranker.rank_by_each(prepared.questions)
        bar = with_bar(rankings, len(prepared.questions), "scoring", progress)
        search = _Search(list(bar), prepared.questions, ranker.combine)
        weights = search.run(trials, seed, metric)
        metrics, equal = search.figures(weights), search.figures(_rounded([1] * len(names)))
        chosen_by = {"metric": metric, "trials": trials, "seed": seed}
        record = tuning_record(chosen_by, data, filter, prepared)
        values = {**read_json(path), "weights": list(weights)}
        values["tuned"] = {"metrics": metrics, "metrics_of_equal_weights": equal, **record}
        write_json(path, values)
    figures = weights, metrics, equal, len(prepared.questions)
    return TunedWeights(names, *figures, path, **prepared.counts)


class _Search:
    """Evaluates weights by the scores of all rankers, one ranking a ranker for each question."""

    def __init__(
        self, rankings: Sequence[Sequence[Ranking]], questions: Sequence[Question], combine: str
    ) -> None:
        self._combine = COMBINATIONS[combine]
        by_ranker = [[ranking.scores for ranking in ranked] for ranked in zip(*rankings)]
        self._scores = np.stack([padded(scores, -np.inf) for scores in by_ranker])  # (k, Q, W)
        self._labels = padded([question.labels for question in questions], 0)  # (Q, W)

    def figures(self, weights: Sequence[float]) -> Dict[str, float]:
        """Metrics of the ensemble with some weights."""
        scores = self._scores.reshape(len(weights), -1)
        shares = normalized_weights(weights, len(weights))
        combined = self._combine(scores, shares).reshape(self._labels.shape)
        order = np.argsort(-combined, axis=1, kind="stable")
        return mean_metrics(np.take_along_axis(self._labels, order, axis=1))

    def run(self, trials: int, seed: int, metric: str) -> Tuple[float, ...]:
        """The first of the best weights of all trials."""
        import optuna

        names = [f"weight_{number}" for number in range(1, len(self._scores) + 1)]

        def weights_of(trial: Any) -> Tuple[float, ...]:
            return _rounded([trial.suggest_float(name, 0.0, 1.0) for name in names])

        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            sampler = optuna.samplers.TPESampler(seed=seed)
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.enqueue_trial(dict.fromkeys(names, 1.0))
            study.optimize(lambda trial: self.figures(weights_of(trial))[metric], trials)
        finally:
            optuna.logging.set_verbosity(verbosity)
        return _rounded([study.best_params[name] for name in names])


def _rounded(weights: Sequence[float]) -> Tuple[float, ...]:
    """Weights that sum to 1, as the file has them; equal ones where all are 0."""
    shares = normalized_weights(weights if any(weights) else None, len(weights))
    return tuple(round(share, _DECIMALS) for share in shares)
