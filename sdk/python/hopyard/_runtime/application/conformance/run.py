"""Runs of the client under test, with the actions and checks of which conformance cases consist."""

from __future__ import annotations

import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime.application.conformance import task
from hopyard._runtime.application.conformance.agent import ProcessRecord, SimulatedAgent
from hopyard._runtime.application.conformance.process import ClientUnderTest, ProcessUnderTest
from hopyard._runtime.application.conformance.transcript import ProtocolViolation, ending, same
from hopyard._runtime.application.state import named
from hopyard._runtime.snapshot_file import SnapshotFileError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

QUIET_SECONDS: Final = 0.6
"""Default seconds for which a case checks that no message arrives."""
TIDY_SECONDS: Final = 10.0
"""Maximum seconds that a process may take to exit after its last message, as on a node."""
LEASE_SECONDS: Final = 60.0

Reason = common_pb2.RunEndReason


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that a run took.

    Attributes:
        snapshot: The snapshot as the client announced it.
        file: Path of the saved file or folder.
        x: Metric value of the test's training task at the snapshot's position, from which a resumed run continues.
    """

    snapshot: common_pb2.Snapshot
    file: Path
    x: float


@dataclass
class RunFixture:
    """The test environment of one conformance case: a simulated agent, temporary folders, and the runs that the case starts.

    Attributes:
        client: The client to test.
        patience: Maximum seconds that the client may take for each expected step.
        stretch: Factor for the intervals that a case specifies, such as leases and durations of iterations; more than 1 on a slow
            or busy host. `patience` is not multiplied.
        folder: Temporary folder of the case.
        runs: The runs started so far.
    """

    client: ClientUnderTest
    patience: float
    stretch: float = 1.0
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="hopyard-conformance-")))
    runs: list[ProcessRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the simulated agent."""
        (self.folder / "snapshots").mkdir()
        self.agent = SimulatedAgent(self.folder / "snapshots")

    def begin(
        self,
        hyperparameters: Mapping[str, Any],
        source: Saved | None = None,
        *,
        lease: float = LEASE_SECONDS,
        job: str = "1",
        known: bool = True,
        change: Callable[[wire.ApplicationStart], None] | None = None,
        before: Callable[[ProcessRun], None] | None = None,
        **fields: Any,
    ) -> ProcessRun:
        """Start a process of the client, queue a run for it to train, and return the run without waiting for the process.

        Args:
            hyperparameters: Hyperparameters of the job.
            source: Snapshot to resume from; None: from scratch.
            lease: Lease in seconds, multiplied by `stretch` like all intervals of a run.
            job: Id of the job.
            known: Whether the agent knows the token of the process; False: it refuses the process.
            change: Modifies the start message before it is sent.
            before: Called before the start message is sent, for example to send other messages.
            fields: Further fields of the message StartRun, such as `allowed` and `until`.

        Raises:
            StartError: The process cannot be started.
        """
        hyperparameters = dict(hyperparameters)
        if "seconds" in hyperparameters:
            hyperparameters["seconds"] *= self.stretch
        if "iteration_timeout" in fields:
            fields["iteration_timeout"] *= self.stretch
        number = len(self.runs) + 1
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        log = self.folder / f"log-{number}"
        token, place = secrets.token_urlsafe(32), ProcessRecord()
        if known:
            self.agent.places[token] = place
        run = ProcessRun(place, hyperparameters, self.patience, source, self.stretch)
        self.runs.append(run)
        start = resource_manager_pb2.StartRun(
            slot="conformance/0",
            hyperparameters=hyperparameters_to_proto(hyperparameters),
            seed=7,
            mode=common_pb2.RUN_MODE_TRAIN,
            world=1,
            **fields,
        )
        if self.client.trainer:
            start.program.trainer = self.client.trainer
        else:
            start.program.command.arguments.extend(self.client.command)
        if source is not None:
            start.snapshot.CopyFrom(source.snapshot)
        message = wire.ApplicationStart(
            run=common_pb2.RunRef(experiment="conformance", job=job, attempt=number),
            start=start,
            code_folder=str(self.client.folder),
            working_folder=str(self.client.folder),
            snapshot_file="" if source is None else str(source.file),
            snapshot_folder=str(self.agent.snapshots),
            scratch_folder=str(scratch),
            lease_seconds=lease * self.stretch,
            log_file=str(log),
        )
        if change is not None:
            change(message)
        log.touch()
        run.process = ProcessUnderTest(self.client, hyperparameters, self.agent.address, token, log)
        if before is not None:
            before(run)
        run.tell(start=message)
        return run

    def close(self) -> None:
        """Kill all processes of the case, stop the agent and delete the temporary folder."""
        for run in self.runs:
            if run.process is not None:
                run.process.end_left()
        self.agent.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class ProcessRun:
    """A client process and the run that it trains. `RunFixture.begin` creates it.

    The methods send messages of the agent to the process or wait for expected messages from it. They raise
    `ProtocolViolation`, with what was seen, if an expected message does not arrive or is wrong.

    Args:
        place: The simulated agent's state of the process.
        hyperparameters: Hyperparameters of the job.
        patience: Maximum seconds that the client may take for each expected step.
        source: Snapshot from which the run resumes; None: from scratch.
        stretch: Factor for all intervals.
    """

    def __init__(
        self,
        place: ProcessRecord,
        hyperparameters: dict[str, Any],
        patience: float,
        source: Saved | None,
        stretch: float,
    ) -> None:
        self.place = place
        self.heard = place.conversation
        self.hyperparameters = hyperparameters
        self.base = 0 if source is None else source.snapshot.position
        self._x = None if source is None else source.x
        self._patience = patience
        self.stretch = stretch
        self.process: ProcessUnderTest | None = None
        self.restated = 0
        """Number of its reports that restate a position instead of reaching a new one."""

    # Messages of the agent.

    def tell(self, **message: Any) -> None:
        """Send a message of the agent to the process; the keyword is a field of AttachResponse."""
        self.place.tell(wire.AttachResponse(**message))

    def decide(self, decision: str, position: int, allowed: int = 0) -> None:
        """Send a decision on the report of a position.

        Args:
            decision: CONTINUE, SUSPEND, TERMINATE or PARK.
            position: The reported position.
            allowed: New position up to which the run may train without a decision; 0: unchanged.
        """
        kind = resource_manager_pb2.Decision.Value(f"DECISION_{decision}")
        self.tell(decide=resource_manager_pb2.DecideRun(decision=kind, position=position, allowed=allowed))

    def amend(self, ticket: str, *, until: int = 0, snapshot_at: tuple[int, ...] = ()) -> None:
        """Send an amendment: a message that changes a started run.

        Args:
            ticket: Id of the amendment, which the reply repeats.
            until: New position at which the run ends; 0: unchanged.
            snapshot_at: Further positions at which the run must save.
        """
        self.tell(amend=resource_manager_pb2.AmendRun(ticket=ticket, until=until, snapshot_at=snapshot_at))

    # Expectations.

    def value(self, position: int) -> float:
        """Return the metric value that the training task of the conformance test has at a position of this run."""
        if position == self.base and self._x is not None:
            return self._x
        return task.value(self.hyperparameters, position, base=self.base, x=self._x)

    def reported(self, position: int, *, at_until: bool = False) -> common_pb2.Report:
        """Wait for the next report, check it, and return it.

        Args:
            position: Position that the report must have, with the exact metric value of the test's training task.
            at_until: Whether the report must say that the run has reached its `until`; not checked if it says `finished`.

        Raises:
            ProtocolViolation: The report does not arrive or differs.
        """
        index = position - self.base - 1 + self.restated
        expected = f"report {position} with {task.METRIC} {self.value(position)!r}"
        self.until(lambda: len(self.heard.reports()) > index, expected)
        report = self.heard.reports()[index]
        found = dict(report.metrics)
        right = report.position == position and set(found) == {task.METRIC}
        if not (right and same(found[task.METRIC], self.value(position))):
            raise ProtocolViolation(expected, f"report {report.position} with {_shown(found)}")
        if not 0 <= report.seconds < math.inf:
            raise ProtocolViolation("seconds that are 0 or more", f"report {position} with {report.seconds} seconds")
        if report.at_until != at_until and not report.finished:
            raise ProtocolViolation(f"at_until {at_until} in report {position}", f"{report.at_until}")
        return report

    def quiet(self, why: str, seconds: float = QUIET_SECONDS) -> None:
        """Raise `ProtocolViolation` if a message other than a heartbeat arrives or the gRPC stream ends within some time.

        Args:
            why: Why no message may arrive, for the error message.
            seconds: The time in seconds, multiplied by `stretch`.
        """
        seconds *= self.stretch
        count = len(self.heard.said)
        if self.heard.wait(lambda: len(self.heard.said) > count or self.heard.closed, seconds):
            raise ProtocolViolation(
                f"nothing for {seconds:g} s: {why}", self.heard.shown(count) or "the end of the stream"
            )

    def answered(self, ticket: str, *, accepted: bool, position: int | None = None) -> int:
        """Wait for the reply to an amendment, check it, and return the position that it names.

        Args:
            ticket: Id of the amendment.
            accepted: Whether the client must accept the amendment.
            position: Position that the reply must name; None: any.

        Raises:
            ProtocolViolation: The reply does not arrive or differs.
        """
        expected = f"amended {ticket}, {'accepted' if accepted else 'not accepted'}"
        expected += "" if position is None else f", position {position}"
        self.until(lambda: self.heard.amended(ticket) is not None, expected)
        amended = self.heard.amended(ticket)
        assert amended is not None
        if amended.accepted != accepted or position not in (None, amended.position):
            words = "accepted" if amended.accepted else "not accepted"
            raise ProtocolViolation(expected, f"amended {ticket}, {words}, position {amended.position}")
        return amended.position

    def took(self, position: int) -> Saved:
        """Wait for the announcement of a snapshot of a position, check the saved file or folder, and return the snapshot.

        Raises:
            ProtocolViolation: The announcement does not arrive within `patience`; or the saved file or folder is missing, or its hash
                or size is not the announced one.
        """
        expected = f"snapshot_taken at position {position}"
        self.until(lambda: any(s.position == position for s in self.heard.snapshots()), expected)
        return self.checked(next(s for s in self.heard.snapshots() if s.position == position))

    def checked(self, snapshot: common_pb2.Snapshot) -> Saved:
        """Check that the saved file or folder of an announced snapshot exists and has the announced hash and size, and return it.

        Raises:
            ProtocolViolation: The saved file or folder is missing or differs, or the announcement names no snapshot
                provider, such as "framework".
        """
        file = self.place.start.snapshot_folder if self.place.start is not None else ""
        path = Path(file) / snapshot.sha256
        try:
            info = named(path)
        except (SnapshotFileError, OSError) as error:
            raise ProtocolViolation(
                f"a file or folder {snapshot.sha256 or '(no hash)'} in snapshot_folder", str(error)
            ) from None
        if info.sha256 != snapshot.sha256:
            raise ProtocolViolation(
                f"a snapshot with the hash {snapshot.sha256} that it is named by", f"the hash {info.sha256}"
            )
        if info.size != snapshot.size_bytes:
            raise ProtocolViolation(
                f"size_bytes {info.size} of the snapshot of position {snapshot.position}", str(snapshot.size_bytes)
            )
        if not snapshot.provider:
            raise ProtocolViolation("a snapshot with a provider, such as framework", "none")
        return Saved(snapshot, path, self.value(snapshot.position))

    def ended(self, reason: str, position: int | None, *, saved: bool | None) -> resource_manager_pb2.RunEnded:
        """Wait for the end of the run, which must be the last message, and for exit code 0 of the process; return the message.

        Args:
            reason: Expected reason, such as UNTIL.
            position: Expected position; None: any.
            saved: Whether the message must name a snapshot that this run took at the same position; None: either is allowed.

        Raises:
            ProtocolViolation: The message or the exit does not occur in time or differs.
        """
        at = "" if position is None else f" at position {position}"
        state = " with its snapshot" if saved else ""
        expected = f"ended {reason}{at}{state}"
        self.until(lambda: self.heard.ended is not None, expected)
        ended = self.heard.ended
        assert ended is not None
        right = ended.reason == Reason.Value(f"RUN_END_REASON_{reason}") and position in (None, ended.position)
        if not right or saved not in (None, ended.HasField("snapshot")):
            raise ProtocolViolation(expected, f"ended {ending(ended)}")
        if ended.HasField("snapshot") and ended.snapshot.position != ended.position:
            raise ProtocolViolation(expected, f"ended {ending(ended)}")
        if ended.HasField("snapshot") and ended.snapshot not in self.heard.snapshots():
            raise ProtocolViolation(
                "a snapshot that this run has taken, and told of by snapshot_taken, at its end", self.heard.shown()
            )
        self.tell(exit=wire.ApplicationExit(reason="the run is over"))
        self.exits(0, f"within {TIDY_SECONDS:g} s of ended", seconds=TIDY_SECONDS)
        if not self.heard.order[-1].startswith("ended"):
            raise ProtocolViolation("ended as the last word", self.heard.shown())
        return ended

    def saved(self, ended: resource_manager_pb2.RunEnded) -> Saved:
        """Return the snapshot that `ended`, the message about the end of a run, names, after checking the saved file or folder.

        Raises:
            ProtocolViolation: The message names no snapshot; or the saved file or folder is missing, or its hash or size is not the
                announced one.
        """
        return self.checked(ended.snapshot)

    def exits(self, code: int | None, when: str, seconds: float | None = None) -> int:
        """Wait for the exit of the process, and return its exit code.

        Args:
            code: Required exit code; None: any.
            when: Description of the situation, for the error message.
            seconds: Time limit, multiplied by `stretch`; None: `patience` of this run.

        Raises:
            ProtocolViolation: The process does not exit in time or exits with another code.
        """
        assert self.process is not None
        limit = seconds * self.stretch if seconds is not None else self._patience
        found = self.process.wait(limit)
        expected = f"exit code {code}" if code is not None else "the end of the process"
        if found is None:
            raise ProtocolViolation(f"{expected} {when}", f"it lives on after {limit:g} s")
        if code is not None and found != code:
            raise ProtocolViolation(f"{expected} {when}", f"exit code {found}")
        if self.heard.attached:  # The last messages may still be in transit.
            self.heard.wait(lambda: self.heard.closed, TIDY_SECONDS)
        return found

    def until(self, condition: Callable[[], bool], expected: str) -> None:
        """Wait until `condition` is true.

        Args:
            condition: Evaluated after each message.
            expected: Description of the condition, for the error message.

        Raises:
            ProtocolViolation: The process or its gRPC stream ends first, `patience` of this run is exceeded, or a snapshot is
                announced at another position than that of the last report.
        """
        over = time.monotonic() + self._patience
        while not self.heard.wait(lambda: condition() or self.heard.misplaced is not None, min(0.2, self._patience)):
            ended = self.process is not None and self.process.exit_code is not None
            if ended:
                # The last messages may still be in transit.
                if self.heard.attached:
                    self.heard.wait(lambda: condition() or self.heard.closed, TIDY_SECONDS)
                if condition():
                    return
            if ended or (self.heard.closed and not condition()) or time.monotonic() > over:
                raise ProtocolViolation(expected, self.seen())
        if (misplaced := self.heard.misplaced) is not None:
            raise ProtocolViolation(
                f"snapshot_taken at position {misplaced[1]}, where it stands", f"one at position {misplaced[0]}"
            )

    def seen(self) -> str:
        """Return a text with the messages that arrived and the exit code of the process, for error messages."""
        assert self.process is not None
        code = self.process.exit_code
        how = f"and it ended with exit code {code}" if code is not None else f"and no more within {self._patience:g} s"
        if not self.heard.attached:
            return f"it did not attach, {how}"
        return f"{self.heard.shown() or 'nothing'}, {how}"


def _shown(metrics: Mapping[str, float]) -> str:
    return " and ".join(f"{name} {value!r}" for name, value in sorted(metrics.items())) or "no metric"
