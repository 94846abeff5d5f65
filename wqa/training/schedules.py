"""Learning rates by update, and the number of updates of a training."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, Iterable, NamedTuple

from wqa.config import TrainingConfig
from wqa.errors import OptionError


def triangular(update: int, peak: float, warmup: int, total: int) -> float:
    """Triangular schedule: a linear rise to the peak, then a linear fall to 0.

    Soldaini and Moschitti 2020, section 5.2 (Smith 2017). A training that is shorter than its
    warm-up ends before the peak.
    """
    if update <= warmup:
        return peak * update / warmup
    return peak * (total + 1 - update) / (total + 1 - warmup)


#: Share of the updates before the peak, and how often the least rate is in the greatest, of the
#: slanted schedule (Howard and Ruder 2018, section 3.2).
CUT_SHARE, RATIO = 0.1, 32


def slanted_triangular(update: int, peak: float, warmup: int, total: int) -> float:
    """Slanted triangular schedule: a short rise to the peak, then a long fall, to 1/32 of it.

    Howard and Ruder 2018, equation 3. Its fall ends at the last update only where a tenth of the
    updates is a whole number, and below 0 for short trainings; here it always ends there.
    """
    if update < warmup:
        share = update / warmup
    else:
        share = 1 - (update - warmup) / (total - warmup)
    return peak * (1 + share * (RATIO - 1)) / RATIO


#: Rates by the name of the schedule, a value of `TrainingConfig.schedule`.
RATES: Dict[str, Callable[[int, float, int, int], float]] = {
    "triangular": triangular,
    "slanted": slanted_triangular,
}


#: Share of the updates before the peak where neither a number nor a share is given.
WARMUP_SHARE = 0.1
#: The default peak of the learning rate falls with the root of the number of updates. Its anchors
#: are trainings that work: 3e-5 in the 740 updates of WikiQA, and nearly 1e-6, that of section 5.2
#: of Soldaini and Moschitti 2020, in the hundreds of thousands on ASNQ (640,000 give it). The
#: limits are those of the rates with which encoders are usually fine-tuned.
RATE_OF_ONE_UPDATE, LEAST_RATE, GREATEST_RATE = 8e-4, 1e-6, 5e-5


def default_learning_rate(total: int) -> float:
    """Peak of the learning rate where none is given: 8e-4 / sqrt(updates), from 1e-6 to 5e-5."""
    rate = RATE_OF_ONE_UPDATE / math.sqrt(total)
    return float(f"{min(max(rate, LEAST_RATE), GREATEST_RATE):.2e}")


class Schedule(NamedTuple):
    """Numbers of updates of a training."""

    updates_per_epoch: int
    total: int
    warmup: int

    @property
    def reaches_peak(self) -> bool:
        """Whether an update comes after the warm-up."""
        return self.warmup < self.total


def plan_schedule(config: TrainingConfig, plan: Iterable[Any]) -> Schedule:
    """Count the updates of a training."""
    updates_per_epoch = 0
    if hasattr(plan, "__len__"):
        updates_per_epoch = math.ceil(len(plan) / config.accumulate)  # type: ignore[arg-type]
    total = config.epochs * updates_per_epoch or config.max_updates
    if config.max_updates:
        total = min(total, config.max_updates)
    elif not updates_per_epoch:
        raise OptionError(
            "max_updates", 0, "a number above 0, as the length of an epoch is not known"
        )
    warmup = config.warmup_updates
    if config.schedule == "slanted":
        warmup = int(CUT_SHARE * total)
    elif config.warmup_share:
        warmup = int(config.warmup_share * total)
    elif warmup is None:
        warmup = int(WARMUP_SHARE * total)
    return Schedule(updates_per_epoch, total, warmup)


def decides_warmup(config: TrainingConfig) -> bool:
    """Whether the settings decide the warm-up, so that it is not chosen from the updates."""
    is_given = config.warmup_updates is not None or bool(config.warmup_share)
    return is_given or config.schedule == "slanted"


def with_chosen(config: TrainingConfig, schedule: Schedule) -> TrainingConfig:
    """Fill in what the settings leave to be chosen from the number of updates."""
    if config.learning_rate is None:
        rate = default_learning_rate(schedule.total)
        config = dataclasses.replace(config, learning_rate=rate)
    if not decides_warmup(config):
        config = dataclasses.replace(config, warmup_updates=schedule.warmup)
    return config
