"""Connections between the processes of a gang, which reveal immediately when a rank is lost.

Rank 0 leads (`leader`), the others follow (`follower`). Messages are lines of JSON:

    to rank 0       {"secret": ..., "rank": 1}                    first message
                    {"failed": {"user": true, "message": ...}}    the run of this rank failed
    from rank 0     {"go": true}                                  all ranks have joined
                    {"train": 4, "limit": 7}                      train an iteration from position 4; limit may be null
                    {"leave": "SUSPENDED"}                        the run is over
                    {"over": {"user": false, "message": ...}}     the run is over because it failed or was lost

A connection that ends without a final message means that the process on the other end has ended or cannot be reached.
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
"""Maximum seconds that a connecting process may take to identify itself."""

ABANDON_SECONDS: Final = 15.0
"""Maximum seconds that training code may take to notice a broken gang, before its process is ended."""

_LONGEST_LINE: Final = 64 * 1024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""TCP keepalive settings: a host that is cut off is detected after about 25 seconds."""


class GangBrokenError(Exception):
    """Raised if another rank is gone or has failed, so that no rank can continue.

    Args:
        message: Names the rank and what happened to it.
        user: Whether user code is responsible.

    Attributes:
        user: The argument of this name.
    """

    def __init__(self, message: str, *, user: bool) -> None:
        super().__init__(message)
        self.user = user


class Link:
    """A connection to the process of another rank; sends and receives JSON objects.

    Args:
        connection: A connected socket; this object becomes its owner, and `close` closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection = connection
        self._file = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message. Errors are ignored, because the thread that receives also detects a lost connection."""
        with self._sending, suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next message; None if the connection has ended, or no valid message arrived within `seconds`.

        Args:
            seconds: Time limit; None: unlimited.
        """
        try:
            if seconds is not None:
                self._connection.settimeout(seconds)
            line = self._file.readline(_LONGEST_LINE)
            if seconds is not None:
                self._connection.settimeout(None)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):  # Deeply nested JSON raises RecursionError.
            return None
        return message if isinstance(message, dict) else None

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield messages until the connection ends or an invalid message arrives."""
        while (message := self.receive()) is not None:
            yield message

    def hung_up(self) -> bool:
        """Return whether the peer has ended the connection and no data is left to read.

        This may become true before the thread that receives notices it.
        """
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        with suppress(OSError):
            self._file.close()  # Waits for a concurrent read, which the shutdown has ended.


class ProcessGang(ABC):
    """The part of a gang in one process: joins the other ranks and detects failures.

    `leader.Leader` is that of rank 0, `follower.Follower` that of each other rank.

    A gang breaks when the connection to a rank is lost or a rank fails. The constructor opens no connections.

    Args:
        noticed: Called, from any thread, when the gang breaks.
        clock: Returns monotonic seconds.
    """

    place: common_pb2.GangPlace
    """Host, ports and secret with which the ranks find and join the gang."""

    def __init__(self, noticed: Callable[[], None], clock: Callable[[], float]) -> None:
        self._noticed = noticed
        self._clock = clock
        self._changed = threading.Condition()
        self._broken_at: float | None = None

    @abstractmethod
    def join(self, seconds: float) -> None:
        """Wait until all ranks have joined.

        Raises:
            GangBrokenError: Not all have joined within `seconds`.
        """

    @abstractmethod
    def failing(self, ended: resource_manager_pb2.RunEnded) -> None:
        """Announce to the gang that the run of this rank failed.

        Call it before the training code closes its connections to other ranks.

        Args:
            ended: The message about the end of this rank's run.
        """

    @abstractmethod
    def verdict(self, ended: resource_manager_pb2.RunEnded) -> resource_manager_pb2.RunEnded:
        """Return the final message about the end of this rank's failed run.

        Args:
            ended: The message about the end as this rank sees it.

        Returns:
            `ended`, or another message if another rank caused the failure.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the gang and close its connections; safe to call twice."""

    def abandoned(self, now: float) -> bool:
        """Return whether the gang broke more than 15 seconds before `now` (in seconds of the gang's clock).

        False if the gang is intact. The training code should have noticed a broken gang within this time; if the run still exists
        after it, its process must be ended.
        """
        broken_at = self._broken_at
        return broken_at is not None and now - broken_at > ABANDON_SECONDS

    def _break(self) -> None:
        """Record that the gang broke, and call `noticed`. The caller must not hold the lock."""
        with self._changed:
            if self._broken_at is None:
                self._broken_at = self._clock()
            self._changed.notify_all()
        self._noticed()


def word(ended: resource_manager_pb2.RunEnded) -> dict[str, object]:
    """Return the JSON object that tells other ranks why a run failed: whether user code is responsible, and the error message.

    Args:
        ended: The message about the end of the failed run.
    """
    return {"user": ended.failure == common_pb2.FAILURE_CLASS_USER_CODE, "message": ended.message}


def judged(position: int, message: str, *, user: bool) -> resource_manager_pb2.RunEnded:
    """Return the message about the end of a run that ends because another rank failed or is gone.

    Args:
        position: Position of the run.
        message: What happened, for people.
        user: Whether user code is responsible: the run is then FAILED, else LOST.
    """
    return resource_manager_pb2.RunEnded(
        reason=common_pb2.RUN_END_REASON_FAILED if user else common_pb2.RUN_END_REASON_LOST,
        position=position,
        failure=common_pb2.FAILURE_CLASS_USER_CODE if user else common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
        message=message,
    )


@contextmanager
def environment(start: wire.ApplicationStart, place: common_pb2.GangPlace | None) -> Iterator[None]:
    """Set, within the context, the environment variables with which torch.distributed finds its gang (init_method env://).

    Each process sees only the GPUs of its own slot, so LOCAL_RANK is always 0.

    Args:
        start: Start message of the run.
        place: Host, ports and secret of the gang; None: the run has one rank, and nothing is set.
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
