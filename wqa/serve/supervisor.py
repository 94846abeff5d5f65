"""Several processes, each with a ranker of its own, behind one socket.

A worker that dies is started again, the others go on. Where none accepts connections, the
supervisor answers 503. Workers are spawned, not forked: a fork copies MXNet's threads and locks.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from typing import Any, Dict, Iterator, List

from wqa.errors import WqaError
from wqa.serve.config import METRICS_FOLDER, ServeConfig
from wqa.serve.logs import json_logs, log
from wqa.serve.requests import RequestError, error_answer
from wqa.serve.server import (
    FAILED,
    LATE,
    is_ranking,
    served_digests,
    stopping_signals,
    work,
)

#: Seconds before a worker is started again that died soon after its start, at first and at most.
_DELAY, _LONGEST_DELAY = 1.0, 30.0
#: Seconds of life after which a worker that dies is started again at once.
_LONG_LIFE = 30.0
#: Seconds beyond the drain after which a worker that does not stop is killed.
_PATIENCE = 10.0
#: Seconds between two looks at the workers.
_TICK = 0.2
#: Seconds for which a client may be silent, and that are spent on one client.
_SILENCE, _LONGEST = 0.1, 0.5


class _Worker:
    """A process, which is started again when it dies."""

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments
        self._context = multiprocessing.get_context("spawn")
        self._delay, self._started_at = 0.0, 0.0
        self.process: Any = None
        self.start_at = 0.0
        self.is_ready, self.was_ever_ready, self.is_dead = False, False, True
        self._loads_first = False
        self.start()

    @property
    def accepts(self) -> bool:
        """Whether the process accepts connections, or will: the first one does while it loads."""
        return not self.is_dead and (self.is_ready or not self._loads_first)

    def start(self) -> None:
        """Start the process, or let it be started later where the machine has no room for it."""
        self._started_at = time.monotonic()
        # Where one has died, others answer until this one has its ranker.
        self._loads_first = self.process is not None
        try:
            receiver, sender = self._context.Pipe(duplex=False)
            with contextlib.ExitStack() as on_error:
                on_error.callback(receiver.close)
                with sender:
                    arguments = (*self._arguments, self._loads_first, sender)
                    process = self._context.Process(target=_run, args=arguments)
                    process.start()
                on_error.pop_all()
        except OSError as error:
            log("worker_not_started", error=type(error).__name__, reason=error.strerror)
            self._start_later()
            return
        self.process, self._receiver = process, receiver
        self.is_ready, self.is_dead = False, False
        log("worker_started", worker=process.pid)

    def _start_later(self) -> None:
        now = time.monotonic()
        if now - self._started_at >= _LONG_LIFE:
            self._delay = 0.0
        elif self.process is None:
            self._delay = max(_DELAY, self._delay)
        self.start_at = now + self._delay
        self._delay = min(max(_DELAY, 2 * self._delay), _LONGEST_DELAY)

    def look(self) -> None:
        """See whether the ranker is loaded, and whether the process has died."""
        if self.is_dead:
            return
        self.look_for_ranker()
        if not self.process.is_alive():
            self.is_dead = True
            self._receiver.close()
            self._start_later()

    def look_for_ranker(self) -> None:
        """See whether the ranker of a process that has not been seen to die is loaded."""
        if not self.is_ready and self._receiver.poll():
            with contextlib.suppress(EOFError):
                self.is_ready = self.was_ever_ready = bool(self._receiver.recv())


def supervise(listener: socket.socket, run: Any, config: ServeConfig, options: Any) -> int:
    """Run workers until SIGTERM, SIGINT or SIGHUP."""
    # Not at the top: it chooses how values are kept when it is imported, by the environment.
    from prometheus_client.multiprocess import mark_process_dead

    stopping: List[bool] = []
    workers: List[_Worker] = []
    with stopping_signals(lambda: stopping.append(True)), _metrics_folder() as folder:
        try:
            arguments = (listener, run, config, options, served_digests(run, config, options))
            for _ in range(config.workers):
                workers.append(_Worker(arguments))
            while not stopping:
                waiting = [worker.process.sentinel for worker in workers if not worker.is_dead]
                if not any(worker.accepts for worker in workers):
                    waiting.append(listener)
                arrived = multiprocessing.connection.wait(waiting, _TICK)
                for worker in workers:
                    status = _tend(worker, mark_process_dead, folder)
                    if status == FAILED and not any(other.was_ever_ready for other in workers):
                        return FAILED
                # A ranker that is loaded by now answers.
                if listener in arrived and not any(worker.accepts for worker in workers):
                    _refuse(listener)
            return 0 if _stop(workers, listener, config.drain) else LATE
        finally:
            _stop(workers, listener, 0)


@contextlib.contextmanager
def _metrics_folder() -> Iterator[str]:
    """A folder for the values of all workers.

    They get it by the environment: the program that a worker imports first may import
    prometheus_client.
    """
    folder, earlier = tempfile.mkdtemp(prefix="wqa_metrics_"), os.environ.get(METRICS_FOLDER)
    os.environ[METRICS_FOLDER] = folder
    try:
        yield folder
    finally:
        if earlier is None:
            del os.environ[METRICS_FOLDER]
        else:
            os.environ[METRICS_FOLDER] = earlier
        shutil.rmtree(folder, ignore_errors=True)


def _tend(worker: _Worker, mark_dead: Any, folder: str) -> int:
    """Start a worker again that has died; the status `FAILED` where it cannot load its ranker."""
    was_dead = worker.is_dead
    worker.look()
    if not worker.is_dead:
        return 0
    if not was_dead:
        status = worker.process.exitcode
        log("worker_died", worker=worker.process.pid, status=status)
        mark_dead(worker.process.pid, folder)
        if status == FAILED and not worker.is_ready:
            return FAILED
    if time.monotonic() >= worker.start_at:
        worker.start()
    return 0


def _stop(workers: List[_Worker], listener: socket.socket, drain: float) -> bool:
    """Stop all workers; whether all stopped by themselves, and in time."""
    listener.close()
    running = [worker for worker in workers if not worker.is_dead]
    for worker in running:
        if worker.process.is_alive():
            worker.process.terminate()
    end = time.monotonic() + drain + _PATIENCE
    stopped = True
    for worker in running:
        worker.process.join(max(0, end - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.look_for_ranker()
        status = worker.process.exitcode
        # The signal ends a worker that has no handler for it yet; a terminal's goes to all.
        has_begun = worker.is_ready or status not in (-signal.SIGTERM, -signal.SIGHUP)
        stopped = stopped and not (status and has_begun)
    return stopped


def _run(
    listener: socket.socket,
    run: Any,
    config: ServeConfig,
    options: Any,
    digests: Dict[str, str],
    loads_first: bool,
    sender: Any,
) -> None:
    """The process of a worker."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with json_logs():
        try:
            status = work(
                listener,
                run,
                config,
                options,
                on_ready=lambda: sender.send(True),
                digests=digests,
                loads_first=loads_first,
            )
        except WqaError as error:
            log("failed", error=type(error).__name__, message=str(error))
            status = FAILED
    if is_ranking():
        os._exit(status)
    sys.exit(status)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _refuse(listener: socket.socket) -> None:
    """Accept a connection, answer 503 to its request, and close it."""
    with contextlib.suppress(OSError):  # the client has gone away, or says nothing
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_SILENCE)
            end = time.monotonic() + _LONGEST
            _, path, *_ = [*connection.recv(1 << 16).split(b" ", 2), b"", b""]
            seconds = time.monotonic() - end + _LONGEST
            connection.sendall(_answer(path.decode("latin-1"), seconds))
            connection.shutdown(socket.SHUT_WR)
            # What is not read would reset the connection, and the answer with it.
            while time.monotonic() < end and connection.recv(1 << 16):
                pass


def _answer(path: str, seconds: float) -> bytes:
    id = str(uuid.uuid4())
    error = RequestError("draining", "service", "has no ranker", mend="try again")
    status, answer = error_answer(path, error, id)
    body = json.dumps(answer).encode("utf-8")
    path = path.partition("?")[0][:60]
    log("request", id=id, path=path, status=status, seconds=round(seconds, 6), refused=error.kind)
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "retry-after: 1",
        f"x-request-id: {id}",
        "connection: close",
    )
    return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + body
