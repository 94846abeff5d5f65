"""Drop ratios, and which exits to use, chosen on development questions.

Soldaini and Moschitti 2020, section 5.5, and section 6 for the exits.
"""

from wqa.tuning.configurations import (
    GRID,
    Configuration,
    full_grid,
    pareto_front,
    pick,
    placements,
)
from wqa.tuning.run import Picked, Tuning, tune, write_tuned
from wqa.tuning.scored import ScoredQuestions, score_questions

__all__ = [
    "Configuration",
    "GRID",
    "Picked",
    "ScoredQuestions",
    "Tuning",
    "full_grid",
    "pareto_front",
    "pick",
    "placements",
    "score_questions",
    "tune",
    "write_tuned",
]
