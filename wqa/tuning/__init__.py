"""Drop ratios, which exits to use, what sequences hand on, and weights of ensembles, chosen on
development questions.

Soldaini and Moschitti 2020, section 5.5, and section 6 for the exits; Matsubara et al. 2022,
section 3.2, for the weights; Bonadiman and Moschitti 2020, section 5.4, for sequences.
"""

from wqa.tuning.configurations import (
    GRID,
    Configuration,
    full_grid,
    pareto_front,
    pick,
    placements,
)
from wqa.tuning.result import Picked, Tuning
from wqa.tuning.run import tune, write_tuned
from wqa.tuning.scored import ScoredQuestions, score_questions
from wqa.tuning.sequences import KEEPS, tune_sequence
from wqa.tuning.weights import TunedWeights, tune_weights

__all__ = [
    "Configuration",
    "GRID",
    "KEEPS",
    "Picked",
    "ScoredQuestions",
    "TunedWeights",
    "Tuning",
    "full_grid",
    "pareto_front",
    "pick",
    "placements",
    "score_questions",
    "tune",
    "tune_sequence",
    "tune_weights",
    "write_tuned",
]
