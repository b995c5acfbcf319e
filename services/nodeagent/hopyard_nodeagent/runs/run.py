"""One run on this node: from its start command to the last acknowledged message."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from hopyard._net.rpc.values import run_key_to_proto
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
"""Maximum number of reports in one message, and of its bytes, so that queued reports are sent in few messages of bounded size."""


def merge_reports(last: resource_manager_pb2.RunMessage, new: resource_manager_pb2.RunMessage) -> bool:
    """Merge reports into an unsent message of reports; return False if they must stay separate."""
    if not (last.HasField("reports") and new.HasField("reports")):
        return False
    if len(last.reports.reports) + len(new.reports.reports) > _MOST_REPORTS:
        return False
    if last.ByteSize() + new.ByteSize() > _MOST_BYTES:
        return False
    last.reports.reports.extend(new.reports.reports)
    return True


def snapshot_of(message: resource_manager_pb2.RunMessage) -> common_pb2.Snapshot | None:
    """Return the snapshot that a message announces, if any."""
    if message.HasField("snapshot_taken"):
        return message.snapshot_taken.snapshot
    if message.HasField("ended") and message.ended.HasField("snapshot"):
        return message.ended.snapshot
    return None


_FURTHEST: Final = 2**31 - 1

_REASONS: Final = frozenset(common_pb2.RunEndReason.values()) - {common_pb2.RUN_END_REASON_UNSPECIFIED}


def _refused(report: common_pb2.Report, last: int) -> str:
    """Return why a report after position `last` is invalid; empty: it is valid. Hopyard's own runner sends only valid reports."""
    at = f"report at position {report.position}:"
    if not last < report.position <= _FURTHEST:
        return f"{at} allowed: {last + 1} to {_FURTHEST}; each report's is above the last one's"
    if len(report.metrics) > MAX_METRICS:
        return f"{at} found {len(report.metrics)} metrics; allowed: {MAX_METRICS}"
    longest = max((len(name) for name in report.metrics), default=0)
    if longest > MAX_NAME:
        return f"{at} found a metric name of {longest} characters; allowed: {MAX_NAME}"
    if not 0 <= report.seconds < math.inf or report.examples < 0:
        return f"{at} found {report.seconds} seconds and {report.examples} examples; allowed: 0 or more"
    return ""


def _first_refused(reports: Sequence[common_pb2.Report], last: int) -> str:
    """Return why the first invalid one of these reports is invalid; empty: all are valid."""
    positions = [last, *(report.position for report in reports)]
    return next(filter(None, map(_refused, reports, positions)), "")


class NodeRun:
    """The state of a run: its channel and, while it exists, its process."""

    def __init__(
        self, key: RunKey, start: resource_manager_pb2.StartRun, node: str, *, clock: Callable[[], float]
    ) -> None:
        """Open the channel of a run; `clock` returns seconds since the epoch."""
        self.key = key
        self.start = start
        self.outgoing: Outgoing[resource_manager_pb2.RunMessage] = Outgoing(merge_reports)
        self.incoming = Incoming()
        self.over = False
        """Whether `ended` was sent: the slot is free, and only `snapshot_stored` may follow."""
        self.training = False
        """Whether its process has announced that it trains."""
        self.reported = False
        """Whether its process has sent a report."""
        self.position = start.snapshot.position if start.HasField("snapshot") else 0
        self.task: asyncio.Task[None] | None = None
        self.killed: resource_manager_pb2.RunEnded | None = None
        """The end to report if its task is cancelled."""
        self.fetched = Fetched()
        """What was downloaded to start it."""
        self.place: common_pb2.GangPlace | None = None
        """The meeting place of the gang, if this is rank 0 and its process has opened it."""
        self._node = node
        self._clock = clock
        self._runner: Runner | None = None
        self._commands: list[wire.AttachResponse] = []
        self._last_saved = ""
        """Hash of the final snapshot until `ended` announces it."""

    def speaks_of(self, sha256: str) -> bool:
        """Return whether this run took a snapshot with this hash and the scheduler has not acknowledged it."""
        told = (snapshot_of(message) for message in self.outgoing)
        return self._last_saved == sha256 or any(snapshot.sha256 == sha256 for snapshot in told if snapshot is not None)

    def say(self, message: resource_manager_pb2.RunMessage) -> None:
        """Queue a message of this run for the scheduler."""
        self.outgoing.push(message, self._clock())

    def numbered(self, message: Numbered[resource_manager_pb2.RunMessage]) -> resource_manager_pb2.RunMessage:
        """Return a message as sent over the wire."""
        message.body.run.CopyFrom(run_key_to_proto(self.key))
        message.body.sequence = message.sequence
        message.body.at = message.at
        return message.body

    def tell(self, command: wire.AttachResponse) -> None:
        """Pass a command to the process; queue it until the process exists."""
        if self._runner is None:
            self._commands.append(command)
        else:
            self._runner.tell(command)

    async def make(
        self, runner: Runner, start: wire.ApplicationStart, heard: Callable[[wire.AttachRequest], None]
    ) -> resource_manager_pb2.RunEnded:
        """Make the run on an attached runner; `heard` receives the messages of its process.

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
        """Merge amendments that arrived before the process exists into its start, because it may train before it receives them.

        Commands are excluded, because they have been started already; so are gangs, whose ranks follow rank 0.
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
        """Kill the run; `ended` is reported as its end."""
        if not self.over and self.killed is None and self.task is not None:
            self.killed = ended
            self.task.cancel()

    def relay(self, request: wire.AttachRequest) -> common_pb2.Snapshot | None:
        """Relay a message of the process to the scheduler; return the snapshot that it announces, if any.

        An invalid message ends the run as a failure of the program, with the reason.
        """
        if self.over or self.killed is not None:
            return None
        message = resource_manager_pb2.RunMessage()
        snapshot: common_pb2.Snapshot | None = None
        match request.WhichOneof("message"):
            case "started" if self.training:
                return None  # The agent has announced it already for a script.
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
        """Return the end that a process reports; an invalid one is replaced by a failure of the program."""
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
        """Send the end of the run."""
        self.over = True
        self._last_saved = ""
        self.say(resource_manager_pb2.RunMessage(ended=ended))

    def located(self, snapshot: common_pb2.Snapshot) -> common_pb2.Snapshot:
        """Return a snapshot of this run with this node as its location.

        Raises:
            InvalidInput: Its hash is invalid.
        """
        check_hash(snapshot.sha256)
        found = common_pb2.Snapshot()
        found.CopyFrom(snapshot)
        found.job = self.key.job
        del found.nodes[:]
        found.nodes.append(self._node)
        found.stored = False
        return found

    def lost(self, message: str, *, snapshot_missing: bool = False) -> resource_manager_pb2.RunEnded:
        """Return an end caused by the infrastructure: the job resumes from its last snapshot, or an older one if that is missing."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_LOST,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
            message=message,
            snapshot_missing=snapshot_missing,
        )

    def failed(self, message: str, *, unable: bool = False) -> resource_manager_pb2.RunEnded:
        """Return an end caused by the experiment's program; `unable`: any run of the experiment would end so here."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_FAILED,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_USER_CODE,
            message=message,
            unable=unable,
        )

    def terminated(self, message: str) -> resource_manager_pb2.RunEnded:
        """Return an end that was ordered."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_TERMINATED, position=self.position, message=message
        )
