"""Sums of the gradients of an update, over its mini-batches and over devices."""

from __future__ import annotations

import itertools
from typing import Dict, Sequence

import mxnet as mx
from mxnet import gluon


class GradientSums:
    """Sums of gradients over mini-batches, of the parameters that a loss depends on.

    ``grad_req="add"`` of MXNet would also keep old gradients of the other parameters.

    Parameters
    ----------
    parameters : dict of str to mxnet.gluon.Parameter
        Parameters of the network.
    devices : sequence of mxnet.Context
        Devices of the parameters.
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
    """A Gluon trainer that sums only fresh gradients over devices.

    A gradient is fresh if the loss of the update depends on its parameter. The gradients above the
    exit that an update draws are stale: `mxnet.gluon.Trainer` sums them too, and applies none. It
    takes the parameters of `mxnet.gluon.Trainer`, with ``update_on_kvstore=False``.
    """

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return  # one device
        for index, parameter in enumerate(self._params):
            arrays = parameter.list_data()
            fresh = [array._fresh_grad for array in arrays]
            if not any(fresh):
                continue
            gradients = parameter.list_grad()
            for array, gradient, is_fresh in zip(arrays, gradients, fresh):
                if not is_fresh:  # the loss of this device does not depend on the parameter
                    gradient[:] = 0
                    array._fresh_grad = True
            # The priority is that of Gluon's trainer.
            self._kvstore.pushpull(index, gradients, priority=-index)
