"""One run on this node, from its start command until its last message is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hopyard._common.bounded_json import MAX_COUNT
from hopyard._net.rpc.values import MAX_SECONDS, run_key_to_proto
from hopyard._runtime.runner import converters
from hopyard._runtime.runner.control import RunControl
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import RunKey
from hopyard.trainer.validation import MAX_METRICS, MAX_NAME
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.channel import Incoming, Numbered, Outgoing
from hopyard_nodeagent.runs.launch_spec import is_command
from hopyard_nodeagent.runs.training_process import Runner
from hopyard_nodeagent.snapshots.transfers import Fetched, check_hash

_MOST_REPORTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Limits of a message of merged reports: its number of reports and its size in bytes."""


def merge_reports(last: resource_manager_pb2.RunMessage, new: resource_manager_pb2.RunMessage) -> bool:
    """Add the reports of the message `new` to the message `last`, which has not been sent yet.

    Returns:
        True if they were added. False, without a change, if one of the messages contains no reports, or the merged message would exceed
        `_MOST_REPORTS` reports or `_MOST_BYTES` bytes.
    """
    if not (last.HasField("reports") and new.HasField("reports")):
        return False
    if len(last.reports.reports) + len(new.reports.reports) > _MOST_REPORTS:
        return False
    if last.ByteSize() + new.ByteSize() > _MOST_BYTES:
        return False
    last.reports.reports.extend(new.reports.reports)
    return True


def snapshot_of(message: resource_manager_pb2.RunMessage) -> common_pb2.Snapshot | None:
    """Return the snapshot that a message of a run announces; None: it announces none."""
    if message.HasField("snapshot_taken"):
        return message.snapshot_taken.snapshot
    if message.HasField("ended") and message.ended.HasField("snapshot"):
        return message.ended.snapshot
    return None


_FURTHEST: Final = 2**31 - 1

_REASONS: Final = frozenset(common_pb2.RunEndReason.values()) - {common_pb2.RUN_END_REASON_UNSPECIFIED}


def _refused(report: common_pb2.Report, last: int) -> str:
    """Return why a report is invalid; empty: it is valid.

    A report is invalid if its position is not after the position before, or too large, if it has too many metrics or a metric with too
    long a name, or if its seconds or its number of examples is negative or too large.

    Args:
        report: The report.
        last: Position of the report before; -1: there is none.
    """
    at = f"report at position {report.position}:"
    if not last < report.position <= _FURTHEST:
        return f"{at} allowed: {last + 1} to {_FURTHEST}; each report's is above the last one's"
    if len(report.metrics) > MAX_METRICS:
        return f"{at} found {len(report.metrics)} metrics; allowed: {MAX_METRICS}"
    longest = max((len(name) for name in report.metrics), default=0)
    if longest > MAX_NAME:
        return f"{at} found a metric name of {longest} characters; allowed: {MAX_NAME}"
    if not (0 <= report.seconds <= MAX_SECONDS and 0 <= report.examples <= MAX_COUNT):
        found = f"{report.seconds} seconds and {report.examples} examples"
        return f"{at} found {found}; allowed: 0 to {MAX_SECONDS:.0f} seconds and 0 to {MAX_COUNT} examples"
    return ""


def _first_refused(reports: Sequence[common_pb2.Report], last: int) -> str:
    """Return why the first invalid report of a list is invalid, by the rules of `_refused`; empty: all are valid.

    `last` is the position of the report before the list; -1: there is none.
    """
    positions = [last, *(report.position for report in reports)]
    return next(filter(None, map(_refused, reports, positions)), "")


class NodeRun:
    """A run on this node: its channel to the scheduler and, while it executes, its process.

    A new instance has not been executed yet.

    Args:
        key: Identifies the run.
        start: The start command.
        node: Id of this node.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self, key: RunKey, start: resource_manager_pb2.StartRun, node: str, *, clock: Callable[[], float]
    ) -> None:
        self.key = key
        self.start = start
        self.outgoing: Outgoing[resource_manager_pb2.RunMessage] = Outgoing(merge_reports)
        self.incoming = Incoming()
        self.over = False
        """Whether the end of the run was sent. Then its slot is free, and only messages about stored snapshots may follow."""
        self.training = False
        """Whether its process has announced that it trains."""
        self.reported = False
        """Whether its process has sent a report."""
        self.commanded = False
        """Whether a command was sent to its process."""
        self.position = start.snapshot.position if start.HasField("snapshot") else 0
        self.task: asyncio.Task[None] | None = None
        self.killed: resource_manager_pb2.RunEnded | None = None
        """The end to report when the task is cancelled; set when the run is killed. None: it was not killed."""
        self.fetched = Fetched()
        """How the run's snapshot came to this node."""
        self.arrived = False
        """Whether the run's snapshot has been on this node's disk, so that its process could load it."""
        self.place: common_pb2.GangPlace | None = None
        """The meeting place of the gang, if this is rank 0 and its process has opened it."""
        self._node = node
        self._clock = clock
        self._runner: Runner | None = None
        self._commands: list[wire.AttachResponse] = []
        self._last_saved = ""
        """Hash of the final snapshot, until the end of the run has announced it; empty: none."""

    def announcement_pending(self, sha256: str) -> bool:
        """Return whether this run took a snapshot with this hash, and its announcement is not acknowledged.

        The announcement is the run's message to the scheduler that names the snapshot.
        """
        told = (snapshot_of(message) for message in self.outgoing)
        return self._last_saved == sha256 or any(snapshot.sha256 == sha256 for snapshot in told if snapshot is not None)

    def say(self, message: resource_manager_pb2.RunMessage) -> None:
        """Add a message of this run to its channel to the scheduler."""
        self.outgoing.push(message, self._clock())

    def numbered(self, message: Numbered[resource_manager_pb2.RunMessage]) -> resource_manager_pb2.RunMessage:
        """Return the body of a numbered message after setting its fields `run`, `sequence` and `at`; it is then ready to be sent."""
        message.body.run.CopyFrom(run_key_to_proto(self.key))
        message.body.sequence = message.sequence
        message.body.at = message.at
        return message.body

    def tell(self, command: wire.AttachResponse) -> None:
        """Send a command to the process of the run. If the process does not exist yet, send it when it does."""
        self.commanded |= not command.HasField("snapshot_arrival")
        if self._runner is None:
            self._commands.append(command)
        else:
            self._runner.tell(command)

    async def make(
        self, runner: Runner, start: wire.ApplicationStart, heard: Callable[[wire.AttachRequest], None]
    ) -> resource_manager_pb2.RunEnded:
        """Execute the run on a runner (training process) that is connected to the agent, and return how it ended.

        Args:
            runner: The runner.
            start: The message that starts the run.
            heard: Called with each message of the process.

        Raises:
            RunnerDied: The process ended during the run.
        """
        self._amend(start)
        execution = runner.execute(start, heard)
        self._runner = runner
        # Commands that arrived meanwhile follow the start.
        for command in self._commands:
            runner.tell(command)
        self._commands.clear()
        try:
            ended = self.acceptable(await execution)
        finally:
            self._runner = None
        if ended.HasField("snapshot"):
            self._last_saved = ended.snapshot.sha256
        return ended

    def _amend(self, start: wire.ApplicationStart) -> None:
        """Apply the amendments among the queued commands, which arrived before the process exists, to the start message.

        An amendment changes the positions at which the run ends or takes snapshots; the answer to each is sent to the scheduler. If the
        process received amendments only after its start, it might train past these positions before. Nothing is done for scripts and
        log programs, which have been started already, and for gangs, whose ranks follow the amendments of rank 0.
        """
        if is_command(start.start.program) or start.start.world > 1:
            return
        amendments = [command.amend for command in self._commands if command.HasField("amend")]
        self._commands = [command for command in self._commands if not command.HasField("amend")]
        for amend in amendments:
            answer = RunControl(converters.plan(start)).amend(amend.until, amend.snapshot_at)
            if answer.accepted:
                start.start.snapshot_at.extend(amend.snapshot_at)
                if amend.until:
                    start.start.until, start.start.completes = amend.until, False
            self.relay(converters.amended(amend.ticket, answer))

    def kill(self, ended: resource_manager_pb2.RunEnded) -> None:
        """Kill the run; `ended` is reported as its end. Without effect if the run has ended or is killed already."""
        if not self.over and self.killed is None and self.task is not None:
            self.killed = ended
            self.task.cancel()

    def relay(self, request: wire.AttachRequest) -> common_pb2.Snapshot | None:
        """Convert a message of the process into a message to the scheduler, and add it to the channel.

        An invalid message ends the run as a failure of the user's program, with the reason.

        Returns:
            The snapshot that the message announces; None: it announces none.
        """
        if self.over or self.killed is not None:
            return None
        message = resource_manager_pb2.RunMessage()
        snapshot: common_pb2.Snapshot | None = None
        match request.WhichOneof("message"):
            case "started" if self.training:
                return None  # For a script, the agent has sent `started` already.
            case "started":
                self.training = True
                message.started.CopyFrom(request.started)
                message.started.fetched_bytes = self.fetched.size
                message.started.from_store = self.fetched.from_store
            case "report" | "reports" as kind:
                reports = request.reports.reports if kind == "reports" else (request.report,)
                if refusal := _first_refused(reports, self.position if self.reported else -1):
                    self.kill(self.failed(refusal))
                    return None
                if not reports:
                    return None
                self.position = reports[-1].position
                self.reported = True
                message.reports.reports.extend(reports)
            case "amended":
                message.amended.CopyFrom(request.amended)
            case "snapshot_taken":
                try:
                    snapshot = self.located(request.snapshot_taken.snapshot)
                except InvalidInput as error:
                    self.kill(self.failed(f"snapshot_taken at position {self.position}: {error}"))
                    return None
                message.snapshot_taken.snapshot.CopyFrom(snapshot)
            case "gang_opened":
                self.place = request.gang_opened
                return None
            case _:
                return None
        self.say(message)
        return snapshot

    def acceptable(self, ended: resource_manager_pb2.RunEnded) -> resource_manager_pb2.RunEnded:
        """Return the end that a process reported, if it is valid; otherwise a failure of the user's program with the reason.

        An end is valid if a process may report its reason, its position is in range, and the hash of its snapshot, if any, is valid.
        """
        if ended.reason not in _REASONS or not 0 <= ended.position <= _FURTHEST:
            known = ", ".join(map(common_pb2.RunEndReason.Name, sorted(_REASONS)))
            found = f"reason {ended.reason} and position {ended.position}"
            return self.failed(f"ended: found {found}; allowed: {known}, and positions from 0 to {_FURTHEST}")
        try:
            if ended.HasField("snapshot"):
                check_hash(ended.snapshot.sha256)
        except InvalidInput as error:
            return self.failed(f"ended: snapshot: {error}")
        return ended

    def end(self, ended: resource_manager_pb2.RunEnded) -> None:
        """Add the end of the run to its channel to the scheduler. No other message of its process is relayed any more."""
        self.over = True
        self._last_saved = ""
        self.say(resource_manager_pb2.RunMessage(ended=ended))

    def located(self, snapshot: common_pb2.Snapshot) -> common_pb2.Snapshot:
        """Return a copy of the description of a snapshot that this run took: this job's, present on this node only, not in the store.

        Raises:
            InvalidInput: The hash of the snapshot is invalid.
        """
        check_hash(snapshot.sha256)
        found = common_pb2.Snapshot()
        found.CopyFrom(snapshot)
        found.job = self.key.job
        del found.nodes[:]
        found.nodes.append(self._node)
        found.stored = False
        return found

    def lost(
        self,
        message: str,
        *,
        snapshot_missing: bool = False,
        missing_at: Iterable[str] = (),
        code_missing: bool = False,
    ) -> resource_manager_pb2.RunEnded:
        """Return an end of the run with the reason LOST, which the infrastructure caused: the job resumes from its last snapshot.

        Args:
            message: The cause, for people.
            snapshot_missing: Whether that snapshot does not exist any more; then the job resumes from an older one.
            missing_at: Addresses of the other agents that were asked for the snapshot and do not have an undamaged copy.
            code_missing: Whether no undamaged copy of the code bundle exists.
        """
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_LOST,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
            message=message,
            snapshot_missing=snapshot_missing,
            snapshot_missing_at=missing_at,
            code_missing=code_missing,
        )

    def failed(self, message: str, *, unable: bool = False) -> resource_manager_pb2.RunEnded:
        """Return an end of the run with the reason FAILED, which the user's program caused.

        Args:
            message: The cause, for people.
            unable: Whether any run of the experiment would fail in this way on this node.
        """
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_FAILED,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_USER_CODE,
            message=message,
            unable=unable,
        )

    def terminated(self, message: str) -> resource_manager_pb2.RunEnded:
        """Return an end of the run with the reason TERMINATED, which the scheduler ordered. `message` is for people."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_TERMINATED, position=self.position, message=message
        )
