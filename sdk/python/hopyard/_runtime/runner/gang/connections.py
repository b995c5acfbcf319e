"""What holds the ranks of a gang together: connections between their processes, on which a lost rank is felt at once.

Rank 0 leads (`leader`), the others follow (`follower`). Messages are lines of JSON:

    to rank 0       {"secret": ..., "rank": 1}                    first of all
                    {"failed": {"user": true, "message": ...}}    my run failed
    from rank 0     {"go": true}                                  all are here
                    {"train": 4, "limit": 7}                      an iteration, from position 4 on; limit may be null
                    {"leave": "SUSPENDED"}                        the run is over
                    {"over": {"user": false, "message": ...}}     ... because it failed or was lost

A connection that ends without a last word means that its process is gone.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

HELLO_SECONDS: Final = 10.0
"""How long somebody who connects may take to say who it is."""

ABANDON_SECONDS: Final = 15.0
"""How long the training code may take to notice that its gang is broken, before its process is ended."""

_LONGEST_LINE: Final = 64 * 1024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A host that is cut off counts as gone after some 25 seconds, if nothing else notices before."""


class GangBrokenError(Exception):
    """Another rank is gone or has failed; nobody can train on.

    Attributes:
        user: whether the experiment's code is at fault.
    """

    def __init__(self, message: str, *, user: bool) -> None:
        """Say which rank, and what happened to it."""
        super().__init__(message)
        self.user = user


class Link:
    """A connection to another rank's process."""

    def __init__(self, connection: socket.socket) -> None:
        """Take a connection over."""
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection = connection
        self._file = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message; if the other side is gone, whoever reads notices."""
        with self._sending, suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next message; None when the connection has ended, or nothing sensible came in time."""
        try:
            if seconds is not None:
                self._connection.settimeout(seconds)
            line = self._file.readline(_LONGEST_LINE)
            if seconds is not None:
                self._connection.settimeout(None)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):  # The last: of brackets within brackets.
            return None
        return message if isinstance(message, dict) else None

    def messages(self) -> Iterator[dict[str, Any]]:
        """Messages until the connection ends."""
        while (message := self.receive()) is not None:
            yield message

    def hung_up(self) -> bool:
        """Whether the other side has ended the connection, and nothing waits to be read, whether or not the reader knows yet."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        with suppress(OSError):
            self._file.close()  # Waits for who reads, who has read to the end now.


class ProcessGang(ABC):
    """This process's side of its gang."""

    place: common_pb2.GangPlace
    """Where the gang meets."""

    def __init__(self, noticed: Callable[[], None], clock: Callable[[], float]) -> None:
        """Belong to nothing yet; `noticed` is called, from any thread, when the gang breaks."""
        self._noticed = noticed
        self._clock = clock
        self._changed = threading.Condition()
        self._broken_at: float | None = None

    @abstractmethod
    def join(self, seconds: float) -> None:
        """Wait until all ranks are here.

        Raises:
            GangBrokenError: they are not within so many seconds.
        """

    @abstractmethod
    def failing(self, ended: resource_manager_pb2.RunEnded) -> None:
        """The run of this rank failed so; before the training code closes its own connections, by which others notice."""

    @abstractmethod
    def verdict(self, ended: resource_manager_pb2.RunEnded) -> resource_manager_pb2.RunEnded:
        """How the run of this rank ended that failed so: perhaps only because another rank did."""

    @abstractmethod
    def close(self) -> None:
        """Leave; safe to call twice."""

    def abandoned(self, now: float) -> bool:
        """Whether the gang has been broken for so long that the training code seems not to notice."""
        broken_at = self._broken_at
        return broken_at is not None and now - broken_at > ABANDON_SECONDS

    def _break(self) -> None:
        """Note that the gang broke, and tell; called without the lock."""
        with self._changed:
            if self._broken_at is None:
                self._broken_at = self._clock()
            self._changed.notify_all()
        self._noticed()


def word(ended: resource_manager_pb2.RunEnded) -> dict[str, object]:
    """What is told to other ranks of an end."""
    return {"user": ended.failure == common_pb2.FAILURE_CLASS_USER_CODE, "message": ended.message}


def judged(position: int, message: str, *, user: bool) -> resource_manager_pb2.RunEnded:
    """The end of a run because of another rank."""
    return resource_manager_pb2.RunEnded(
        reason=common_pb2.RUN_END_REASON_FAILED if user else common_pb2.RUN_END_REASON_LOST,
        position=position,
        failure=common_pb2.FAILURE_CLASS_USER_CODE if user else common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
        message=message,
    )


@contextmanager
def environment(start: wire.ApplicationStart, place: common_pb2.GangPlace | None) -> Iterator[None]:
    """The variables by which torch.distributed finds its gang (init_method env://), for as long as a run lasts.

    Each process sees the GPUs of its own slot only, so it is the first and only one of its kind there (LOCAL_RANK 0).
    """
    if place is None:
        yield
        return
    variables = {
        "RANK": start.run.rank,
        "WORLD_SIZE": start.start.world,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_ADDR": place.host,
        "MASTER_PORT": place.rendezvous_port,
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
