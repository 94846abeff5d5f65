"""What an update is: its learning rates, its random draws, its rows, and the exit that it trains.

The draws depend on the seed and the number of the update alone. A resumed training therefore makes
the same draws as one that was never interrupted, and so do all devices. No state of a generator is
saved.

A network with exits is trained one exit an update (Soldaini and Moschitti 2020, section 4.3.1):
each draws one of the N rankers R_i, uniformly. The gradient of its loss reaches every layer below
the exit, and the embeddings. The update does not change the layers and heads above the exit. A
monolithic ranker is the case N = 1.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set

import mxnet as mx
import numpy as np
from mxnet import gluon

from wqa.config import TrainingConfig
from wqa.errors import OptionError
from wqa.models import Network
from wqa.text import split_rows
from wqa.training.task import PairTask


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


def plan_schedule(config: TrainingConfig, plan: Iterable[Any]) -> Schedule:
    """Count the updates of a training."""
    # The length of an iterator is not known, and taken for 0.
    updates_per_epoch = math.ceil(operator.length_hint(plan) / config.accumulate)
    total = config.epochs * updates_per_epoch or config.max_updates
    if config.max_updates:
        total = min(total, config.max_updates)
    elif not updates_per_epoch:
        expected = "a number above 0, as the length of an epoch is not known"
        raise OptionError("max_updates", 0, expected)
    warmup = config.warmup_updates
    if config.schedule == "slanted":
        warmup = int(CUT_SHARE * total)
    elif config.warmup_share:
        warmup = int(config.warmup_share * total)
    elif warmup is None:
        warmup = int(WARMUP_SHARE * total)
    return Schedule(updates_per_epoch, total, warmup)


def with_chosen(config: TrainingConfig, schedule: Schedule) -> TrainingConfig:
    """Fill in what the settings leave to be chosen from the number of updates."""
    if config.learning_rate is None:
        rate = default_learning_rate(schedule.total)
        config = dataclasses.replace(config, learning_rate=rate)
    is_given = config.warmup_updates is not None or config.warmup_share
    if not is_given and config.schedule != "slanted":
        config = dataclasses.replace(config, warmup_updates=schedule.warmup)
    return config


_EXIT, _ORDER, _DROPOUT = range(3)


def exit_of_update(
    seed: int, update: int, exits: int, weights: Optional[Sequence[float]] = None
) -> int:
    """Draw the exit that an update trains (Soldaini and Moschitti 2020, section 4.3.1)."""
    rng = np.random.default_rng([seed, _EXIT, update])
    if weights is None:
        return int(rng.integers(exits))
    return int(rng.choice(exits, p=np.asarray(weights) / sum(weights)))


def order_of_epoch(seed: int, epoch: int) -> np.random.Generator:
    """Create the generator that shuffles an epoch."""
    return np.random.default_rng([seed, _ORDER, epoch])


def dropout_seed(seed: int, update: int, rank: int = 0) -> int:
    """Seed of MXNet's generators for one update; each device adds its index to it."""
    entropy = [seed, _DROPOUT, update]
    if rank:
        entropy.append(rank)
    return int(np.random.default_rng(entropy).integers(2**31 - 1024))


#: Suffixes of parameters without weight decay.
_UNDECAYED = ("bias", "gamma", "beta")


def set_encoder_rate(
    network: Network, parameters: Mapping[str, gluon.Parameter], share: float
) -> None:
    """Let a network's encoders learn at a share of the learning rate, all else at the whole.

    Layers of a pretrained encoder keep what they know, while the others learn at the rate that they
    need: discriminative fine-tuning (Howard and Ruder 2018, section 3.2), in two groups.
    """
    encoders: Set[int] = set()
    for encoder in network.encoders:
        encoders.update(map(id, encoder.collect_params().values()))
    if share != 1 and not encoders:
        expected = "1 for a network without an encoder"
        raise OptionError("encoder_rate", share, expected, "leave the option out")
    for parameter in parameters.values():
        parameter.lr_mult = share if id(parameter) in encoders else 1.0


def decay_weights(parameters: Mapping[str, gluon.Parameter], ctx: mx.Context, rate: float) -> None:
    """Decay weights apart from their gradients (Loshchilov and Hutter 2019)."""
    for name, parameter in parameters.items():
        if not name.endswith(_UNDECAYED):
            parameter.data(ctx)[:] *= 1 - rate * parameter.lr_mult


def rows_of(batch: Dict[str, np.ndarray]) -> int:
    """Number of rows of a batch, which all of its arrays have."""
    return len(next(iter(batch.values())))


class UpdatePlan(NamedTuple):
    """How the batches of a plan become updates."""

    tokens: int
    steps: int

    def step_tokens(self, max_length: int, workers: int = 1) -> int:
        """Most tokens that the devices of a worker compute at a time."""
        parts = self.steps * workers
        # Parts are equal but for a row.
        return self.tokens if parts == 1 else self.tokens // parts + max_length

    def split(self, batch: Dict[str, np.ndarray]) -> List[Dict[str, np.ndarray]]:
        """Divide a batch into the parts that the devices compute one after another."""
        parts = []
        for start, end in split_rows(rows_of(batch), self.steps):
            if start < end:
                parts.append({name: array[start:end] for name, array in batch.items()})
        return parts


def plan_updates(config: TrainingConfig, devices: int, began_on: int = 0) -> UpdatePlan:
    """Choose the batches of the plan and the steps of an update.

    With ``tokens_per_update``, and in a training that began on another number of devices, an update
    has the same rows on any number of devices: only the number of steps depends on them.
    """
    tokens = config.tokens_per_update or config.tokens_per_batch * (began_on or devices)
    return UpdatePlan(tokens, -(-tokens // (config.tokens_per_batch * devices)))


class ExitTask(PairTask):
    """Labelled pairs for an `wqa.models.exits.ExitNetwork`, one exit an update.

    It takes the parameters of `PairTask`. The exits are one ranker at several depths: whichever an
    update trains learns from the teachers as the only score of a student does.
    """

    taught_scores = 1

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._paths = [self.network.path(index) for index in range(len(self.network.exits))]
        trained = getattr(self.network.own_config, "trained_exits", "uniform")
        self._depths = self.network.exits if trained == "depth" else None

    def hybridize(self, active: bool) -> None:
        for path in self._paths:
            path.hybridize(active)

    def scores(self, batch: Dict[str, mx.nd.NDArray], update: int) -> mx.nd.NDArray:
        _, scores = self._paths[self.drawn_exit(update)](*self.network_inputs(batch))
        return scores

    def drawn_exit(self, update: int) -> int:
        """Draw the exit that an update trains, by depth where ``trained_exits`` is ``"depth"``.

        Parameters
        ----------
        update : int
            Number of the update, from 1.

        Returns
        -------
        int
            Index of the exit, from 0.
        """
        exits = len(self.network.exits)
        return exit_of_update(self.config.seed, update, exits, self._depths)
