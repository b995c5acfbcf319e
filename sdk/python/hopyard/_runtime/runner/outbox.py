"""What a runner has to say to its agent, in order, between the threads that say it and the stream that sends it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_MOST_WAITING: Final = 4096
"""Messages that may wait before the training loop does: more only costs memory when the agent is slow."""

_HEARTBEAT_SECONDS: Final = 1.0

_COMPANY_SECONDS: Final = 0.05
"""Between two messages of reports that nobody waits for: a run that reports more often than that sends several in one."""

_MOST_REPORTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Reports in one message, and their bytes."""


class Outbox:
    """A thread-safe queue whose reader is the request stream of the attachment."""

    def __init__(
        self,
        *,
        most: int = _MOST_WAITING,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
        company_seconds: float = _COMPANY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bound what may wait to about `most` messages; be silent for at most `heartbeat_seconds`."""
        self._most = most
        self._heartbeat_seconds = heartbeat_seconds
        self._company_seconds = company_seconds
        self._clock = clock
        self._waiting: deque[wire.AttachRequest | common_pb2.Report] = deque()
        self._patient = 0
        """How many of the last messages that wait can wait for company."""
        self._taken = -company_seconds
        self._changed = threading.Condition()
        self._closed = False
        self._leaving = False
        """Whether a message was taken and may not be out of this process yet."""

    def wait_for_room(self) -> None:
        """Block while too much waits. For the training loop only: commands must never wait behind reports."""
        if len(self._waiting) < self._most:
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < self._most or self._closed)

    def wait_until_sent(self, seconds: float) -> bool:
        """Block until all that was said is out of this process, `seconds` at most; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or not (self._waiting or self._leaving), seconds)

    def send(self, request: wire.AttachRequest | common_pb2.Report, *, patient: bool = False) -> None:
        """Queue a message; never blocks. Reports that wait one behind the other go out together.

        Args:
            request: The message.
            patient: Whether nobody waits for it: it then goes out with others, some milliseconds later.
        """
        with self._changed:
            alone = not self._waiting
            self._waiting.append(request)
            self._patient = self._patient + 1 if patient else 0
            if alone or not self._can_wait:  # The reader need not wake for what it would let wait.
                self._changed.notify_all()

    def close(self) -> None:
        """End the stream once everything that waits has been taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def requests(self) -> Iterator[wire.AttachRequest]:
        """The messages in order, with a heartbeat whenever nothing was said for a while; ends after `close`."""
        while True:
            with self._changed:
                self._leaving = False  # gRPC asks for the next message when it has sent the one before.
                self._changed.notify_all()
                spoken = self._changed.wait_for(lambda: self._waiting or self._closed, self._heartbeat_seconds)
                if spoken and not self._waiting:
                    return
                if self._can_wait:
                    company = self._taken + self._company_seconds - self._clock()
                    self._changed.wait_for(lambda: not self._can_wait, max(company, 0.0))
                self._leaving = bool(spoken)
                request = self._take() if spoken else wire.AttachRequest(heartbeat=wire.AttachHeartbeat())
                self._changed.notify_all()
            yield request

    @property
    def _can_wait(self) -> bool:
        return 0 < len(self._waiting) == self._patient < min(self._most, _MOST_REPORTS) and not self._closed

    def _take(self) -> wire.AttachRequest:
        self._taken = self._clock()
        request = self._joined()
        self._patient = min(self._patient, len(self._waiting))
        return request

    def _joined(self) -> wire.AttachRequest:
        first = self._waiting.popleft()
        if isinstance(first, wire.AttachRequest):
            return first
        reports, size = [first], first.ByteSize()
        while self._waiting and len(reports) < _MOST_REPORTS:
            following = self._waiting[0]
            if isinstance(following, wire.AttachRequest) or (size := size + following.ByteSize()) > _MOST_BYTES:
                break
            reports.append(following)
            self._waiting.popleft()
        if len(reports) == 1:
            return wire.AttachRequest(report=first)
        return wire.AttachRequest(reports=resource_manager_pb2.RunReports(reports=reports))
