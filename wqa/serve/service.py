"""The service: a ranker, its limits, its metrics, its key."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Any, Callable, Dict, List, Optional

from fastapi import Request

from wqa.inference.ranker import Ranker
from wqa.serve.config import ServeConfig
from wqa.serve.errors import RequestError
from wqa.serve.logs import log
from wqa.serve.metrics import Metrics
from wqa.serve.owner import RankerThread

#: Seconds for which the end of the service waits for the group that is being ranked.
_JOIN = 5.0


class Service:
    """A ranker, and what its endpoints share."""

    def __init__(
        self,
        load: Callable[[], Ranker],
        config: ServeConfig,
        name: str,
        precision: str = "float32",
    ) -> None:
        self.config, self.name, self.precision = config, name, precision
        self.owner = RankerThread(lambda: self._describe(load()), config)
        self._description: Optional[Dict[str, Any]] = None
        self.metrics = Metrics()
        self.owner.on_waiting = self.metrics.set_queue
        self.owner.on_ended = self._ended
        #: Called when the ranker is loaded, and with the exception where it is not.
        self.on_loaded: Callable[[Optional[BaseException]], None] = _ignore
        #: Called where the thread of the ranker ends by itself, so that nothing is ranked any more.
        self.on_ended: Callable[[], None] = _ignore
        #: Whether the server has been told to stop.
        self.is_draining: Callable[[], bool] = bool
        self.held_bytes = 0
        #: Number of requests that the end of the server cut off.
        self.cut_off = 0
        self._loading: Optional[asyncio.Task] = None

    async def open(self) -> None:
        """Begin to load the ranker; requests wait for it meanwhile."""
        self.begin()

    def begin(self) -> asyncio.Task:
        """Begin to load the ranker, where that has not begun."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
        return self._loading

    async def _load(self) -> None:
        start = time.monotonic()
        try:
            await self.owner.start()
        except Exception as error:
            self.on_loaded(error)
            return
        self.on_loaded(None)
        log("ready", model=self.name, seconds=round(time.monotonic() - start, 3))

    def _ended(self) -> None:
        log("ranker_ended", model=self.name)
        self.on_ended()

    async def close(self) -> None:
        """End the thread of the ranker."""
        if self._loading is not None:
            self._loading.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.owner.close, _JOIN)

    @property
    def ranker(self) -> Ranker:
        """The ranker."""
        if self.owner.ranker is None:
            raise _not_loaded()
        return self.owner.ranker

    def _describe(self, ranker: Ranker) -> Ranker:
        """Describe the ranker before it ranks: a request may have other drops for a moment."""
        capabilities = ranker.capabilities
        self._description = {
            "system": capabilities.system,
            "exits": list(capabilities.exits) or list(range(1, capabilities.stages + 1)),
            "num_layers": capabilities.num_layers,
            "stage_layers": capabilities.stage_layers,
            "stages": capabilities.stages,
            "drop_ratios": ranker.drop_ratio,
            "keep": [drop.keep or None for drop in ranker.drops],
        }
        return ranker

    @property
    def description(self) -> Dict[str, Any]:
        """What `GET /api/ranker` says of the ranker, as it was loaded."""
        if self._description is None:
            raise _not_loaded()
        return self._description

    @property
    def exits(self) -> List[int]:
        """Layer of each stage, or its number where stages are not layers of one encoder."""
        return list(self.description["exits"])

    def check_key(self, request: Request) -> None:
        """Check the key of a request."""
        if self.config.api_key is None:
            return
        given = request.headers.get("authorization", "")
        scheme, _, key = given.partition(" ")
        # Headers are decoded as Latin-1, so that this restores their bytes.
        is_same = hmac.compare_digest(
            key.strip().encode("latin-1"), self.config.api_key.encode("utf-8")
        )
        if scheme.lower() != "bearer" or not is_same:
            raise RequestError(
                "key", "Authorization", "invalid api token", "Bearer and the key of the service"
            )


def _not_loaded() -> RequestError:
    return RequestError("draining", "ranker", "is not loaded yet", mend="try again")


def _ignore(*arguments: object) -> None:
    pass
