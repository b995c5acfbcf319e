"""Records the messages between a client process and the simulated agent in order, and waits for expected ones."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import Message

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_SHOWN: Final = 12
_LONGEST: Final = 600
_PLAIN: Final = {
    "": ("run", "code_folder", "snapshot_folder", "working_folder", "log_file"),
    "start": ("slot", "seed", "mode", "world", "program"),
}
"""Fields of the start message, and of `start` in it, that are omitted from transcripts because no case depends on them."""
_MOST: Final = 10_000
"""Maximum number of messages kept: no case needs more, and a client that never waits could exhaust the memory."""


class ProtocolViolation(Exception):
    """Raised if a client violates the protocol.

    Attributes:
        expected: What was expected.
        seen: What was seen.
    """

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; seen: {seen}")
        self.expected = expected
        self.seen = seen


class Conversation:
    """The recorded messages between one client process and the simulated agent, from the first to the end of the gRPC stream.

    Thread-safe.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.said: list[wire.AttachRequest] = []
        """Messages of the process without heartbeats; reports that were sent together are separate messages here."""
        self.heard_at = 0.0
        """Monotonic time of the last message, including heartbeats; 0: none yet."""
        self.silence = 0.0
        """Longest time between two messages, in seconds."""
        self.closed = False
        """Whether the process or its agent has ended the stream."""
        self.attached = 0
        """Number of times that the process has attached."""
        self.first = ""
        """Kind of the first message."""
        self._lines: deque[str] = deque(maxlen=_SHOWN)
        self._noted = 0
        self._began = time.monotonic()
        self._beats = 0

    def hear(self, request: wire.AttachRequest) -> None:
        """Record a message of the process, and wake the threads in `wait`."""
        with self.changed:
            now = time.monotonic()
            self.silence = max(self.silence, now - self.heard_at) if self.heard_at else 0.0
            self.heard_at = now
            kind = request.WhichOneof("message")
            self.first = self.first or kind or "nothing that is known"
            if kind == "heartbeat":
                self._beats += 1
            else:
                self._note("<-", request)
                if kind == "reports":
                    self.said.extend(wire.AttachRequest(report=report) for report in request.reports.reports)
                elif kind is not None:
                    self.said.append(request)
                del self.said[_MOST:]
            self.changed.notify_all()

    def tell(self, response: wire.AttachResponse) -> None:
        """Record `response`, a message of the agent to the process; heartbeats are not recorded."""
        if not response.HasField("heartbeat"):
            with self.changed:
                self._note("->", response)

    def note(self, line: str) -> None:
        """Record an event other than a message as a line of the transcript."""
        with self.changed:
            self._flush()
            self._line(f"-- {line}")

    def close(self) -> None:
        """Record that the gRPC stream has ended, and wake the threads in `wait`."""
        with self.changed:
            if not self.closed:
                self.closed = True
                self._flush()
                self._line("-- the stream ends")
            self.changed.notify_all()

    def transcript(self) -> list[str]:
        """Return the last 12 lines of the transcript, each with the seconds since this object was created.

        If earlier lines are omitted, the first returned line says how many.
        """
        with self.changed:
            self._flush()
            left_out = self._noted - len(self._lines)
            return [f"... {left_out} lines are left out", *self._lines] if left_out else list(self._lines)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait at most `seconds` until `condition` is true, evaluating it after each message; return its last value."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def reports(self) -> list[common_pb2.Report]:
        """Return the reports that the process has sent, in order."""
        with self.changed:
            return [request.report for request in self.said if request.HasField("report")]

    def snapshots(self) -> list[common_pb2.Snapshot]:
        """Return the snapshots that the process has announced, in order."""
        with self.changed:
            return [r.snapshot_taken.snapshot for r in self.said if r.HasField("snapshot_taken")]

    @property
    def misplaced(self) -> tuple[int, int] | None:
        """The first announced snapshot whose position differs from that of the last report before it; None: there is none.

        The value is the pair of the snapshot's position and the report's position. A snapshot before the first report is ignored.
        """
        with self.changed:
            stands: int | None = None
            for request in self.said:
                if request.HasField("report"):
                    stands = request.report.position
                elif request.HasField("snapshot_taken") and stands is not None:
                    position = request.snapshot_taken.snapshot.position
                    if position != stands:
                        return position, stands
            return None

    def amended(self, ticket: str) -> resource_manager_pb2.RunAmended | None:
        """Return the client's reply to the amendment with the id `ticket`; None if there is none yet."""
        with self.changed:
            return next((r.amended for r in self.said if r.HasField("amended") and r.amended.ticket == ticket), None)

    @property
    def ended(self) -> resource_manager_pb2.RunEnded | None:
        """The client's message about the end of its run; None: there is none yet."""
        with self.changed:
            return next((request.ended for request in self.said if request.HasField("ended")), None)

    def shown(self, since: int = 0) -> str:
        """Return the client's messages from index `since` (counted from 0) as text.

        If there are more than 12 messages, the text has only the last 12, after "...".
        """
        words = self.order[since:]
        left_out = "... " if len(words) > _SHOWN else ""
        return left_out + ", ".join(words[-_SHOWN:])

    @property
    def order(self) -> list[str]:
        """The client's messages in order as short texts, such as `report 2` and `snapshot 2`."""
        with self.changed:
            return [_word(request) for request in self.said]

    def _note(self, arrow: str, message: Message) -> None:
        self._flush()
        text = text_format.MessageToString(_short(message), as_one_line=True, print_unknown_fields=False)
        self._line(f"{arrow} {text[:_LONGEST]}{' ...' if len(text) > _LONGEST else ''}")

    def _line(self, text: str) -> None:
        self._lines.append(f"{time.monotonic() - self._began:6.2f} s {text}")
        self._noted += 1

    def _flush(self) -> None:
        if self._beats:
            self._line(f"<- heartbeat ({self._beats} times)" if self._beats > 1 else "<- heartbeat")
            self._beats = 0


def _short(message: Message) -> Message:
    """Return a message as transcripts show it: a start message without fields on which no case depends (`_PLAIN`), others unchanged."""
    if not isinstance(message, wire.AttachResponse) or not message.HasField("start"):
        return message
    short = wire.AttachResponse()
    short.CopyFrom(message)
    for name in _PLAIN[""]:
        short.start.ClearField(name)  # type: ignore[arg-type]
    for name in _PLAIN["start"]:
        short.start.start.ClearField(name)  # type: ignore[arg-type]
    return short


def _word(request: wire.AttachRequest) -> str:
    kind = request.WhichOneof("message")
    match kind:
        case "report":
            return f"report {request.report.position}"
        case "snapshot_taken":
            return f"snapshot {request.snapshot_taken.snapshot.position}"
        case "ended":
            return f"ended {ending(request.ended)}"
        case _:
            return kind or "a message that is not known"


def ending(ended: resource_manager_pb2.RunEnded) -> str:
    """Return the reason, position, snapshot and error message of a run's end as text."""
    try:
        reason = common_pb2.RunEndReason.Name(ended.reason).removeprefix("RUN_END_REASON_")
    except ValueError:
        reason = f"reason {ended.reason}"
    state = f" with a snapshot of position {ended.snapshot.position}" if ended.HasField("snapshot") else ""
    message = f": {ended.message.splitlines()[0]}" if ended.message else ""
    return f"{reason} at position {ended.position}{state}{message}"


def same(found: float, expected: float) -> bool:
    """Return whether two numbers are equal; NaN equals NaN."""
    return found == expected or (math.isnan(found) and math.isnan(expected))
