"""One run on this node: from its start command to the last acknowledged message."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from hopyard._runtime.runner import converters
from hopyard._runtime.runner.control import RunControl
from hopyard.errors import InvalidInput
from hopyard.trainer.validation import MAX_METRICS, MAX_NAME
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.channel import Incoming, Numbered, Outgoing
from hopyard_nodeagent.runs.launch_spec import is_command
from hopyard_nodeagent.runs.run_key import RunKey
from hopyard_nodeagent.runs.training_process import Runner
from hopyard_nodeagent.snapshots.transfers import Fetched, check_hash

_MOST_REPORTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Reports in one message, and their bytes: what waits while the scheduler is away goes out in few messages of bounded size."""


def merge_reports(last: resource_manager_pb2.RunMessage, new: resource_manager_pb2.RunMessage) -> bool:
    """Put reports into a message of reports that still waits; False: these two stay apart."""
    if not (last.HasField("reports") and new.HasField("reports")):
        return False
    if len(last.reports.reports) + len(new.reports.reports) > _MOST_REPORTS:
        return False
    if last.ByteSize() + new.ByteSize() > _MOST_BYTES:
        return False
    last.reports.reports.extend(new.reports.reports)
    return True


def snapshot_of(message: resource_manager_pb2.RunMessage) -> common_pb2.Snapshot | None:
    """The snapshot whose existence a message tells of."""
    if message.HasField("snapshot_taken"):
        return message.snapshot_taken.snapshot
    if message.HasField("ended") and message.ended.HasField("snapshot"):
        return message.ended.snapshot
    return None


_FURTHEST: Final = 2**31 - 1

_REASONS: Final = frozenset(common_pb2.RunEndReason.values()) - {common_pb2.RUN_END_REASON_UNSPECIFIED}


def _refused(report: common_pb2.Report, last: int) -> str:
    """Why a report that follows one at `last` cannot be passed on; Hopyard's own runner sends no such one, other libraries may."""
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
    """Why these reports cannot be passed on; empty: they can."""
    positions = [last, *(report.position for report in reports)]
    return next(filter(None, map(_refused, reports, positions)), "")


class NodeRun:
    """What is known of a run: its channel, and its process while there is one."""

    def __init__(
        self, key: RunKey, start: resource_manager_pb2.StartRun, node: str, *, clock: Callable[[], float]
    ) -> None:
        """Open the channel of a run; `clock` gives seconds since the epoch."""
        self.key = key
        self.start = start
        self.outgoing: Outgoing[resource_manager_pb2.RunMessage] = Outgoing(merge_reports)
        self.incoming = Incoming()
        self.over = False
        """Whether `ended` was said: its machine is free, nothing but snapshot_stored follows."""
        self.training = False
        """Whether its process has said that it trains."""
        self.reported = False
        """Whether its process has reported anything."""
        self.position = start.snapshot.position if start.HasField("snapshot") else 0
        self.task: asyncio.Task[None] | None = None
        self.killed: resource_manager_pb2.RunEnded | None = None
        """How it ends if its task is cancelled."""
        self.fetched = Fetched()
        """What had to be got to start it."""
        self.place: common_pb2.GangPlace | None = None
        """Where the gang meets whose rank 0 this is, once its process has said it."""
        self._node = node
        self._clock = clock
        self._runner: Runner | None = None
        self._commands: list[wire.AttachResponse] = []
        self._last_saved = ""
        """Hash of what its process saved at its end, until `ended` tells of it."""

    def speaks_of(self, sha256: str) -> bool:
        """Whether the scheduler has yet to take over that this run took a snapshot with this hash."""
        told = (snapshot_of(message) for message in self.outgoing)
        return self._last_saved == sha256 or any(snapshot.sha256 == sha256 for snapshot in told if snapshot is not None)

    def say(self, message: resource_manager_pb2.RunMessage) -> None:
        """Send a message of this run to the scheduler."""
        self.outgoing.push(message, self._clock())

    def numbered(self, message: Numbered[resource_manager_pb2.RunMessage]) -> resource_manager_pb2.RunMessage:
        """A message as it goes over the wire."""
        message.body.run.CopyFrom(self.key.to_proto())
        message.body.sequence = message.sequence
        message.body.at = message.at
        return message.body

    def tell(self, command: wire.AttachResponse) -> None:
        """Pass a command on to the process; it waits until there is one."""
        if self._runner is None:
            self._commands.append(command)
        else:
            self._runner.tell(command)

    async def make(
        self, runner: Runner, start: wire.ApplicationStart, heard: Callable[[wire.AttachRequest], None]
    ) -> resource_manager_pb2.RunEnded:
        """Make the run on an attached runner; `heard` gets what its process says.

        Raises:
            RunnerDied: the process ended in the middle of it.
        """
        self._amend(start)
        execution = runner.execute(start, heard)
        self._runner = runner
        # What came for the run meanwhile follows its start.
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
        """Make amendments that came before the process was there a part of what it starts with: it may train faster than it hears.

        Commands are started already, by what they were to do before; and the ranks of a gang hear from rank 0.
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
        """End the run at once; it then says that it `ended` so."""
        if not self.over and self.killed is None and self.task is not None:
            self.killed = ended
            self.task.cancel()

    def relay(self, request: wire.AttachRequest) -> common_pb2.Snapshot | None:
        """Send what the process said to the scheduler; returns the snapshot that it took, if it says so.

        What no scheduler could take ends the run as the program's failure, with the reason.
        """
        if self.over or self.killed is not None:
            return None
        message = resource_manager_pb2.RunMessage()
        snapshot: common_pb2.Snapshot | None = None
        match request.WhichOneof("message"):
            case "started" if self.training:
                return None  # a script's agent has said it already
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
        """The end that a process says; one that no scheduler could take is the program's failure."""
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
        """Say the last word of the run."""
        self.over = True
        self._last_saved = ""
        self.say(resource_manager_pb2.RunMessage(ended=ended))

    def located(self, snapshot: common_pb2.Snapshot) -> common_pb2.Snapshot:
        """A snapshot of this run, with this node as its place.

        Raises:
            InvalidInput: its hash is none.
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
        """An end that is nobody's code's fault: the job goes back to its last snapshot, or, if that is missing, another."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_LOST,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
            message=message,
            snapshot_missing=snapshot_missing,
        )

    def failed(self, message: str, *, unable: bool = False) -> resource_manager_pb2.RunEnded:
        """An end that is the experiment's fault; `unable`: any of its runs would end so here."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_FAILED,
            position=self.position,
            failure=common_pb2.FAILURE_CLASS_USER_CODE,
            message=message,
            unable=unable,
        )

    def terminated(self, message: str) -> resource_manager_pb2.RunEnded:
        """An end that was ordered."""
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_TERMINATED, position=self.position, message=message
        )
