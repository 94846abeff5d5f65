"""Connections between the workers of a training, by which none waits for a worker that is lost.

MXNet's store has no such connections: where a worker dies, the others wait for its gradients for
ever. Here every worker holds a TCP connection with worker 0. The kernel closes it with the process,
and gives it up half a minute after the machine has disappeared. A message is a line of JSON:
``["value", V]``, ``["failed", TEXT]`` or ``["end", null]``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import queue
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional

from wqa.errors import OptionError, WorkerLost, WqaError, printable, shorten

#: Seconds after which the connection with a machine that does not answer is given up.
SILENCE = 30
#: Seconds in which the main thread may raise the error; then the process is ended. It does not
#: come to it where MXNet waits for gradients.
GRACE = 10
#: Seconds in which all workers must have connected.
JOINING = 120

#: Seconds and bytes of the first line of a connection.
_GREETING, _GREETING_BYTES = 10, 200
#: An address beyond every network, towards which the route names this machine's own address.
_ELSEWHERE = "10.254.254.254"
#: Request for the address of an interface, of Linux.
_SIOCGIFADDR = 0x8915
#: Exit status, that of a command's errors.
_FAILED = 2

_MEND = "start all workers again and resume; they go on from the last checkpoint"


def end_process(error: BaseException) -> None:
    """Print an error and end the process, whatever its main thread waits for."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(error, WqaError):
            print(f"error: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
            sys.stderr.flush()
    os._exit(_FAILED)


@contextlib.contextmanager
def ended_after(seconds: float, error: BaseException) -> Iterator[None]:
    """End the process if the ``with`` block takes longer."""
    timer = threading.Timer(seconds, end_process, (error,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Connections:
    """The connections of one worker: worker 0 has one with every other, the others with it."""

    def __init__(
        self,
        rank: int,
        sockets: Dict[int, socket.socket],
        end: Callable[[WorkerLost], None] = end_process,
    ) -> None:
        self._rank, self._sockets = rank, sockets
        self._names = {peer: f"worker {peer}" for peer in (rank, *sockets)}
        self._end_process = end
        self._inboxes: Dict[int, queue.Queue] = {}
        self._error: Optional[WorkerLost] = None
        self._lock, self._closed = threading.Lock(), threading.Event()
        for peer, connection in sockets.items():
            _watch_machine(connection)
            self._inboxes[peer] = queue.Queue()
            name = f"connection with worker {peer}"
            thread = threading.Thread(target=self._read, args=(peer,), name=name, daemon=True)
            thread.start()

    def name_hosts(self) -> None:
        """Exchange the names of the machines, for errors. All workers call it."""
        for number, host in enumerate(self.gather(platform.node())):
            self._names[number] = f"worker {number} on {host}"

    def gather(self, value: Any) -> List[Any]:
        """Exchange values. All workers call it, in the same order."""
        if self._rank:
            self._send(0, "value", value)
            return self._receive(0)
        values = [json.loads(json.dumps(value))]
        values += [self._receive(peer) for peer in sorted(self._sockets)]
        for peer in self._sockets:
            self._send(peer, "value", values)
        return values

    def fail(self, reason: str) -> None:
        """Tell the other workers that this one has failed, which ends them."""
        self._tell_all("failed", f"{self._names[self._rank]} failed: {reason}")
        self._close_all()

    def close(self) -> None:
        """End the connections, after the last value."""
        self._tell_all("end", None)
        self._close_all()

    def _close_all(self) -> None:
        self._closed.set()
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)  # what is on its way still arrives
            connection.close()

    def _send(self, peer: int, kind: str, value: Any) -> None:
        try:
            self._sockets[peer].sendall(_line(kind, value))
        except OSError as error:
            self._lose(f"{self._names[peer]} is lost ({error.strerror})")
            assert self._error is not None
            raise self._error from None

    def _tell_all(self, kind: str, value: Any) -> None:
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):
                connection.sendall(_line(kind, value))

    def _receive(self, peer: int) -> Any:
        value = self._inboxes[peer].get()
        if self._error is not None:
            raise self._error
        return value

    def _read(self, peer: int) -> None:
        """Read the messages of a worker, in a thread."""
        reason = ""
        try:
            with self._sockets[peer].makefile("rb") as stream:
                for line in stream:
                    kind, value = json.loads(line)
                    if kind == "end":
                        return
                    if kind == "failed":
                        reason = value
                        break
                    self._inboxes[peer].put(value)
        except (OSError, ValueError) as error:
            reason = f"{self._names[peer]} is lost ({error})"
        self._lose(reason or f"{self._names[peer]} is lost: its process or its machine has ended")

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._error is not None or self._closed.is_set():
                return
            self._error = WorkerLost("training", reason, mend=_MEND)
        if not self._rank:
            self._tell_all("failed", reason)
        for inbox in self._inboxes.values():
            inbox.put(None)
        threading.Thread(target=self._end_after_grace, name="end", daemon=True).start()

    def _end_after_grace(self) -> None:
        if not self._closed.wait(GRACE):
            assert self._error is not None
            self._end_process(self._error)


def _line(kind: str, value: Any) -> bytes:
    return json.dumps([kind, value]).encode("utf-8") + b"\n"


def _watch_machine(connection: socket.socket) -> None:
    """Let the kernel end a connection whose other machine does not answer."""
    connection.settimeout(None)
    options = {"TCP_KEEPIDLE": SILENCE // 3, "TCP_KEEPINTVL": SILENCE // 6, "TCP_KEEPCNT": 4}
    options.update({"TCP_USER_TIMEOUT": 1000 * SILENCE, "TCP_NODELAY": 1})
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Reception:
    """The socket of worker 0 that the others connect with."""

    def __init__(self, scheduler: str, own_address: str = "") -> None:
        addresses = [own_address] if own_address else own_addresses(scheduler)
        self._secret = secrets.token_hex(8)
        # The connections come by one address. Which of several it is, is not known before.
        self._socket = socket.create_server(("" if len(addresses) > 1 else addresses[0], 0))
        port = self._socket.getsockname()[1]
        self.invitation = " ".join([self._secret, str(port), *addresses])

    def accept(self, count: int) -> Dict[int, socket.socket]:
        """Wait until all other workers have connected."""
        connections: Dict[int, socket.socket] = {}
        deadline = time.monotonic() + JOINING
        with self._socket:
            while len(connections) < count - 1:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    connection, _ = self._socket.accept()
                except socket.timeout:
                    missing = sorted(set(range(1, count)) - set(connections))
                    problem = f"no connection from worker {missing[0]} in {JOINING} seconds"
                    raise WorkerLost("worker 0", problem, mend=_MEND) from None
                rank = self._greeted(connection)
                if 0 < rank < count and rank not in connections:
                    connections[rank] = connection
                else:
                    connection.close()  # a stranger
        return connections

    def _greeted(self, connection: socket.socket) -> int:
        """Number of the worker that connects; -1 for a stranger."""
        connection.settimeout(_GREETING)
        try:
            secret, rank = _first_line(connection).split()
            return int(rank) if secrets.compare_digest(secret, self._secret) else -1
        except (OSError, ValueError, TypeError):
            return -1


def _first_line(connection: socket.socket) -> str:
    """The first line, and no byte after it."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _GREETING_BYTES:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode("ascii")


def join(invitation: str, rank: int) -> Dict[int, socket.socket]:
    """Connect with worker 0."""
    secret, port, *addresses = invitation.split()
    problems = []
    for address in addresses:
        try:
            connection = socket.create_connection((address, int(port)), timeout=_GREETING)
            connection.sendall(f"{secret} {rank}\n".encode("ascii"))
            return {0: connection}
        except OSError as error:
            problems.append(f"{address}:{port} ({error})")
    problem = printable(f"worker 0 cannot be reached from {platform.node()} at ")
    raise WorkerLost(
        f"worker {rank}",
        problem + " or ".join(problems),
        mend="let the machines connect with one another on every port, or set DMLC_INTERFACE and "
        "DMLC_NODE_HOST to the network that they share",
    )


def address_of(interface: str) -> str:
    """Address of a network interface of this machine."""
    request = struct.pack("40s", interface.encode("utf-8")[:15])  # a struct ifreq
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise OptionError(
                "DMLC_INTERFACE",
                f"{shorten(interface)} ({error.strerror})",
                f"a network interface of {platform.node()} that has an IPv4 address",
            ) from None
    return socket.inet_ntoa(answer[20:24])


def own_addresses(scheduler: str) -> List[str]:
    """Addresses of this machine at which other machines may reach it, the likeliest first."""
    addresses = []
    for target in (scheduler, _ELSEWHERE):
        # A datagram socket sends nothing when it connects, but it knows the route then.
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with probe, contextlib.suppress(OSError):
            probe.connect((target, 9))
            addresses.append(probe.getsockname()[0])
    addresses = list(dict.fromkeys(addresses)) or ["127.0.0.1"]
    return sorted(addresses, key=lambda address: address.startswith("127."))
