"""What a process says and hears, in order, and how a case waits for what shall come."""

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
"""Fields of a start, and of the message `start` in it, that no case turns on: they are not shown."""
_MOST: Final = 10_000
"""Messages that are kept: no case needs as many, and a client that never waits says more than memory holds."""


class Unmet(Exception):
    """A client does not keep the contract.

    Attributes:
        expected: What should have come.
        seen: What came.
    """

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; seen: {seen}")
        self.expected = expected
        self.seen = seen


class Conversation:
    """One process's attachment, as its agent hears and sees it. Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.said: list[wire.AttachRequest] = []
        """What it said but for signs of life; each report is a message of its own."""
        self.heard_at = 0.0
        """When it said something last, if only that it lives, on the monotonic clock; 0: never."""
        self.silence = 0.0
        """Seconds of the longest silence between two messages."""
        self.closed = False
        """Whether it, or its agent, has ended the stream."""
        self.attached = 0
        """How often it has attached."""
        self.first = ""
        """What it said first."""
        self._lines: deque[str] = deque(maxlen=_SHOWN)
        self._noted = 0
        self._began = time.monotonic()
        self._beats = 0

    def hear(self, request: wire.AttachRequest) -> None:
        """Take what the process says."""
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
        """Note what its agent says."""
        if not response.HasField("heartbeat"):
            with self.changed:
                self._note("->", response)

    def note(self, line: str) -> None:
        """Note what happens besides."""
        with self.changed:
            self._flush()
            self._line(f"-- {line}")

    def close(self) -> None:
        """The stream has ended."""
        with self.changed:
            if not self.closed:
                self.closed = True
                self._flush()
                self._line("-- the stream ends")
            self.changed.notify_all()

    def transcript(self) -> list[str]:
        """The last that was said by either side, each line with the seconds since the process was started."""
        with self.changed:
            self._flush()
            left_out = self._noted - len(self._lines)
            return [f"... {left_out} lines are left out", *self._lines] if left_out else list(self._lines)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether a condition comes true within so many seconds; it is looked at whenever something is said."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def reports(self) -> list[common_pb2.Report]:
        """What was reported."""
        with self.changed:
            return [request.report for request in self.said if request.HasField("report")]

    def snapshots(self) -> list[common_pb2.Snapshot]:
        """The snapshots that were told of."""
        with self.changed:
            return [r.snapshot_taken.snapshot for r in self.said if r.HasField("snapshot_taken")]

    @property
    def misplaced(self) -> tuple[int, int] | None:
        """The first snapshot that is not of the position last reported before it: its position, and that one."""
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
        """The answer to an amendment."""
        with self.changed:
            return next((r.amended for r in self.said if r.HasField("amended") and r.amended.ticket == ticket), None)

    @property
    def ended(self) -> resource_manager_pb2.RunEnded | None:
        """The end of the run as the process has said it."""
        with self.changed:
            return next((request.ended for request in self.said if request.HasField("ended")), None)

    def shown(self, since: int = 0) -> str:
        """What was said from some message on, in words; of much the last."""
        words = self.order[since:]
        left_out = "... " if len(words) > _SHOWN else ""
        return left_out + ", ".join(words[-_SHOWN:])

    @property
    def order(self) -> list[str]:
        """What was said, in words such as `report 2` and `snapshot 2`."""
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
    """A message without what no case turns on."""
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
    """An end in words."""
    try:
        reason = common_pb2.RunEndReason.Name(ended.reason).removeprefix("RUN_END_REASON_")
    except ValueError:
        reason = f"reason {ended.reason}"
    state = f" with a snapshot of position {ended.snapshot.position}" if ended.HasField("snapshot") else ""
    message = f": {ended.message.splitlines()[0]}" if ended.message else ""
    return f"{reason} at position {ended.position}{state}{message}"


def same(found: float, expected: float) -> bool:
    """Whether two numbers are the same to the last bit, NaN included."""
    return found == expected or (math.isnan(found) and math.isnan(expected))
