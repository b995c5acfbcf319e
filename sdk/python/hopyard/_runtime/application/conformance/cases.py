"""Conformance cases about training, saving, waiting and commands. `snapshot_cases` and `failure_cases` have the others.

Each case function starts runs of the client with a `RunFixture` and raises `ProtocolViolation` if the client violates the protocol.
The first line of its docstring is the case's title: what the client must do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hopyard._runtime.application.conformance.run import ProcessRun, RunFixture
from hopyard._runtime.application.conformance.transcript import ProtocolViolation
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

FAR: Final = 1_000_000
"""A position beyond those that the cases reach, used as a limit without effect."""

LR: Final = 0.1234567890123456
"""A learning rate with so many digits that rounding it changes the task's results."""

_SILENCE_SECONDS: Final = 3.0
"""Maximum seconds between two messages of a process that must send one each second."""


@dataclass(frozen=True, slots=True)
class Case:
    """One conformance case: a test of one requirement of docs/protocol.md.

    Attributes:
        name: Name of the case.
        section: The anchor of the section of docs/protocol.md that the case tests.
        needs: Names of the cases that must pass before this one can run.
        title: What a client must do, in one line.
        try_out: Runs the case; raises `ProtocolViolation` if the client does not behave as required.
    """

    name: str
    section: str
    needs: tuple[str, ...]
    title: str
    try_out: Callable[[RunFixture], None]


CASES: Final[dict[str, Case]] = {}
"""All cases by name, each after those that it needs."""


def case(
    name: str, section: str, *needs: str
) -> Callable[[Callable[[RunFixture], None]], Callable[[RunFixture], None]]:
    """Return a decorator that registers a function in `CASES`; the first line of the function's docstring is the title.

    Args:
        name: Name of the case.
        section: The anchor of the section of docs/protocol.md that the case tests.
        needs: Names of the cases that must pass before this one can run.
    """

    def add(function: Callable[[RunFixture], None]) -> Callable[[RunFixture], None]:
        title = (function.__doc__ or "").partition("\n")[0]
        CASES[name] = Case(name, section, needs, title, function)
        return function

    return add


@case("attach", "attaching")
def attach(bench: RunFixture) -> None:
    """Attaches with its token and sends hello first.

    Raise `ProtocolViolation` unless the client calls Attach with the metadata `authorization: Bearer TOKEN`, its first message is a
    hello that names its library, and a report follows.
    """
    run = bench.begin({"lr": 1.0}, allowed=FAR, until=1)
    run.until(lambda: bool(run.heard.first) or bool(bench.agent.refused), "a call of Attach, with hello first")
    if bench.agent.refused:
        raise ProtocolViolation("metadata authorization: Bearer $HOPYARD_TOKEN", bench.agent.refused)
    if run.heard.first != "hello":
        raise ProtocolViolation("hello first", f"{run.heard.first} first")
    hello = run.heard.said[0].hello
    if not hello.library:
        raise ProtocolViolation("hello with the library that speaks, such as 'mine 1.0'", "no library")
    run.until(lambda: bool(run.heard.reports()), "a report")


@case("series", "reports", "attach")
def series(bench: RunFixture) -> None:
    """Reports each position once and in order, with the exact value, and does not wait at positions below allowed.

    Start a run that may train up to position 6 without a decision, and raise `ProtocolViolation` unless it reports positions 1 to 6.
    """
    run = bench.begin({"lr": 0.1}, allowed=6)
    for position in range(1, 7):
        run.reported(position)


@case("hyperparameters", "hyperparameters", "series")
def hyperparameters(bench: RunFixture) -> None:
    """Reads whole numbers, floats, text, booleans, groups and lists, and ignores unknown names.

    A group is a mapping with further hyperparameters. Start runs with hyperparameters of these kinds, and raise
    `ProtocolViolation` unless the reported metric values are those that follow from them.
    """
    given = {"lr": 1, "start": {"x": 2.5}, "sign": "minus", "twice": True}
    strange = {"layers": [64, 0.5, "x"], "none": None, "größe": {"a": {"b": False}}}
    run = bench.begin({**given, **strange}, allowed=3)
    for position in range(1, 4):
        run.reported(position)
    run = bench.begin({"lr": 0.25, "twice": False, "sign": "plus", "start": {"x": -1}}, allowed=2)
    run.reported(2)


@case("nan", "reports", "series")
def nan(bench: RunFixture) -> None:
    """Reports a metric that is not a number as NaN and continues training.

    Start a run whose metric is NaN at position 2, and raise `ProtocolViolation` unless it reports this and position 3.
    """
    run = bench.begin({"lr": 0.5, "nan_at": 2}, allowed=3)
    for position in range(1, 4):
        run.reported(position)


@case("waiting", "waiting", "series")
def waiting(bench: RunFixture) -> None:
    """Waits for a decision on the reported position at allowed and beyond, and nowhere else.

    `allowed` is the position up to which a run may train without a decision. Raise `ProtocolViolation` if the client reports more
    before the decision arrives, or does not continue after it.
    """
    run = bench.begin({"lr": 0.5}, allowed=2)
    run.reported(2)
    run.quiet("the report at allowed waits for a decision")
    run.decide("CONTINUE", 2)
    run.reported(3)
    run.quiet("each report beyond allowed waits for its own decision")
    run.decide("CONTINUE", 3, allowed=5)
    run.reported(5)
    run.quiet("a decision moves allowed, and the report there waits again")


@case("late-decision", "waiting", "waiting")
def late_decision(bench: RunFixture) -> None:
    """Keeps waiting after a decision on an earlier position, and never lowers allowed.

    Send a decision on position 1 to a run that waits at 2, which must keep waiting. Then send two decisions on position 2, with
    `allowed` 5 and 1. Raise `ProtocolViolation` unless the run then trains to position 5 without waiting.
    """
    run = bench.begin({"lr": 0.5, "seconds": 0.3}, allowed=2)
    run.reported(2)
    run.decide("CONTINUE", 1)
    run.quiet("the decision was on position 1, and the run waits at 2", 0.9)
    run.decide("CONTINUE", 2, allowed=5)
    run.decide("CONTINUE", 2, allowed=1)
    run.reported(5)


@case("snapshots", "saving", "waiting")
def snapshots(bench: RunFixture) -> None:
    """Saves at the requested positions, right after their reports, with the correct hash and size.

    Start a run that must take snapshots at positions 2 and 4, and raise `ProtocolViolation` if messages are missing, out of order or
    wrong.
    """
    run = bench.begin({"lr": LR}, allowed=5, snapshot_at=[2, 4])
    run.reported(5)
    run.took(2)
    run.took(4)
    found = [word for word in run.heard.order if word.startswith(("report", "snapshot"))]
    expected = ["report 1", "report 2", "snapshot 2", "report 3", "report 4", "snapshot 4", "report 5"]
    if found != expected:
        raise ProtocolViolation(", ".join(expected), ", ".join(found))


@case("until", "until", "snapshots")
def until(bench: RunFixture) -> None:
    """Parks at until, regardless of allowed; CONTINUE there makes it save and end the run.

    `until` is the position at which a run ends; to park is to wait there for a decision. Raise `ProtocolViolation` if the client
    ends or trains before the decision, or does not save and end after it.
    """
    run = bench.begin({"lr": 0.1}, until=3, allowed=FAR)
    run.reported(2)
    run.reported(3, at_until=True)
    run.quiet("the run is parked at its until")
    run.decide("CONTINUE", 3)
    run.saved(run.ended("UNTIL", 3, saved=True))


@case("completes", "until", "until")
def completes(bench: RunFixture) -> None:
    """Saves and ends at until without a decision if completes is set.

    `completes`, a field of the start message, says that the job is complete at `until`, so that no decision follows there. Raise
    `ProtocolViolation` unless the run saves at position 2 and then ends.
    """
    run = bench.begin({"lr": 0.1}, until=2, allowed=FAR, completes=True)
    run.reported(2, at_until=True)
    run.saved(run.ended("UNTIL", 2, saved=True))


@case("amend", "amendments", "until")
def amend(bench: RunFixture) -> None:
    """Moves until if the amendment is in time, refuses it if it is late, and still waits for the decision.

    An amendment is a message that changes `until` or the snapshot positions of a run that has started; it is late if it names a
    position that the run has passed. Raise `ProtocolViolation` unless the client accepts the amendments in time, refuses the late
    ones, waits for a decision after an amendment, and trains to the new `until`.
    """
    run = bench.begin({"lr": 0.5}, until=3, allowed=FAR)
    run.reported(3, at_until=True)
    run.amend("too late", until=2)
    run.answered("too late", accepted=False, position=3)
    run.amend("in time", until=5)
    run.answered("in time", accepted=True, position=3)
    run.quiet("an amendment alone does not let a run go on that nobody parked")
    run.decide("CONTINUE", 3)
    run.reported(4)
    run.reported(5, at_until=True)
    run.amend("save", snapshot_at=(5,))
    run.answered("save", accepted=True, position=5)
    run.took(5)
    run.amend("both", until=9, snapshot_at=(4, 8))
    run.answered("both", accepted=False, position=5)
    run.decide("CONTINUE", 5)
    run.ended("UNTIL", 5, saved=True)


@case("amend-running", "amendments", "amend")
def amend_running(bench: RunFixture) -> None:
    """Accepts amendments while it trains, not only while it waits.

    Send an amendment during a slow iteration, and raise `ProtocolViolation` unless it is accepted within two iterations and followed.
    """
    run = bench.begin({"lr": 0.5, "seconds": 0.4}, until=FAR, allowed=3)
    run.reported(1)
    run.amend("far", until=6, snapshot_at=(4,))
    stood = run.answered("far", accepted=True)
    if not 1 <= stood <= 3:
        raise ProtocolViolation("an answer within an iteration or two of position 1", f"an answer at position {stood}")
    run.reported(3)
    run.decide("CONTINUE", 3, allowed=FAR)
    run.reported(6, at_until=True)
    run.took(4)
    if run.heard.order.index("snapshot 4") > run.heard.order.index("report 5"):
        raise ProtocolViolation("the snapshot of position 4 before report 5", run.heard.shown())


@case("park", "until", "amend")
def park(bench: RunFixture) -> None:
    """Continues by itself when until is moved after a PARK decision.

    PARK orders a run at its `until` to wait until this position is moved. Raise `ProtocolViolation` if the run trains before, does
    not train up to the new `until`, or does not wait there.
    """
    run = bench.begin({"lr": 0.5}, until=2, allowed=FAR)
    run.reported(2, at_until=True)
    run.decide("PARK", 2)
    run.quiet("the run was told to park")
    run.amend("on", until=3)
    run.answered("on", accepted=True, position=2)
    run.reported(3, at_until=True)
    run.quiet("the run is parked at its new until")
    run.decide("CONTINUE", 3)
    run.ended("UNTIL", 3, saved=True)


@case("terminate", "suspend-and-terminate", "until")
def terminate(bench: RunFixture) -> None:
    """Ends without a snapshot when it is terminated, while waiting and while training.

    Raise `ProtocolViolation` if the client does not end its run at the next boundary after a TERMINATE decision, or saves.
    """
    run = bench.begin({"lr": 0.5}, allowed=2)
    run.reported(2)
    run.decide("TERMINATE", 2)
    run.ended("TERMINATED", 2, saved=False)
    run = bench.begin({"lr": 0.5, "seconds": 0.4}, allowed=3)
    run.reported(1)
    run.decide("TERMINATE", 1)
    soon(run, run.ended("TERMINATED", None, saved=False).position)


@case("finished", "the-end", "until")
def finished(bench: RunFixture) -> None:
    """Ends its job by itself at the position where nothing is left to train.

    The training task of the test ends at position 3. Raise `ProtocolViolation` unless the client says `finished` in its report or at
    the end of its run, or exits with code 0, after three reports.
    """
    run = bench.begin({"lr": 0.5, "last": 3}, allowed=FAR)
    run.reported(2)
    report = run.reported(3)
    if report.finished:
        if not report.at_until:
            raise ProtocolViolation("at_until in a report that says finished", "finished alone")
        run.decide("CONTINUE", 3)
        run.ended("UNTIL", 3, saved=True)
        return
    run.until(lambda: run.heard.closed or run.heard.ended is not None, "ended with finished, or the end of the process")
    if (ended := run.heard.ended) is not None and not (ended.finished and ended.position == 3):
        raise ProtocolViolation("ended with finished at position 3", run.seen())
    run.tell(exit=wire.ApplicationExit(reason="the run is over"))
    run.exits(0, "when there is nothing more to train")
    if len(run.heard.reports()) > 3:
        raise ProtocolViolation("three reports", run.seen())


@case("unfamiliar", "versions", "waiting")
def unfamiliar(bench: RunFixture) -> None:
    """Ignores messages and fields that it does not know.

    Send unknown messages and fields before and during a run, and raise `ProtocolViolation` unless it trains as usual.
    """

    def strange(run: ProcessRun) -> None:
        unknown = wire.AttachResponse()
        unknown.MergeFromString(_UNKNOWN)
        run.place.tell(unknown)

    def stranger(message: wire.ApplicationStart) -> None:
        message.MergeFromString(_UNKNOWN)
        message.start.MergeFromString(_UNKNOWN)

    run = bench.begin({"lr": 0.5}, allowed=1, change=stranger, before=strange)
    run.reported(1)
    strange(run)
    decide = wire.AttachResponse()
    decide.decide.decision, decide.decide.position = resource_manager_pb2.DECISION_CONTINUE, 1
    decide.decide.MergeFromString(_UNKNOWN)
    decide.MergeFromString(_UNKNOWN)
    run.place.tell(decide)
    run.reported(2)


_UNKNOWN: Final = b"\xc0\x3e\x01\xca\x3e\x03abc"
"""Encoded fields 1000 and 1001, which no message has."""


@case("heartbeats", "signs-of-life", "waiting")
def heartbeats(bench: RunFixture) -> None:
    """Sends a message each second, during a long iteration and while it waits.

    A heartbeat is a message too. Delays are tolerated: raise `ProtocolViolation` if more than 3 seconds (times the fixture's
    `stretch`) pass between two messages.
    """
    run = bench.begin({"lr": 0.5, "seconds": 4.0}, allowed=1)
    run.reported(1)
    run.quiet("the run waits", seconds=4.0)
    silence = max(run.heard.silence, time.monotonic() - run.heard.heard_at)
    if silence > _SILENCE_SECONDS * bench.stretch:
        raise ProtocolViolation("a message each second, if only a heartbeat", f"{silence:.1f} s of silence")


def soon(run: ProcessRun, position: int) -> None:
    """Raise `ProtocolViolation` unless a run ended within two iterations after an order to end that was sent at position 1.

    Args:
        run: The run.
        position: Position at which the run ended; 1 to 3 are accepted.
    """
    if not 1 <= position <= 3:
        raise ProtocolViolation("the end at the next boundary, position 2", f"the end at position {position}")


def failure(run: ProcessRun, *, user: bool) -> str:
    """Wait until the run reports its end as a failure (message `ended`), and return the error message.

    Args:
        run: The run.
        user: True: the failure must be one of user code (FAILED). False: it must be one of the infrastructure (LOST).

    Raises:
        ProtocolViolation: The run ended differently or without an error message, or did not end within the fixture's `patience`.
    """
    reason = common_pb2.RUN_END_REASON_FAILED if user else common_pb2.RUN_END_REASON_LOST
    kind = common_pb2.FAILURE_CLASS_USER_CODE if user else common_pb2.FAILURE_CLASS_INFRASTRUCTURE
    expected = f"ended {'FAILED, of class USER_CODE,' if user else 'LOST, of class INFRASTRUCTURE,'} with a message"
    run.until(lambda: run.heard.ended is not None, expected)
    ended = run.heard.ended
    assert ended is not None
    if (ended.reason, ended.failure) != (reason, kind) or not ended.message:
        raise ProtocolViolation(expected, f"{run.seen()} (class {common_pb2.FailureClass.Name(ended.failure)})")
    return ended.message


def failed(bench: RunFixture, run: ProcessRun, reason: str) -> None:
    """Wait for the exit of a process that has reported the failure of its run, and raise `ProtocolViolation` for exit code 0.

    If `client.trainer` is set, any code is allowed, because such a client makes several runs in one process.

    Args:
        bench: The fixture of the case.
        run: The run.
        reason: Reason of the end, such as FAILED, for the error message.
    """
    run.tell(exit=wire.ApplicationExit(reason="the run is over"))
    # A process that makes several runs does not exit because one of them failed.
    if run.exits(None, f"after ended {reason}") == 0 and not bench.client.trainer:
        raise ProtocolViolation(f"an exit code other than 0 after ended {reason}", "exit code 0")


__all__ = ["CASES", "FAR", "LR", "Case", "case", "failed", "failure", "soon"]
