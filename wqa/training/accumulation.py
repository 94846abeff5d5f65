"""Gradients of several mini-batches, summed for one update."""

from __future__ import annotations

from typing import Dict, Sequence

import mxnet as mx
from mxnet import gluon


class GradientSums:
    """Sums of gradients over mini-batches, of the parameters that at least one of them reached.

    MXNet's own ``grad_req="add"`` would also keep the gradients of parameters that no loss of this
    update reached.

    Parameters
    ----------
    parameters : dict of str to mxnet.gluon.Parameter
        Parameters of the network.
    devices : sequence of mxnet.Context
        Devices that hold them.
    """

    def __init__(
        self, parameters: Dict[str, gluon.Parameter], devices: Sequence[mx.Context]
    ) -> None:
        self._slots = [(parameter, ctx) for parameter in parameters.values() for ctx in devices]
        self._sums: Dict[int, mx.nd.NDArray] = {}

    def collect(self) -> None:
        """Add the gradients of the last mini-batch."""
        for index, (parameter, ctx) in enumerate(self._slots):
            data = parameter.data(ctx)
            if data._fresh_grad:
                data._fresh_grad = False
                gradient = parameter.grad(ctx)
                if index in self._sums:
                    self._sums[index] += gradient
                else:
                    self._sums[index] = gradient.copy()

    def give_back(self) -> None:
        """Put the sums where the optimizer reads gradients."""
        for index, gradient in self._sums.items():
            parameter, ctx = self._slots[index]
            parameter.grad(ctx)[:] = gradient
            parameter.data(ctx)._fresh_grad = True
