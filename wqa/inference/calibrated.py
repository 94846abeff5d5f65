"""Calibrated probabilities of a run, which `wqa calibrate` stores in ``calibration.json``.

A temperature for each exit divides its log-odds before the sigmoid (Guo et al. 2017, "On
Calibration of Modern Neural Networks", section 4.2), so that no exit orders its candidates
differently.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Optional, Tuple

import numpy as np
from scipy.special import expit

from wqa.config import RunConfig, read_json
from wqa.data.digests import check_digest
from wqa.errors import OptionError, RunDirectoryError, check_range, shorten
from wqa.io.files import sha256

#: Least and greatest temperature of an exit.
TEMPERATURES = (0.01, 100.0)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How probabilities follow from log-odds. By default by the sigmoid alone.

    Attributes
    ----------
    temperatures : tuple of float
        T of each stage; empty for 1 at every stage.
    threshold : float or None
        Least relevance of a first candidate that answers its question; None where none was fitted.
    """

    temperatures: Tuple[float, ...] = ()
    threshold: Optional[float] = None

    def probabilities(self, exit_scores: np.ndarray) -> np.ndarray:
        """Probabilities of candidates by the last stage that scored each.

        Parameters
        ----------
        exit_scores : numpy.ndarray
            (N, k) log-odds after each stage, NaN where a candidate was not scored.

        Returns
        -------
        numpy.ndarray
            (k,) sigmoid(s / T); 0 for a candidate that no stage scored.
        """
        scored = ~np.isnan(exit_scores)
        stages, candidates = scored.shape
        last = stages - 1 - scored[::-1].argmax(axis=0)
        scores = exit_scores[last, np.arange(candidates)]
        temperatures = np.array(self.temperatures or (1.0,) * stages)
        return np.where(scored.any(axis=0), expit(scores / temperatures[last]), 0.0)

    def of_stage(self, stage: int, scores: np.ndarray) -> np.ndarray:
        """Probabilities of candidates by the scores of one stage, both (k,)."""
        return expit(scores / (self.temperatures[stage] if self.temperatures else 1.0))


def calibration_path(folder: pathlib.Path) -> pathlib.Path:
    """File of a run's calibration."""
    return folder / "calibration.json"


def read_calibration(folder: pathlib.Path, config: RunConfig, stages: int) -> Calibration:
    """Read the calibration of a run."""
    path = calibration_path(folder)
    hint = f"calibrate the run with `wqa calibrate {folder} --data DEV`"
    check_digest(path, config.sha256, hint)
    try:
        values = read_json(path)
    except FileNotFoundError:
        return Calibration()
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({error})"
        raise RunDirectoryError(path, problem, "what `wqa calibrate` writes", hint) from None
    values = values if isinstance(values, dict) else {}
    weights = folder / "model.params"
    if values.get("model_sha256") != (config.sha256.get(weights.name) or sha256(weights)):
        problem = "was fitted to the scores of other weights than model.params"
        raise RunDirectoryError(path, problem, "the calibration of this run", hint)
    temperatures: Any = values.get("temperatures")
    threshold: Any = values.get("threshold")
    try:
        if not isinstance(temperatures, list) or len(temperatures) != stages:
            expected = f"{stages} numbers, one for each exit"
            raise OptionError("temperatures", shorten(temperatures), expected)
        for value in temperatures:
            check_range("temperatures", value, *TEMPERATURES)
        check_range("threshold", threshold, 0.0, 1.0)
    except OptionError as error:
        problem = f"{error.where} is {error.found}"
        raise RunDirectoryError(path, problem, error.expected, hint) from None
    return Calibration(tuple(map(float, temperatures)), float(threshold))
