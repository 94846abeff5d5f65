"""Calibration of a run on development questions: a temperature for each exit, and a threshold.

Temperature scaling is Guo et al. 2017, section 4.2. The threshold is that of answer triggering
(`wqa.evaluation.reliability`). Nothing is dropped, so that every exit scores every candidate.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from wqa.data import Question, read_questions
from wqa.data.digests import forget_digests, record_digests
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.errors import DataError, RunDirectoryError
from wqa.evaluation.rankers import questions_that_count, rank_questions
from wqa.evaluation.reliability import (
    Triggering,
    best_threshold,
    expected_calibration_error,
    negative_log_likelihood,
)
from wqa.inference.calibrated import TEMPERATURES, Calibration, calibration_path
from wqa.inference.ranking import Ranking
from wqa.io.files import PathLike, lock_output, sha256, write_json
from wqa.systems.load import load_ranker
from wqa.text import naming_file
from wqa.tuning.replay import tuning_record


class ExitCalibration(NamedTuple):
    """Temperature of an exit, and its figures on the development questions.

    Attributes
    ----------
    exit : int
        Layer of the exit; the number of the stage where stages are no layers.
    temperature : float
        T.
    nll_before, nll_after : float
        Mean negative log-likelihood of the candidates' labels, at T = 1 and at T.
    ece_before, ece_after : float
        Expected calibration error, in [0, 1].
    """

    exit: int
    temperature: float
    nll_before: float
    nll_after: float
    ece_before: float
    ece_after: float

    @property
    def at_limit(self) -> bool:
        """Whether the likelihood grows beyond the temperatures that are allowed."""
        return self.temperature in TEMPERATURES


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """Calibration of a run.

    Attributes
    ----------
    path : pathlib.Path
        The file, ``calibration.json`` in the run directory.
    calibration : Calibration
        Temperatures and threshold.
    exits : tuple of ExitCalibration
        Figures of each exit.
    triggering : Triggering
        Figures of the threshold.
    counts : dict of str to int
        ``questions``; ``answerable``, those with an answer among their candidates; ``candidates``
        with text, and ``positives``, the answers among these; ``truncated_questions`` and
        ``skipped_questions``, those that are over-long.
    """

    path: pathlib.Path
    calibration: Calibration
    exits: Tuple[ExitCalibration, ...]
    triggering: Triggering
    counts: Dict[str, int]

    def to_dict(self) -> Dict[str, Any]:
        """The result in types of JSON.

        Returns
        -------
        dict
            ``file``, the figures of ``exits``, those of ``triggering``, and the numbers.
        """
        return {
            "file": str(self.path),
            **self.counts,
            "exits": [figures._asdict() for figures in self.exits],
            "triggering": self.triggering._asdict(),
        }


def calibrate(run: PathLike, data: PathLike, progress: bool = False, **options: Any) -> Calibrated:
    """Fit a temperature for each exit of a run and a no-answer threshold, and store them in it.

    `wqa.load_ranker` then ranks with them: probabilities and relevance are calibrated,
    scores and order stay.

    Parameters
    ----------
    run : str or path-like
        Run directory of a ranker.
    data : str or path-like
        Labelled development questions, canonical JSONL. All count, also those without an answer.
    progress : bool
        Show a bar on standard error while ranking.
    **options
        Further parameters of `wqa.load_ranker`.

    Returns
    -------
    Calibrated
        Temperatures and threshold, with their figures.

    Raises
    ------
    DataError
        If a candidate has no label, all labels of candidates with text are equal, or no question
        has an answer as its first candidate.
    RunDirectoryError
        If there is no run directory of a ranker.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    OutputLocked, StorageError
        If another process writes to the run, or the file cannot be written.
    """
    folder = pathlib.Path(run)
    kind = probe(run).kind
    if kind not in ("run", ""):
        hint = "calibrate its runs, one by one" if kind == "file" else "name a run that was trained"
        raise RunDirectoryError(run, DESCRIPTIONS[kind], "a run directory", hint)
    with naming_file(data):
        judged = questions_that_count(read_questions(data))
    model = folder / "model.params"
    # Before it is read: a run that is replaced afterwards does not pass for the one that is ranked.
    digest = sha256(model) if model.exists() else ""
    ranker = load_ranker(folder, calibrated=False, **options)
    ranker.set_drops()
    with naming_file(data):
        prepared = ranker.prepare(judged)
    questions = prepared.questions
    with lock_output(folder):
        path = calibration_path(folder)
        rankings = rank_questions(ranker, questions, "scoring", progress)
        scores, labels = _scored(rankings, questions, data)
        layers = ranker.capabilities.exits or range(1, len(scores) + 1)
        exits = [_fit(*pair, labels) for pair in zip(layers, scores)]
        calibration = Calibration(tuple(figures.temperature for figures in exits))
        counts = {
            "questions": len(questions),
            "answerable": sum(1 in question.labels for question in questions),
            "candidates": len(labels),
            "positives": int(labels.sum()),
            **prepared.counts,
        }
        triggering = _trigger(rankings, questions, calibration, counts["answerable"], data)
        calibration = dataclasses.replace(calibration, threshold=triggering.threshold)
        result = Calibrated(path, calibration, tuple(exits), triggering, counts)
        choice = {"precision": options.get("precision", "float32")}
        values = {
            "model_sha256": digest,
            "temperatures": list(calibration.temperatures),
            "threshold": calibration.threshold,
            **result.to_dict(),
            **tuning_record(choice, data, "all", prepared),
        }
        del values["file"]
        forget_digests(folder, [path.name])
        write_json(path, values)
        record_digests(folder, [path.name])
    return result


def fit_temperature(log_odds: np.ndarray, labels: np.ndarray) -> float:
    """Fit a temperature by maximum likelihood.

    The negative log-likelihood is convex in 1 / T, and its derivative is the mean of
    (sigmoid(s / T) - y) s, whose root is sought (Guo et al. 2017, section 4.2).

    Parameters
    ----------
    log_odds : numpy.ndarray
        (n,) finite log-odds s, n at least 1.
    labels : numpy.ndarray
        (n,) labels y, 0 or 1.

    Returns
    -------
    float
        T, within `wqa.inference.calibrated.TEMPERATURES`: the greatest where scores do not tell
        answers from others, the least where the signs of the scores tell them without an error.
    """
    scores = np.asarray(log_odds, dtype=np.float64)

    def derivative(inverse: float) -> float:
        return float(np.mean((expit(inverse * scores) - labels) * scores))

    least, greatest = TEMPERATURES
    if derivative(1 / greatest) >= 0:
        return greatest
    if derivative(1 / least) <= 0:
        return least
    return 1 / float(brentq(derivative, 1 / greatest, 1 / least, xtol=1e-12, rtol=1e-12))


def _scored(
    rankings: Sequence[Ranking], questions: Sequence[Question], data: PathLike
) -> Tuple[np.ndarray, np.ndarray]:
    """Scores (N, n) and labels (n,) of all candidates with text."""
    scores, labels = [], []
    for ranking, question in zip(rankings, questions):
        has_text = ~ranking.blank
        scores.append(ranking.exit_scores[:, has_text])
        labels.append(np.array(question.labels, dtype=int)[has_text])
    joined = np.concatenate(labels)
    if not len(joined) or joined.min() == joined.max():
        kind = "an answer" if len(joined) and joined[0] else "no answer"
        problem, expected = f"every candidate with text is {kind}", "candidates of both labels"
        hint = "calibrate on questions with answers and other candidates"
        raise DataError(str(data), problem, expected, hint)
    return np.concatenate(scores, axis=1), joined


def _fit(layer: int, scores: np.ndarray, labels: np.ndarray) -> ExitCalibration:
    scored = ~np.isnan(scores)  # a candidate can be blank to some rankers of a sequence
    scores, labels = scores[scored], labels[scored]
    temperature = fit_temperature(scores, labels)
    scaled = scores / temperature
    return ExitCalibration(
        int(layer),
        temperature,
        negative_log_likelihood(scores, labels),
        negative_log_likelihood(scaled, labels),
        expected_calibration_error(expit(scores), labels),
        expected_calibration_error(expit(scaled), labels),
    )


def _trigger(
    rankings: Sequence[Ranking],
    questions: Sequence[Question],
    calibration: Calibration,
    answerable: int,
    data: PathLike,
) -> Triggering:
    """Choose the threshold, from the calibrated relevance of the first candidates."""
    relevance: List[float] = []
    is_right: List[bool] = []
    for ranking, question in zip(rankings, questions):
        first = ranking.order[0]
        if not ranking.blank[first]:
            probabilities = calibration.probabilities(ranking.exit_scores)
            calibrated = dataclasses.replace(ranking, probabilities=probabilities)
            relevance.append(float(calibrated.relevance[first]))
            is_right.append(question.labels[first] == 1)
    if not any(is_right):
        problem = "no question has an answer as its first candidate"
        hint = "train the run further, or calibrate on more questions"
        raise DataError(str(data), problem, "at least one, to choose a threshold", hint)
    return best_threshold(np.array(relevance), np.array(is_right), answerable)
