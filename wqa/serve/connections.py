"""Connections of clients: how many there may be, and for how long they may be silent.

uvicorn times a connection only between two requests. Here a client also has to send its request and
read its answer in time. The number of connections stays below what the process may open, so that
clients that open connections and say nothing keep no other client out.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import resource
import socket
from typing import Any, List, Optional, Set, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from wqa.serve.config import BACKLOG, ServeConfig
from wqa.serve.service import Service

#: Most connections that asyncio accepts in one turn of the event loop, before it reports any.
_ACCEPTED_AT_ONCE = 16
#: Seconds for which a connection without a request is kept, longer than those of most clients.
_KEEP_ALIVE = 75
#: Descriptors that are left to files, pipes and connections that have been accepted at once.
_OTHER_FILES = 128
#: Most connections where the process may open any number of files.
_MOST = 1 << 16
#: Bytes of a request that are discarded after its answer, a multiple of the limit of a body.
_DISCARDED = 4
#: Seconds after which a server that waits for its ranker sees that it is to stop.
_LOOK = 0.1
#: Seconds in which the first request of a connection is still taken when the server stops.
_LAST_REQUEST = 0.1

_LOGGER = logging.getLogger(__name__)


def build_server(app: Any, config: ServeConfig, loads_first: bool) -> uvicorn.Server:
    """Build the server of an application."""
    protocol: Any = functools.partial(Connection, config, most_connections())
    settings = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(config.drain),
    )
    return _Server(settings, app.state.service if loads_first else None)


class _Server(uvicorn.Server):
    """Waits for the ranker of a service, where there is one, before it accepts connections.

    It lets more connections wait than it accepts at once, for which asyncio has one number.
    """

    def __init__(self, settings: uvicorn.Config, service: Optional[Service]) -> None:
        super().__init__(settings)
        self._service = service

    async def startup(self, sockets: Optional[List[socket.socket]] = None) -> None:
        if self._service is not None:
            loading = self._service.begin()
            while not loading.done() and not self.should_exit:
                await asyncio.wait({loading}, timeout=_LOOK)
            if self.should_exit:  # by a signal, or as there is no ranker
                return
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)


def most_connections() -> int:
    """Most connections of this process, below its limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, files - min(_OTHER_FILES, files // 2))


class _Transport:
    """A transport that keeps reading after the last answer while the client sends its request.

    Closing a socket with unread data resets the connection, often before the client has read the
    answer.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        self._is_ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_ended or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._connection.is_cut_short():
            self._transport.close()
            return
        self._is_ended = True
        self._transport.write_eof()
        self._transport.resume_reading()


class Connection(H11Protocol):
    """A connection, which is closed where its client does not send a request or read in time.

    Where there are too many, the one that has waited longest for its client is closed.
    """

    def __init__(self, settings: ServeConfig, most: int, **options: Any) -> None:
        super().__init__(**options)
        self._timeout, self._most = settings.timeout, most
        self._left_to_discard = _DISCARDED * settings.max_bytes
        self._silence: Optional[asyncio.TimerHandle] = None
        self._unread: Optional[asyncio.TimerHandle] = None
        self._waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request, in place of another connection where there are too many."""
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        transport.set_write_buffer_limits(0)  # writing pauses while any byte waits for the client
        self._waits_since = self.loop.time()
        self._await_request()
        if len(self.connections) > self._most:
            _LOGGER.warning("connections_full", extra={"fields": {"connections": self._most}})
            self._longest_waiting()._abort()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._stop_unread()

    def pause_writing(self) -> None:
        """Give the client some time to read its answer."""
        super().pause_writing()
        self._stop_unread()
        self._unread = self.loop.call_later(self._timeout, self._abort)

    def resume_writing(self) -> None:
        """Go on: the client has read enough for the rest to be sent."""
        super().resume_writing()
        self._stop_unread()

    def data_received(self, data: bytes) -> None:
        """Take what a client sends."""
        if self.transport.is_closing():
            self._left_to_discard -= len(data)
            if self._left_to_discard < 0:
                self._abort()
            return
        super().data_received(data)
        if self._is_answering:
            self._stop_waiting()
        else:
            self._await_request()

    def shutdown(self) -> None:
        """Close the connection after its request, which may have been sent but not read yet."""
        if self.cycle is None:
            self.loop.call_later(_LAST_REQUEST, super().shutdown)
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_answering(self) -> bool:
        """Whether an endpoint has a request of the connection, perhaps without its whole body."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _has_whole_request(self) -> bool:
        return self._is_answering and self.conn.their_state is not h11.SEND_BODY

    def is_cut_short(self) -> bool:
        """Whether the client has not sent all of a request that is answered; begin to discard
        it.
        """
        if self.conn.their_state not in (h11.SEND_BODY, h11.ERROR):
            return False
        self._await_request()
        return True

    def _await_request(self) -> None:
        if self._silence is None:
            self._silence = self.loop.call_later(self._timeout, self._abort)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _longest_waiting(self) -> Connection:
        """The connection that has waited longest for its client; this one if all are answered."""
        longest, others = self, cast(Set[Connection], self.connections)
        for other in others:
            if other._waits_since < longest._waits_since and not other._has_whole_request:
                longest = other
        return longest

    def _abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()
