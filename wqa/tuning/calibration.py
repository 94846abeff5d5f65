"""Calibration of a run on development questions: a temperature for each exit, and a threshold.

Temperature scaling is Guo et al. 2017, section 4.2. The threshold is that of answer triggering
(`wqa.evaluation.reliability`). Nothing is dropped, so that every exit scores every candidate.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from wqa.data import Question, read_questions
from wqa.data.digests import forget_digests, record_digests
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.errors import DataError, OptionError, RunDirectoryError
from wqa.evaluation.rankers import questions_that_count, rank_questions
from wqa.evaluation.reliability import (
    Triggering,
    best_threshold,
    expected_calibration_error,
    negative_log_likelihood,
)
from wqa.inference.calibrated import TEMPERATURES, Calibration, calibration_path
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.io.files import PathLike, check_file, sha256, write_json
from wqa.io.locks import lock_output
from wqa.systems.load import load_ranker
from wqa.tuning.configurations import tuning_record


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
    questions, answerable, candidates, positives : int
        Number of questions, of those with an answer among their candidates, of candidates with
        text, and of answers among these.
    truncated_questions, skipped_questions : int
        Number of over-long questions.
    """

    path: pathlib.Path
    calibration: Calibration
    exits: Tuple[ExitCalibration, ...]
    triggering: Triggering
    questions: int
    answerable: int
    candidates: int
    positives: int
    truncated_questions: int = 0
    skipped_questions: int = 0

    def to_dict(self) -> Dict[str, Any]:
        """The result in types of JSON.

        Returns
        -------
        dict
            ``file``, the figures of ``exits``, those of ``triggering``, and the numbers.
        """
        names = ("questions", "answerable", "candidates", "positives")
        counts = {name: getattr(self, name) for name in names}
        return {
            "file": str(self.path),
            **counts,
            "truncated_questions": self.truncated_questions,
            "skipped_questions": self.skipped_questions,
            "exits": [figures._asdict() for figures in self.exits],
            "triggering": self.triggering._asdict(),
        }


def calibrate(
    run: PathLike, data: PathLike, bins: int = 15, progress: bool = False, **options: Any
) -> Calibrated:
    """Fit a temperature for each exit of a run and a no-answer threshold, and store them in it.

    `wqa.load_ranker` then ranks with them: probabilities and relevance are calibrated,
    scores and order stay.

    Parameters
    ----------
    run : str or path-like
        Run directory of a ranker.
    data : str or path-like
        Labelled development questions, canonical JSONL. All count, also those without an answer.
    bins : int
        Number of bins of the expected calibration error.
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
    OptionError
        If the ranker does not use its calibration.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    OutputLocked, StorageError
        If another process writes to the run, or the file cannot be written.
    """
    folder = pathlib.Path(run)
    _check_run(run)
    judged = questions_that_count(read_questions(data))
    model = folder / "model.params"
    # Before it is read: a run that is replaced afterwards does not pass for the one that is ranked.
    digest = sha256(model) if model.exists() else ""
    ranker = load_ranker(folder, calibrated=False, **options)
    ranker.set_drops()
    prepared = ranker.prepare(judged)
    questions = prepared.questions
    with lock_output(folder):
        check_file(calibration_path(folder), ("model_sha256", "temperatures"))
        rankings = rank_questions(ranker, questions, "scoring", progress)
        scores, labels = _scored(rankings, questions, data)
        layers = ranker.capabilities.exits or range(1, len(scores) + 1)
        exits = []
        for layer, exit_scores in zip(layers, scores):
            exits.append(_fit(layer, exit_scores, labels, bins))
        temperatures = tuple(figures.temperature for figures in exits)
        calibration = Calibration(temperatures)
        answerable = sum(1 in question.labels for question in questions)
        triggering = _trigger(rankings, questions, calibration, answerable, data)
        result = Calibrated(
            calibration_path(folder),
            dataclasses.replace(calibration, threshold=triggering.threshold),
            tuple(exits),
            triggering,
            len(questions),
            answerable,
            len(labels),
            int(labels.sum()),
            prepared.truncated,
            prepared.skipped,
        )
        with_text = (not np.all(ranking.blank) for ranking in rankings)
        _check_use(ranker, next(itertools.compress(questions, with_text)), result.calibration)
        choice = {"bins": bins, "precision": options.get("precision", "float32")}
        _store(folder, digest, result, tuning_record(choice, data, "all", prepared))
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


def _check_run(run: PathLike) -> None:
    """Refuse what is no single run."""
    source = probe(run)
    hint = "name a run that was trained"
    if source.kind == "file":
        hint = "calibrate its runs, one by one: their probabilities count in it too"
    elif source.kind == "huggingface":
        hint = "convert it with `wqa convert`"
    elif source.kind in ("run", ""):
        return
    raise RunDirectoryError(run, DESCRIPTIONS[source.kind], "a run directory", hint)


def _check_use(ranker: Ranker, question: Question, calibration: Calibration) -> None:
    """Refuse a ranker of a type that does not rank with its calibration."""
    ranker.calibration = calibration
    [ranking] = ranker.rank_all([question])
    expected = calibration.probabilities(ranking.exit_scores)
    expected = np.where(ranking.blank, 0.0, expected)
    uses_temperatures = np.allclose(ranking.probabilities, expected, atol=1e-6)
    if ranking.threshold != calibration.threshold or not uses_temperatures:
        raise OptionError(
            "run",
            f"{ranker.capabilities.system}, whose ranker does not use calibrations",
            "rankings with the probabilities and the threshold of `Ranker.calibration`",
        )


def _scored(
    rankings: Sequence[Ranking], questions: Sequence[Question], data: PathLike
) -> Tuple[np.ndarray, np.ndarray]:
    """Scores (N, n) and labels (n,) of all candidates with text."""
    scores: List[np.ndarray] = []
    labels: List[np.ndarray] = []
    for ranking, question in zip(rankings, questions):
        filled = ~ranking.blank
        scores.append(ranking.exit_scores[:, filled])
        labels.append(np.array(question.labels, dtype=int)[filled])
    joined = np.concatenate(labels)
    if not len(joined) or joined.min() == joined.max():
        kind = "an answer" if len(joined) and joined[0] else "no answer"
        raise DataError(
            str(data),
            f"every candidate with text is {kind}",
            "candidates of both labels, 0 and 1",
            "calibrate on questions with answers and other candidates",
        )
    return np.concatenate(scores, axis=1), joined


def _fit(layer: int, scores: np.ndarray, labels: np.ndarray, bins: int) -> ExitCalibration:
    scored = ~np.isnan(scores)  # a candidate can be blank to some rankers of a sequence
    scores, labels = scores[scored], labels[scored]
    temperature = fit_temperature(scores, labels)
    scaled = scores / temperature
    return ExitCalibration(
        int(layer),
        temperature,
        negative_log_likelihood(scores, labels),
        negative_log_likelihood(scaled, labels),
        expected_calibration_error(expit(scores), labels, bins),
        expected_calibration_error(expit(scaled), labels, bins),
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
        raise DataError(
            str(data),
            "no question has an answer as its first candidate",
            "at least one, to choose a threshold",
            "train the run further, or calibrate on more questions",
        )
    return best_threshold(np.array(relevance), np.array(is_right), answerable)


def _store(folder: pathlib.Path, digest: str, result: Calibrated, record: Dict[str, Any]) -> None:
    values = {
        "model_sha256": digest,
        "temperatures": list(result.calibration.temperatures),
        "threshold": result.calibration.threshold,
        **{name: value for name, value in result.to_dict().items() if name != "file"},
        **record,
    }
    forget_digests(folder, [result.path.name])
    write_json(result.path, values)
    record_digests(folder, [result.path.name])
