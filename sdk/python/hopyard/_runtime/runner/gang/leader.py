"""Rank 0's side of a gang: accepts the other ranks, orders their iterations, and decides how their run ends."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hopyard._runtime.runner.gang.connections import HELLO_SECONDS, GangBrokenError, Link, ProcessGang, judged, word
from hopyard._runtime.runner.gang.unix_socket import bound_socket
from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import common_pb2, resource_manager_pb2

GATHER_SECONDS: Final = 2.0
"""Maximum seconds for which a failed rank 0 waits for messages of other ranks, to find the first cause of the failure."""

EARLIER_SECONDS: Final = 0.3
"""Maximum seconds for messages in transit that other ranks sent before their connections broke."""

STRANGERS: Final = 16
"""Maximum number of connections that have not identified themselves, in addition to those of the ranks; further ones wait."""

_ACCEPT_SECONDS: Final = 0.5
_SOCKET: Final = "gang.sock"


class Leader(ProcessGang):
    """The gang as rank 0 sees it: connections from the other ranks, to which it gives orders.

    The constructor opens the ports of the gang on this host, and accepts connections from then on.

    Args:
        size: Number of ranks, including rank 0.
        host: Address of this host by which the other ranks reach it.
        noticed: Called, from any thread, when the gang breaks.
        folder: An existing folder for the Unix socket on which it accepts the ranks, which are all on this node; None: accept them on
            a TCP port.
        clock: Returns monotonic seconds.
        gather_seconds: Maximum seconds that `verdict` waits for messages of other ranks.

    Raises:
        OSError: No port is available.
    """

    def __init__(
        self,
        size: int,
        host: str,
        noticed: Callable[[], None],
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        super().__init__(noticed, clock)
        self._size = size
        self._gather_seconds = gather_seconds
        self._links: dict[int, Link] = {}
        self._gone: dict[int, str] = {}
        self._failed: dict[int, tuple[bool, str]] = {}
        self._earlier: dict[int, tuple[bool, str]] = {}
        self._leaving = False
        self._hearing = threading.BoundedSemaphore(size + STRANGERS)
        self._server = _bound(host) if folder is None else bound_socket(folder / _SOCKET)
        self._server.listen()
        self._server.settimeout(_ACCEPT_SECONDS)
        # Bound without listening, which reserves the port; a program that sets SO_REUSEADDR can still listen on it.
        self._kept = _bound(host)
        self.place = common_pb2.GangPlace(
            host=host,
            lead_port=self._server.getsockname()[1] if folder is None else 0,
            lead_socket="" if folder is None else str(folder / _SOCKET),
            rendezvous_port=self._kept.getsockname()[1],
            secret=secrets.token_urlsafe(32),
        )
        threading.Thread(target=self._accept, name="gang", daemon=True).start()

    def join(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._links) == self._size - 1 or self._in_trouble(), seconds)
            missing = sorted(set(range(1, self._size)) - self._links.keys())
        self.check()
        if missing:
            ranks = ", ".join(map(str, missing))
            raise GangBrokenError(f"of {self._size} ranks, not joined within {seconds:g} s: {ranks}", user=False)
        self._tell({"go": True})

    def step(self, position: int, limit: int | None) -> None:
        """Order the other ranks to train the next iteration.

        Args:
            position: Position from which they train.
            limit: Position beyond which the iteration should not end; None: no limit.

        Raises:
            GangBrokenError: A rank is gone or has failed.
        """
        self.check()
        self._tell({"train": position, "limit": limit})

    def leave(self, reason: RunEndReason) -> None:
        """Order the other ranks to end their run for `reason`. A rank that is gone is ignored."""
        self._leaving = True
        self._tell({"leave": reason.value})

    def check(self) -> None:
        """Raise GangBrokenError if another rank is gone or has failed."""
        with self._changed:
            for rank, how in self._gone.items():
                raise GangBrokenError(f"rank {rank} is gone: {how}", user=False)
            for rank, (user, message) in self._failed.items():
                raise GangBrokenError(f"rank {rank}: {message}", user=user)

    def failing(self, ended: resource_manager_pb2.RunEnded) -> None:
        with self._changed:
            # Other ranks cannot have noticed this failure yet, so failures that they announce now may be its cause.
            self._changed.wait_for(self._in_trouble, EARLIER_SECONDS)
            self._earlier = dict(self._failed)

    def verdict(self, ended: resource_manager_pb2.RunEnded) -> resource_manager_pb2.RunEnded:
        """Determine the cause of a failed run, return the message about its end, and send it to the other ranks.

        If a rank is gone, that is the cause. Otherwise the message contains the failures of all ranks, the earliest first.

        Args:
            ended: The message about the end as rank 0 sees it.
        """
        with self._changed:
            earlier = self._earlier
            # If a rank is gone, its connections to all other ranks broke at the same moment.
            self._changed.wait_for(lambda: self._gone or len(self._failed) == self._size - 1, self._gather_seconds)
            gone, failed = dict(self._gone), dict(self._failed)
            for rank in self._links.keys() - gone.keys() - failed.keys():
                if self._links[rank].hung_up():  # The thread that reads has not run yet.
                    gone[rank] = "its connection ended"
            self._leaving = True
        user = ended.failure == common_pb2.FAILURE_CLASS_USER_CODE
        if gone:
            lost = "; ".join(f"rank {rank} is gone: {how}" for rank, how in gone.items())
            ended = judged(ended.position, lost, user=False)
        elif user and not _tells(ended, earlier):
            first = [f"rank {rank}: {message}" for rank, (_, message) in earlier.items()]
            later = [f"rank {rank}: {_first_line(m)}" for rank, (_, m) in failed.items() if rank not in earlier]
            ended = judged(ended.position, "\n".join([*first, ended.message, *later]), user=True)
        self._tell({"over": word(ended)})
        return ended

    def close(self) -> None:
        with self._changed:
            self._leaving = True  # No further rank is accepted.
        self._kept.close()
        for link in list(self._links.values()):
            link.close()

    def _in_trouble(self) -> bool:
        return bool(self._gone or self._failed)

    def _tell(self, message: Mapping[str, object]) -> None:
        for link in list(self._links.values()):
            link.send(message)

    def _accept(self) -> None:
        with self._server:  # Only this thread uses the socket, so it closes it.
            while len(self._links) < self._size - 1 and not self._leaving:
                if not self._hearing.acquire(timeout=_ACCEPT_SECONDS):
                    continue
                try:
                    connection, _ = self._server.accept()
                except TimeoutError:
                    self._hearing.release()
                else:
                    threading.Thread(target=self._serve, args=(Link(connection),), name="rank", daemon=True).start()

    def _serve(self, link: Link) -> None:
        hello = link.receive(HELLO_SECONDS) or {}
        self._hearing.release()
        rank, secret = hello.get("rank"), str(hello.get("secret", ""))
        known = secrets.compare_digest(secret.encode("utf-8", "backslashreplace"), self.place.secret.encode())
        with self._changed:
            known = known and not self._leaving
            if not known or not isinstance(rank, int) or not 0 < rank < self._size or rank in self._links:
                link.close()
                return
            self._links[rank] = link
            self._changed.notify_all()
        for message in link.messages():
            if "failed" in message:
                told = message["failed"]
                with self._changed:
                    self._failed[rank] = (bool(told["user"]), str(told["message"]))
                self._break()
        with self._changed:
            left = self._leaving or rank in self._failed
            if not left:
                self._gone[rank] = "its connection ended"
        if not left:
            self._break()


def _bound(host: str) -> socket.socket:
    """Return a socket bound to a free port: on `host` if it is a loopback address, else on all interfaces.

    Raises:
        OSError: No port is available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host if _is_loopback(host) else "", 0))
    except OSError:
        bound.close()
        raise
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tells(ended: resource_manager_pb2.RunEnded, failed: Mapping[int, tuple[bool, str]]) -> bool:
    """Return whether the message of `ended` only repeats a failure that another rank has announced.

    Args:
        ended: The end of the run on rank 0.
        failed: The announced failures by rank: whether user code is responsible, and the message.
    """
    return any(ended.message == f"rank {rank}: {message}" for rank, (_, message) in failed.items())


def _first_line(message: str) -> str:
    return message.partition("\n")[0]
