"""Sums of the gradients of an update, over its mini-batches and over devices."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, Optional, Sequence, Union

import mxnet as mx
from mxnet import gluon

from wqa.training.workers import Workers


class GradientSums:
    """Sums of gradients over mini-batches, of the parameters that a loss depends on.

    ``grad_req="add"`` of MXNet would also keep old gradients of the other parameters.
    """

    def __init__(
        self, parameters: Dict[str, gluon.Parameter], devices: Sequence[mx.Context]
    ) -> None:
        self._parameters = list(itertools.product(parameters.values(), devices))
        self._sums: Dict[int, mx.nd.NDArray] = {}

    def add(self) -> None:
        """Add the gradients of the last mini-batch."""
        for index, (parameter, ctx) in enumerate(self._parameters):
            data = parameter.data(ctx)
            if data._fresh_grad:
                data._fresh_grad = False
                gradient = parameter.grad(ctx)
                if index in self._sums:
                    self._sums[index] += gradient
                else:
                    self._sums[index] = gradient.copy()

    def store(self) -> None:
        """Write the sums to the gradients that the optimizer reads."""
        for index, gradient in self._sums.items():
            parameter, ctx = self._parameters[index]
            parameter.grad(ctx)[:] = gradient
            parameter.data(ctx)._fresh_grad = True


class FreshTrainer(gluon.Trainer):
    """A Gluon trainer by Adam that sums only fresh gradients over devices and workers.

    A gradient is fresh if the loss of the update depends on its parameter. The gradients above the
    exit that an update draws are stale: `mxnet.gluon.Trainer` sums them too, and applies none.
    """

    def __init__(
        self,
        parameters: Sequence[gluon.Parameter],
        optimizer: Union[str, mx.optimizer.Optimizer],
        settings: Dict[str, Any],
        workers: Optional[Workers] = None,
    ) -> None:
        self._workers = workers or Workers()
        super().__init__(
            list(parameters),
            optimizer,
            settings,
            kvstore=self._workers.store,
            update_on_kvstore=False,
        )

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return  # one device
        fresh = set()
        for index, parameter in enumerate(self._params):
            if any(array._fresh_grad for array in parameter.list_data()):
                fresh.add(index)
        # A store waits for the gradient of every worker.
        for index in sorted(self._workers.union(fresh)):
            parameter = self._params[index]
            gradients = parameter.list_grad()
            for array, gradient in zip(parameter.list_data(), gradients):
                if not array._fresh_grad:  # the loss here does not depend on the parameter
                    gradient[:] = 0
                    array._fresh_grad = True
            # The priority is that of Gluon's trainer.
            self._kvstore.pushpull(index, gradients, priority=-index)


def clip_gradients(gradients: Sequence[mx.nd.NDArray], limit: float, workers: Workers) -> None:
    """Scale gradients so that their norm is at most a limit, by the same factor on all workers."""
    if workers.count == 1:
        gluon.utils.clip_global_norm(gradients, limit)
        return
    flat = [gradient.reshape((-1,)) for gradient in gradients]
    squares = mx.nd.add_n(*[mx.nd.dot(gradient, gradient) for gradient in flat])
    # The last bit of a norm depends on the number of threads.
    norm = workers.first(math.sqrt(squares.asscalar()))
    if norm > limit:
        for gradient in gradients:
            gradient *= limit / norm
