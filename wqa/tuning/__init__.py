"""Drop ratios, what sequences hand on, weights of ensembles, and calibration, all chosen on
development questions.

Soldaini and Moschitti 2020, section 5.5; Matsubara et al. 2022,
section 3.2, for the weights; Bonadiman and Moschitti 2020, section 5.4, for sequences;
Guo et al. 2017 for calibration.
"""

from wqa.tuning.calibration import Calibrated, ExitCalibration, calibrate, fit_temperature
from wqa.tuning.drops import GRID, KEEPS, Tuning, pareto_front, pick, tune
from wqa.tuning.replay import Configuration
from wqa.tuning.weights import TunedWeights, tune_weights

__all__ = [
    "Calibrated",
    "Configuration",
    "ExitCalibration",
    "GRID",
    "KEEPS",
    "TunedWeights",
    "Tuning",
    "calibrate",
    "fit_temperature",
    "pareto_front",
    "pick",
    "tune",
    "tune_weights",
]
