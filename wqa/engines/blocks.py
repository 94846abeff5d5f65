"""Engines that compute Gluon blocks, which MXNet traces, wholly or in part."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

from mxnet.gluon import HybridBlock
from mxnet.gluon.block import _BlockScope
from mxnet.name import NameManager

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, LockedEngine
from wqa.models import Network
from wqa.models.embeddings import break_cycles


@contextlib.contextmanager
def name_scope_kept() -> Iterator[None]:
    """Restore Gluon's name scopes of the thread, in which an interrupt can leave a block."""
    scopes = (_BlockScope._current, NameManager._current)  # local to the thread
    before = [dict(vars(scope)) for scope in scopes]
    try:
        yield
    finally:
        for scope, values in zip(scopes, before):
            vars(scope).clear()
            vars(scope).update(values)


class BlockEngine(LockedEngine):
    """Base class of engines with blocks that MXNet traces."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._hybridized: List[HybridBlock] = []  # blocks that MXNet traces
        self._was_interrupted = False  # whether the last call did not end

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function while no other thread uses the engine, and nothing is half traced."""
        with self._lock, name_scope_kept():
            if self._was_interrupted:
                self._hybridize()
            self._was_interrupted = True
            try:
                result = function(*arguments)
            except BaseException:
                self._hybridize()
                raise
            self._was_interrupted = False
            return result

    def _hybridize(self) -> None:
        """Let MXNet trace the blocks anew."""
        for block in self._hybridized:
            block.hybridize()


class NetworkEngine(BlockEngine, Engine):
    """Base class of engines that compute a network in memory.

    Parameters
    ----------
    network : Network
        Network with its parameters on the device.
    typed : bool
        Whether pairs have token types.
    padding_id : int
        Token id of padding.
    config : EngineConfig
        Device, precision, threads and sizes.
    """

    def __init__(
        self, network: Network, typed: bool, padding_id: int, config: EngineConfig
    ) -> None:
        super().__init__(config)
        self._network, self._typed, self._padding_id = network, typed, padding_id
        network.apply(break_cycles)
