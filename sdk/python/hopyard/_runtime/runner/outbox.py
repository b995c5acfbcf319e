"""The queue of a process's messages to its agent, between the threads that create them and the stream that sends them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_MOST_WAITING: Final = 4096
"""Number of queued messages at which the training loop waits, to limit memory if the agent is slow."""

_HEARTBEAT_SECONDS: Final = 1.0

_COMPANY_SECONDS: Final = 0.05
"""Minimum seconds between two messages with reports that nobody waits for; reports in between are sent together."""

_MOST_REPORTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Maximum size in bytes of the reports in one message; `_MOST_REPORTS` is their maximum number."""


class Outbox:
    """A thread-safe queue of messages to the agent: any thread calls `send`, and the stream to the agent iterates over `requests`.

    Args:
        most: Number of queued messages at which `wait_for_room` blocks.
        heartbeat_seconds: Seconds without a message after which a heartbeat is sent.
        company_seconds: Minimum seconds between two sent messages if all queued messages are `patient`, so that they are sent
            together.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        most: int = _MOST_WAITING,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
        company_seconds: float = _COMPANY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._heartbeat_seconds = heartbeat_seconds
        self._company_seconds = company_seconds
        self._clock = clock
        self._waiting: deque[wire.AttachRequest | common_pb2.Report] = deque()
        self._patient = 0
        """Number of queued messages, counted from the last, that may be delayed to be sent with others."""
        self._taken = -company_seconds
        self._changed = threading.Condition()
        self._closed = False
        self._leaving = False
        """Whether the stream has taken a message that may not have been sent yet."""

    def wait_for_room(self) -> None:
        """Block while the queue is full and the outbox is open. Only for the training loop: replies to commands must never wait."""
        if len(self._waiting) < self._most:
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < self._most or self._closed)

    def wait_until_sent(self, seconds: float) -> bool:
        """Wait at most `seconds` until all queued messages have been sent or the outbox is closed; return whether this happened."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or not (self._waiting or self._leaving), seconds)

    def send(self, request: wire.AttachRequest | common_pb2.Report, *, patient: bool = False) -> None:
        """Queue a message without blocking. Consecutive queued reports are sent in one message.

        Args:
            request: The message.
            patient: Whether it may be delayed by some milliseconds to be sent together with later reports.
        """
        with self._changed:
            alone = not self._waiting
            self._waiting.append(request)
            self._patient = self._patient + 1 if patient else 0
            if alone or not self._can_wait:  # A message that can be delayed need not wake the stream.
                self._changed.notify_all()

    def close(self) -> None:
        """End the stream after the queued messages. Do not call `send` afterwards."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def requests(self) -> Iterator[wire.AttachRequest]:
        """Yield the messages in order, and a heartbeat after `heartbeat_seconds` without one; end after `close`."""
        while True:
            with self._changed:
                self._leaving = False  # gRPC requests the next message after it has sent the previous one.
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
