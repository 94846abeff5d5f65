"""The training loop, the same for every system and any number of devices."""

from __future__ import annotations

import itertools
import logging
import math
import pathlib
import time
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from tqdm import tqdm

from wqa.config import TrainingConfig
from wqa.engines.choice import attach_engines
from wqa.errors import DataError, OptionError, TrainingDiverged, TrainingStopped
from wqa.io.progress import StopRequest, progress_bar, stop_on_signals
from wqa.models import Network, parse_devices
from wqa.text import split_rows
from wqa.training.checkpoint import Checkpoints, MetricsFile, State
from wqa.training.schedules import (
    RATES,
    Schedule,
    decay_weights,
    dropout_seed,
    order_of_epoch,
    plan_schedule,
    plan_updates,
    rows_of,
    set_encoder_rate,
    with_chosen,
)
from wqa.training.task import Task
from wqa.training.workers import AdamTrainer, Workers, clip_gradients

LOGGER = logging.getLogger(__name__)

#: Computes the figures of a network on the development questions.
Evaluator = Callable[[Network], Dict[str, float]]


class Trainer:
    """Trains the network of a task by Adam with one of the schedules.

    An update follows the gradient of the mean loss over all rows of its mini-batches, whatever the
    number of mini-batches and devices. It does not change parameters that no loss depends on, nor
    their Adam moments.

    Parameters
    ----------
    task : Task
        Task of the system; its network is initialised on the devices of ``config.ctx``.
    config : TrainingConfig
        Settings of the training.
    run : pathlib.Path
        Run directory, for ``metrics.jsonl`` and ``checkpoints/``.
    evaluator : callable, optional
        Computes figures on the development questions. Without it the last parameters are final.
    schedule : Schedule, optional
        Numbers of updates; counted in the task's plan of an epoch by default.
    workers : Workers, optional
        Workers that train together; by default this process alone. Each computes its rows of an
        update. Worker 0 evaluates and writes.
    began_on : int, optional
        Number of devices of all workers with which a resumed training began, whose mini-batches it
        keeps.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the settings contradict one another, or do not fit the task or this machine.
    """

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        run: pathlib.Path,
        evaluator: Optional[Evaluator] = None,
        schedule: Optional[Schedule] = None,
        workers: Optional[Workers] = None,
        began_on: int = 0,
    ) -> None:
        self.workers, self.devices = workers or Workers(), parse_devices(config.ctx)
        self._plan = plan_updates(config, len(self.devices) * self.workers.count, began_on)
        schedule = schedule or plan_schedule(config, task.plan(self._plan.tokens))
        self.updates_per_epoch, self.total, self.warmup = schedule
        config = with_chosen(config, schedule)
        self.task, self.config, self.evaluator = task, config, evaluator
        self.network = task.network
        self.state, self.checkpoints = State(), Checkpoints(run)
        self.metrics = MetricsFile(run / "metrics.jsonl")
        # Ordered by structure, so that the optimizer's state fits a network that is built again.
        # Parameters that blocks share are listed under each of their names; one is enough.
        unique: Dict[int, Tuple[str, gluon.Parameter]] = {}
        for name, parameter in self.network._collect_params_with_prefix().items():
            unique.setdefault(id(parameter), (name, parameter))
        self._parameters = dict(unique.values())
        set_encoder_rate(self.network, self._parameters, config.encoder_rate)
        self._peak: float = config.learning_rate  # type: ignore[assignment]
        self._optimizer = AdamTrainer(self._parameters, self._peak, self.workers)
        length = task.max_length
        # An evaluation may use the engine too, by mini-batches of `tokens_per_batch`.
        tokens = max(self._plan.step_tokens(length, self.workers.count), config.tokens_per_batch)
        self._engines = attach_engines(self.network, config, tokens, length)
        task.hybridize(not self._engines)
        self._batches = batches_of_updates(task, config, self._plan.tokens, self.state)

    def resume(self) -> None:
        """Load the newest checkpoint, or start from the beginning if there is none.

        Raises
        ------
        RunDirectoryError
            If the checkpoint is damaged, or is not that of this training.
        StorageError
            If ``metrics.jsonl`` cannot be written.
        """
        if self.workers.writes:
            self.checkpoints.remove_loose()
        self.workers.first(None)  # the others read what is left
        self.state = self.checkpoints.load_latest(self.network, self._optimizer)
        self._batches = batches_of_updates(self.task, self.config, self._plan.tokens, self.state)
        if self.workers.writes:
            self.metrics.keep_until(self.state.update)

    def fit(self) -> State:
        """Train to the end, or until the figures on the development questions stop improving.

        SIGINT and SIGTERM stop the training after the current update, with a checkpoint. One worker
        that gets a signal stops all.

        Returns
        -------
        State
            State after the last update, with the best figure and its update.

        Raises
        ------
        TrainingDiverged
            If a loss or a parameter is not finite; the checkpoints remain.
        TrainingStopped
            If a signal stopped the training.
        StorageError
            If a checkpoint or ``metrics.jsonl`` cannot be written; earlier checkpoints remain.
        """
        state = self.state
        self._since, self._pairs_since = time.perf_counter(), 0
        self._evaluates = self.workers.first(self.evaluator is not None)
        shows = self.workers.writes
        bar = progress_bar(self.total, "training", "update", shows, initial=state.update)
        with stop_on_signals() as request, bar:
            if state.evaluation_is_due and self._evaluates:  # a signal came before it
                self._evaluate(bar)
                self._checkpoint()
            while not self._has_ended():
                self.update(bar)
                state.evaluation_is_due = self._evaluation_is_due()
                stop = self._agreed(request)
                if state.evaluation_is_due and not stop:
                    self._evaluate(bar)
                    stop = self._agreed(request)
                if stop or state.update % self.config.checkpoint_every == 0 or self._has_ended():
                    self._checkpoint()
                if stop and (state.evaluation_is_due or not self._has_ended()):
                    progress = f"update {state.update} of {self.total}"
                    raise TrainingStopped(stop, progress, self.checkpoints.folder)
        return state

    def _agreed(self, request: StopRequest) -> int:
        """The signal that stops all workers, or 0."""
        return max(self.workers.gather(request.signal))

    def _has_ended(self) -> bool:
        state = self.state
        return state.update >= self.total or state.finished or state.epoch >= self.config.epochs

    # One update

    def update(self, bar: tqdm) -> None:
        """Make one update: the gradients of its mini-batches, then a step."""
        state, config = self.state, self.config
        batches = []
        keys, state.epoch, state.batch = next(self._batches)
        for key in keys:
            batches += self._plan.split(self.task.batch(key))
        state.update += 1
        for share in self.workers.gather(self.backward(batches)):
            for name, value in share.items():
                if not math.isfinite(value):
                    self._raise_diverged(f"the {name} is {value}", "a finite loss")
                state.loss_sums[name] = state.loss_sums.get(name, 0.0) + value
        self.step(self._rate())
        state.loss_updates += 1
        self._pairs_since += sum(self.task.pairs_of(batch) for batch in batches)
        bar.update()
        if state.update % config.log_every == 0 or self._has_ended():
            self._log_losses(bar)

    def backward(self, batches: Sequence[Dict[str, np.ndarray]]) -> Dict[str, float]:
        """Compute the gradients of the mean losses over the rows of mini-batches.

        They are left in the parameters. Those of several workers are shares, whose sums are the
        gradients and the losses.

        Parameters
        ----------
        batches : sequence of dict of numpy.ndarray
            Mini-batches of an update, as `wqa.training.task.Task.batch` returns them.

        Returns
        -------
        dict of float
            Each loss.
        """
        rows = sum(rows_of(batch) for batch in batches)
        seed = dropout_seed(self.config.seed, self.state.update, self.workers.rank)
        mx.random.seed(seed)
        for index, engine in enumerate(self._engines):
            engine.seed(seed + index)
        sums: Dict[str, float] = {}
        for batch in batches:
            losses = self._record(batch, rows)
            autograd.backward([loss for shares in losses.values() for loss in shares])
            for name, shares in losses.items():
                for loss in shares:
                    sums[name] = sums.get(name, 0.0) + loss.asscalar().item()
            if len(batches) > 1:
                self._optimizer.keep_gradients()
        self._optimizer.take_gradients()
        return sums

    def _record(self, batch: Dict[str, np.ndarray], rows: int) -> Dict[str, List[mx.nd.NDArray]]:
        """Losses of a mini-batch on each device, as shares of the mean over ``rows`` rows."""
        losses: Dict[str, List[mx.nd.NDArray]] = {}
        with autograd.record():
            shares = split_rows(rows_of(batch), len(self.devices) * self.workers.count)
            own = shares[self.workers.rank * len(self.devices) :]
            for (start, end), ctx in zip(own, self.devices):
                part, weight = slice(start, end), 1.0
                if start == end:
                    # An idle device repeats the first row with weight 0, so that its gradients
                    # are fresh.
                    part, weight = slice(0, 1), 0.0
                arrays = {}
                for name, array in batch.items():
                    arrays[name] = mx.nd.array(array[part], ctx=ctx, dtype=array.dtype)
                for name, loss in self.task.losses(arrays, self.state.update).items():
                    losses.setdefault(name, []).append(loss.sum() * (weight / rows))
        return losses

    def step(self, rate: float) -> None:
        """Sum the gradients of devices and workers, clip them, decay weights and step.

        Parameters
        ----------
        rate : float
            Learning rate of the step.
        """
        self._optimizer.allreduce_grads()
        fresh, device = self._optimizer.fresh(), self.devices[0]
        if self.config.clip_norm:
            gradients = [parameter.grad(device) for parameter in fresh.values()]
            clip_gradients(gradients, self.config.clip_norm, self.workers)
        if self.config.weight_decay:
            decay_weights(fresh, device, rate * self.config.weight_decay)
        self._optimizer.set_learning_rate(rate)
        # Gradients of parameters that no loss depends on are stale.
        self._optimizer.update(1, ignore_stale_grad=True)

    def _rate(self) -> float:
        """Learning rate of the update."""
        schedule = RATES[self.config.schedule]
        return schedule(self.state.update, self._peak, self.warmup, self.total)

    def _log_losses(self, bar: tqdm) -> None:
        state, now, rate = self.state, time.perf_counter(), self._rate()
        speed = self._pairs_since / (now - self._since)
        means = {name: value / state.loss_updates for name, value in state.loss_sums.items()}
        loss = sum(means.values())
        epoch = float(state.epoch)
        if self.updates_per_epoch:
            epoch = round(state.update / self.updates_per_epoch, 4)
        line: Dict[str, Any] = {"update": state.update, "epoch": epoch, "loss": loss}
        line["learning_rate"] = rate
        if len(means) > 1:
            line["losses"] = means
        line["pairs_per_second"] = round(speed, 2)
        if self.workers.writes:
            self.metrics.append(line)
        bar.set_postfix_str(f"loss {loss:.4f}, rate {rate:.2e}, {speed:.1f} pairs/s", refresh=False)
        state.loss_sums, state.loss_updates = {}, 0
        self._since, self._pairs_since = now, 0

    # Between updates

    def _evaluation_is_due(self) -> bool:
        if not self._evaluates:
            return False
        state, every = self.state, self.config.eval_every or self.updates_per_epoch
        if self._has_ended():
            return True
        return state.update % every == 0 if every else state.batch == 0

    def _evaluate(self, bar: tqdm) -> None:
        state, begin = self.state, time.perf_counter()
        figures: Dict[str, float] = {}
        if self.workers.writes:
            assert self.evaluator is not None
            figures = self.evaluator(self.network)
            self.metrics.append({"update": state.update, "dev": figures})
        figures = self.workers.first(figures)
        if self._engines:
            self.task.hybridize(False)  # the evaluator's ranker may have hybridized the network
        shown = []
        for name, value in figures.items():
            if name.endswith("loss"):
                shown.append(f"{name} {value:.4f}")
            elif not isinstance(value, int):  # a whole number is a count
                shown.append(f"{name} {100 * value:.2f}")
        LOGGER.info(f"update {state.update}: dev " + ", ".join(shown))
        metric = self.task.metric  # by which the best parameters are chosen
        if metric not in figures:
            raise OptionError("evaluator", f"no figure {metric!r}", "one of " + ", ".join(figures))
        figure = figures[metric]
        if math.isnan(figure):
            self._raise_diverged(f"{metric} on dev is not a number", "a number")
        if figure > (-math.inf if state.best_figure is None else state.best_figure):
            self._check_parameters()
            state.best_figure, state.best_update = figure, state.update
            state.evaluations_since_best = 0
            if self.workers.writes:
                self.checkpoints.keep_best(self.network, state.update)
        elif state.update > self.warmup:
            state.evaluations_since_best += 1
            state.finished = 0 < self.config.patience <= state.evaluations_since_best
        state.evaluation_is_due = False
        self._since += time.perf_counter() - begin
        if state.finished and state.loss_updates:
            self._log_losses(bar)

    def _checkpoint(self) -> None:
        self._check_parameters()
        begin = time.perf_counter()
        if self.workers.writes:
            self.checkpoints.save(self.state, self.network, self._optimizer)
        self._since += time.perf_counter() - begin

    def _check_parameters(self) -> None:
        for name, parameter in self._parameters.items():
            if not np.isfinite(parameter.data(self.devices[0]).asnumpy()).all():
                self._raise_diverged(f"parameter {name} is not finite", "finite numbers")

    def _raise_diverged(self, problem: str, expected: str) -> NoReturn:
        # A resumed run keeps its settings, and so would diverge again.
        hint = "train again into another directory, with a lower learning_rate or with clip_norm"
        raise TrainingDiverged(f"update {self.state.update}", problem, expected, hint)


def batches_of_updates(
    task: Task, config: TrainingConfig, tokens: int, state: State
) -> Iterator[Tuple[List[Any], int, int]]:
    """Keys of the mini-batches of each update after a state, then its next epoch and batch.

    The mini-batches of an update are of one epoch.
    """
    epoch, batch = state.epoch, state.batch
    while True:
        plan = iter(task.plan(tokens, order_of_epoch(config.seed, epoch)))
        planned = itertools.islice(plan, batch, None)
        upcoming = list(itertools.islice(planned, config.accumulate))
        if not upcoming:
            raise DataError("training data", "an epoch without a batch", "at least one")
        while upcoming:
            keys, upcoming = upcoming, list(itertools.islice(planned, config.accumulate))
            batch += len(keys)
            if not upcoming:
                epoch, batch = epoch + 1, 0
            yield keys, epoch, batch
