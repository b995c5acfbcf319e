"""The gang's side of a rank other than 0: it receives the iterations that rank 0 orders, and the end of the run."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard._runtime.runner.gang.connections import GangBrokenError, Link, ProcessGang, judged, word
from hopyard._runtime.runner.gang.unix_socket import connected_socket
from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import common_pb2, resource_manager_pb2

VERDICT_SECONDS: Final = 15.0
"""Maximum seconds that a failed rank waits for rank 0's message about the end of the run."""


@dataclass(frozen=True, slots=True)
class GangStep:
    """An order of rank 0 to train an iteration from `position` that should not end beyond the position `limit` (None: no limit)."""

    position: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Leave:
    """An order of rank 0 to end the run, with the reason."""

    reason: RunEndReason


class Follower(ProcessGang):
    """The gang as a rank other than 0 sees it: a connection to rank 0, which gives orders.

    The constructor opens no connection; `join` connects to rank 0.

    Args:
        place: Host of rank 0, the ports that it opened there, and the secret of the gang.
        rank: Rank of this process, 1 or more.
        noticed: Called, from any thread, when the gang breaks.
        clock: Returns monotonic seconds.
        verdict_seconds: Maximum seconds that `verdict` waits for rank 0.
    """

    def __init__(
        self,
        place: common_pb2.GangPlace,
        rank: int,
        noticed: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        verdict_seconds: float = VERDICT_SECONDS,
    ) -> None:
        super().__init__(noticed, clock)
        self.place = place
        self._rank = rank
        self._verdict_seconds = verdict_seconds
        self._link: Link | None = None
        self._orders: deque[GangStep | Leave] = deque()
        self._all_here = self._ended = self._leaving = False
        self._over: tuple[bool, str] | None = None

    def join(self, seconds: float) -> None:
        began = self._clock()
        path = self.place.lead_socket
        try:
            if path:
                connection = connected_socket(Path(path), seconds)
            else:
                connection = socket.create_connection((self.place.host, self.place.lead_port), timeout=seconds)
        except OSError as error:
            where = path or f"{self.place.host}:{self.place.lead_port}"
            raise GangBrokenError(f"rank 0 cannot be reached at {where}: {error}", user=False) from error
        self._link = link = Link(connection)
        link.send({"secret": self.place.secret, "rank": self._rank})
        threading.Thread(target=self._listen, args=(link,), name="gang", daemon=True).start()
        with self._changed:
            left = max(began + seconds - self._clock(), 0.0)
            self._changed.wait_for(lambda: self._all_here or self._ended, left)
            if self._all_here:
                return
        self._check()
        raise GangBrokenError(f"not all ranks have joined within {seconds:g} s", user=False)

    def next(self) -> GangStep | Leave:
        """Wait for the next order of rank 0, and return it.

        Raises:
            GangBrokenError: The gang broke.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._orders or self._ended)
            if self._orders:
                return self._orders.popleft()
        self._check()
        raise GangBrokenError("rank 0 sends no more orders", user=False)

    def failing(self, ended: resource_manager_pb2.RunEnded) -> None:
        if self._link is not None:
            self._link.send({"failed": word(ended)})

    def verdict(self, ended: resource_manager_pb2.RunEnded) -> resource_manager_pb2.RunEnded:
        """Wait for rank 0's message about the end of this rank's failed run, and return it.

        Args:
            ended: The message about the end as this rank sees it.

        Returns:
            The message of rank 0; if rank 0 is gone, one that says that this is the cause; if it does not answer in time, `ended`.
        """
        if self._link is None:
            return ended
        with self._changed:
            self._changed.wait_for(lambda: self._ended, self._verdict_seconds)
            over, gone = self._over, (self._ended or self._link.hung_up()) and not self._leaving
        if over is not None:
            return judged(ended.position, over[1], user=over[0])
        if gone:
            return judged(ended.position, "rank 0 is gone: its connection ended", user=False)
        return ended

    def close(self) -> None:
        self._leaving = True
        if self._link is not None:
            self._link.close()

    def _check(self) -> None:
        if self._over is not None:
            raise GangBrokenError(f"rank 0 says: {self._over[1]}", user=self._over[0])
        if self._ended:
            raise GangBrokenError("rank 0 is gone: its connection ended", user=False)

    def _listen(self, link: Link) -> None:
        for message in link.messages():
            with self._changed:
                self._take(message)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            broken = not self._leaving
            self._changed.notify_all()
        if broken:
            self._break()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "go" in message:
            self._all_here = True
        elif "train" in message:
            self._orders.append(GangStep(message["train"], message["limit"]))
        elif "leave" in message:
            self._leaving = True
            self._orders.append(Leave(RunEndReason(message["leave"])))
        elif "over" in message:
            told = message["over"]
            self._over = (bool(told["user"]), str(told["message"]))
            self._ended = True
