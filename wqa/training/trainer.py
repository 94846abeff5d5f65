"""The training loop, the same for every system and any number of devices."""

from __future__ import annotations

import json
import math
import pathlib
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from tqdm import tqdm

from wqa.config import TrainingConfig
from wqa.data import atomic_writer
from wqa.errors import OptionError, TrainingDiverged
from wqa.models import parse_devices
from wqa.models.heads import ExitNetwork
from wqa.models.onednn import available, check_precision, instruction_set
from wqa.text import split_rows
from wqa.training.checkpoint import Checkpoints, State
from wqa.training.fused import FusedNetwork
from wqa.training.losses import cross_entropy
from wqa.training.pairs import Pairs
from wqa.training.sampling import dropout_seed, exit_of_update, order_of_epoch
from wqa.training.schedules import triangular

#: Scores a model on the development questions; ``"map"`` decides which parameters are kept.
Evaluator = Callable[[ExitNetwork], Dict[str, float]]


def uses_onednn(config: TrainingConfig) -> bool:
    """Whether oneDNN computes the layers, rather than MXNet.

    Parameters
    ----------
    config : TrainingConfig

    Returns
    -------
    bool

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine, the precision and the devices do not go together, or this machine lacks them.
    """
    alone = [device.device_type for device in parse_devices(config.ctx)] == ["cpu"]
    wanted = config.engine == "onednn" or config.precision != "float32"
    if wanted and (config.engine == "mxnet" or not alone):
        raise OptionError(
            "--engine and --precision",
            f"{config.engine} and {config.precision} on {config.ctx}",
            "float32 by MXNet",
            "oneDNN computes on one CPU: --ctx cpu without --engine mxnet",
        )
    if wanted:
        check_precision(config.precision)
        return instruction_set() >= 0  # or says what is not installed
    return config.engine == "auto" and alone and available()


class Trainer:
    """Trains a model's exits, one a mini-batch (Soldaini and Moschitti 2020, sections 4.3.1 and
    5.2).

    The gradient of an update is that of the mean loss over all rows of the mini-batch, however
    many devices share it. Parameters above the sampled exit are not touched by the update, their
    Adam moments included.

    Parameters
    ----------
    model : ExitNetwork
        Initialised on the devices of ``config.ctx``.
    pairs : Pairs
    config : TrainingConfig
    run : pathlib.Path
        Run directory, for ``metrics.jsonl`` and ``checkpoints/``.
    evaluator : callable, optional
        Gives the development figures; without it the last parameters are the final ones.
    """

    def __init__(
        self,
        model: ExitNetwork,
        pairs: Pairs,
        config: TrainingConfig,
        run: pathlib.Path,
        evaluator: Optional[Evaluator] = None,
    ) -> None:
        self.model, self.pairs, self.config, self.evaluator = model, pairs, config, evaluator
        self.devices = parse_devices(config.ctx)
        self.state, self.checkpoints = State(), Checkpoints(run)
        self._metrics = run / "metrics.jsonl"
        self._paths = [model.path(index) for index in range(len(model.exits))]
        for path in self._paths:
            path.hybridize()
        # In structural order, so that the optimizer's state fits the same model built again.
        self._optimizer = gluon.Trainer(
            list(model._collect_params_with_prefix().values()),
            "adam",
            {"learning_rate": config.learning_rate},
            kvstore="device",
            update_on_kvstore=False,
        )
        self._budget = config.tokens_per_batch * len(self.devices)
        self._uses_onednn = uses_onednn(config)
        self._fused: Optional[FusedNetwork] = None
        self.updates_per_epoch = len(pairs.plan(self._budget))
        self.total = config.epochs * self.updates_per_epoch
        if config.max_updates:
            self.total = min(self.total, config.max_updates)
        self._plan: Tuple[int, List[np.ndarray]] = (-1, [])
        self._since, self._pairs_since = time.perf_counter(), 0

    def resume(self) -> None:
        """Go back to the newest checkpoint, or to the start where there is none yet."""
        self.state = (
            self.checkpoints.load_latest(self.model, self._optimizer.load_states, self.devices)
            or State()
        )
        if self._metrics.exists():
            kept = [
                line
                for line in self._metrics.read_text(encoding="utf-8").splitlines()
                if self._stands(line)
            ]
            with atomic_writer(self._metrics) as file:
                file.writelines(line + "\n" for line in kept)

    def _stands(self, line: str) -> bool:
        try:
            return json.loads(line)["update"] <= self.state.update
        except ValueError:  # the line that was being written at the kill
            return False

    def fit(self) -> State:
        """Train to the end, or until the development MAP has stopped rising.

        Returns
        -------
        State
            With the best development MAP and its update.

        Raises
        ------
        TrainingDiverged
            If a loss or a parameter is no longer finite; the checkpoints stay.
        StorageError
            If a checkpoint cannot be written; those before it stay.
        """
        state, config = self.state, self.config
        self._since, self._pairs_since = time.perf_counter(), 0
        with tqdm(
            total=self.total,
            initial=state.update,
            desc="training",
            unit="update",
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 20,
            dynamic_ncols=True,
        ) as bar:
            while state.update < self.total and not state.finished:
                self._update(bar)
                if self._evaluation_is_due():
                    self._evaluate(bar)
                if (
                    state.update % config.checkpoint_every == 0
                    or state.update == self.total
                    or state.finished
                ):
                    self._checkpoint()
        return state

    def _update(self, bar: tqdm) -> None:
        state, config = self.state, self.config
        batch = self._next_batch()
        state.update += 1
        rate = triangular(state.update, config.learning_rate, config.warmup_updates, self.total)
        index = exit_of_update(config.seed, state.update, len(self._paths))
        loss = self._backward(batch, index)
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"update {state.update}",
                f"the loss is {loss}",
                "a finite loss",
                "lower --learning-rate or set --clip-norm; the last checkpoint stands",
            )
        self._optimizer.set_learning_rate(rate)
        self._step(index)
        state.loss_sum, state.loss_updates = state.loss_sum + loss, state.loss_updates + 1
        self._pairs_since += len(batch)
        bar.update()
        if state.update % config.log_every == 0 or state.update == self.total:
            self._log_loss(bar, rate)

    def _next_batch(self) -> np.ndarray:
        state = self.state
        if self._plan[0] != state.epoch:
            rng = order_of_epoch(self.config.seed, state.epoch)
            self._plan = (state.epoch, self.pairs.plan(self._budget, rng))
        batch = self._plan[1][state.batch]
        state.batch += 1
        if state.batch == len(self._plan[1]):
            state.epoch, state.batch = state.epoch + 1, 0
        return batch

    def _backward(self, batch: np.ndarray, index: int) -> float:
        arrays, losses = self.pairs.batch(batch), []
        seed = dropout_seed(self.config.seed, self.state.update)
        mx.random.seed(seed)
        if self._uses_onednn:
            # Made here, as it holds on to the parameters' memory and a resumption may have moved
            # them.
            self._fused = self._fused or FusedNetwork(
                self.model, self.config.precision, self._budget, self.pairs.most
            )
            return self._fused.gradients(index, arrays, cross_entropy, seed)
        with autograd.record():
            for (start, end), ctx in zip(split_rows(len(batch), len(self.devices)), self.devices):
                # A device without a row repeats the first at weight 0, so that its gradient is
                # fresh.
                rows, weight = (slice(start, end), 1.0) if end > start else (slice(0, 1), 0.0)
                token_ids, token_types, valid_length, labels = (
                    mx.nd.array(array[rows], ctx=ctx, dtype=array.dtype) for array in arrays
                )
                _, scores = self._paths[index](token_ids, token_types, valid_length)
                losses.append(cross_entropy(scores, labels).sum() * (weight / len(batch)))
        autograd.backward(losses)
        return sum(loss.asscalar().item() for loss in losses)

    def _step(self, index: int) -> None:
        self._optimizer.allreduce_grads()
        if self.config.clip_norm:
            parameters = self._paths[index].collect_params().values()
            for ctx in self.devices:
                gluon.utils.clip_global_norm(
                    [parameter.grad(ctx) for parameter in parameters], self.config.clip_norm
                )
        # Stale gradients are those above the exit: their parameters are left alone.
        self._optimizer.update(1, ignore_stale_grad=True)

    def _log_loss(self, bar: tqdm, rate: float) -> None:
        state, now = self.state, time.perf_counter()
        speed = self._pairs_since / (now - self._since)
        loss = state.loss_sum / state.loss_updates
        self._write(
            {
                "update": state.update,
                "epoch": round(state.update / self.updates_per_epoch, 4),
                "loss": loss,
                "learning_rate": rate,
                "pairs_per_second": round(speed, 2),
            }
        )
        bar.set_postfix_str(f"loss {loss:.4f}, rate {rate:.2e}, {speed:.1f} pairs/s", refresh=False)
        state.loss_sum, state.loss_updates = 0.0, 0
        self._since, self._pairs_since = now, 0

    def _evaluation_is_due(self) -> bool:
        if self.evaluator is None:
            return False
        every = self.config.eval_every or self.updates_per_epoch
        return self.state.update % every == 0 or self.state.update == self.total

    def _evaluate(self, bar: tqdm) -> None:
        assert self.evaluator is not None
        state, begin = self.state, time.perf_counter()
        figures = self.evaluator(self.model)
        self._write({"update": state.update, "dev": figures})
        bar.write(
            f"update {state.update}: dev "
            + ", ".join(
                f"{name} {100 * value:.2f}"
                for name, value in figures.items()
                if name != "questions"
            ),
            file=sys.stderr,
        )
        if figures["map"] > state.best_map:
            state.best_map, state.best_update, state.evaluations_since_best = (
                figures["map"],
                state.update,
                0,
            )
            self.checkpoints.keep_best(self.model, state.update)
        else:
            state.evaluations_since_best += 1
            state.finished = 0 < self.config.patience <= state.evaluations_since_best
        self._since += time.perf_counter() - begin

    def _checkpoint(self) -> None:
        for name, parameter in self.model._collect_params_with_prefix().items():
            if not math.isfinite(parameter.data(self.devices[0]).sum().asscalar()):
                raise TrainingDiverged(
                    f"update {self.state.update}",
                    f"parameter {name} is not finite",
                    "finite numbers",
                    "lower --learning-rate or set --clip-norm; the last checkpoint stands",
                )
        begin = time.perf_counter()
        self.checkpoints.save(self.state, self.model, self._optimizer.save_states)
        self._since += time.perf_counter() - begin

    def _write(self, line: Dict[str, Any]) -> None:
        with open(self._metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
