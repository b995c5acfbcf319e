"""What a runner has to say to its agent, in order, between the threads that say it and the stream that sends it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_MOST_WAITING: Final = 4096
"""Messages that may wait before the training loop does: more only costs memory when the agent is slow."""

_HEARTBEAT_SECONDS: Final = 1.0

_MOST_REPORTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Reports in one message, and their bytes."""


class Outbox:
    """A thread-safe queue whose reader is the request stream of the attachment."""

    def __init__(self, *, most: int = _MOST_WAITING, heartbeat_seconds: float = _HEARTBEAT_SECONDS) -> None:
        """Bound what may wait to about `most` messages; be silent for at most `heartbeat_seconds`."""
        self._most = most
        self._heartbeat_seconds = heartbeat_seconds
        self._waiting: deque[wire.AttachRequest | common_pb2.Report] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def wait_for_room(self) -> None:
        """Block while too much waits. For the training loop only: commands must never wait behind reports."""
        if len(self._waiting) < self._most:
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < self._most or self._closed)

    def send(self, request: wire.AttachRequest | common_pb2.Report) -> None:
        """Queue a message; never blocks. Reports that wait one behind the other go out together."""
        with self._changed:
            self._waiting.append(request)
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
                spoken = self._changed.wait_for(lambda: self._waiting or self._closed, self._heartbeat_seconds)
                if spoken and not self._waiting:
                    return
                request = self._take() if spoken else wire.AttachRequest(heartbeat=wire.AttachHeartbeat())
                self._changed.notify_all()
            yield request

    def _take(self) -> wire.AttachRequest:
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
