"""The registry of all runs of the node: accepts commands, forwards messages to the scheduler, and drops finished runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from hopyard._net.rpc.values import run_key_from_proto
from hopyard._net.server import Background
from hopyard.errors import NotFound, Unavailable
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.executor import Executor
from hopyard_nodeagent.runs.run import NodeRun, snapshot_of
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.uploads import Shipment, Uploader

_log = logging.getLogger(__name__)

_MOST_REMEMBERED: Final = 10_000


class Runs:
    """The runs of the node, from their start commands until all their messages are acknowledged.

    Args:
        node: Id of the node.
        executor: Executes the runs.
        snapshots: The snapshots on this node.
        background: Starts and supervises the tasks, one for each run.
        changed: Called with each run that has a new message for the scheduler.
        record: Called with each command before it is executed.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self,
        node: str,
        executor: Executor,
        snapshots: Snapshots,
        background: Background,
        *,
        changed: Callable[[NodeRun], None],
        record: Callable[[resource_manager_pb2.RunCommand], None] = lambda command: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._executor = executor
        self._snapshots = snapshots
        snapshots.announcement_pending = self.announcement_pending
        self._background = background
        self._changed = changed
        self._record = record
        self._clock = clock
        self._runs: dict[RunKey, NodeRun] = {}
        self._forgotten: OrderedDict[RunKey, None] = OrderedDict()
        self.shipper: Uploader | None = None
        self._quiet = asyncio.Event()
        self.accepting = True
        """Whether new runs are accepted; False after `stop` was called."""
        self.leaving = False
        """Whether the agent is stopping. Then new runs end before their processes start."""

    def all(self) -> list[NodeRun]:
        """Return every run that has not ended or has unacknowledged messages."""
        return list(self._runs.values())

    def unacknowledged(self) -> int:
        """Return the number of messages of all runs that the scheduler has not acknowledged."""
        return sum(len(run.outgoing) for run in self._runs.values())

    @property
    def executing(self) -> int:
        """The number of runs that have not ended."""
        return sum(not run.over for run in self._runs.values())

    def live(self, experiment: str, job: str, rank: int = 0) -> bool:
        """Return whether a run of the job with this rank is on this node and has not ended."""
        return any(
            not run.over and run.key[:2] == (experiment, job) and run.key.rank == rank for run in self._runs.values()
        )

    def place(self, key: RunKey) -> common_pb2.GangPlace:
        """Return the meeting place of a gang: the address at which its ranks connect to each other.

        Args:
            key: The key of rank 0 of the gang's run, which must be on this node.

        Raises:
            NotFound: The run does not exist here, or has ended.
            Unavailable: The process of rank 0 has not announced the meeting place yet.
        """
        run = self._runs.get(key)
        if run is None or run.over:
            raise NotFound(f"{key} is not under way on node {self._node}")
        if run.place is None:
            raise Unavailable(f"{key} is being prepared")
        return run.place

    def announcement_pending(self, sha256: str) -> bool:
        """Return whether a run on this node took a snapshot with this hash, and its announcement is not acknowledged.

        The announcement is the run's message to the scheduler that names the snapshot.
        """
        return any(run.announcement_pending(sha256) for run in self._runs.values())

    def command(self, command: resource_manager_pb2.RunCommand) -> int | None:
        """Accept a command for a run, and execute it if its number in the run's channel is the next one.

        Returns:
            The sequence number to acknowledge; None: the run does not exist here, and the command is ignored.
        """
        key = run_key_from_proto(command.run)
        if key in self._forgotten:
            return command.sequence
        run = self._runs.get(key)
        if run is None:
            if not (command.sequence == 1 and command.HasField("start") and self.accepting):
                _log.warning("%s: command %d for a run that is not here", key, command.sequence)
                return None
            run = self._runs[key] = NodeRun(key, command.start, self._node, clock=self._clock)
        if run.incoming.take(command.sequence):
            self._carry_out(run, command)
        return run.incoming.taken

    def acknowledged(self, key: RunKey, sequence: int) -> None:
        """Handle the acknowledgement of a run's messages up to and including the number `sequence`.

        The snapshots that these messages announce are uploaded. If the start command of the run has `ships_by_order`, nothing is
        uploaded here: the scheduler orders each upload. Uploads wait for the acknowledgement, because the scheduler may be deleting an
        older snapshot with equal bytes from the store; the scheduler ends that deletion before it acknowledges the message.
        """
        run = self._runs.get(key)
        if run is not None:
            for message in run.outgoing.acknowledged(sequence):
                snapshot = snapshot_of(message)
                if snapshot is not None and self.shipper is not None and not run.start.ships_by_order:
                    self.shipper.ship(Shipment(key, snapshot.position, snapshot.sha256))
            self._forget_if_done(run)
        if not self.unacknowledged():
            self._quiet.set()

    async def wait_acknowledged(self) -> None:
        """Wait until all messages are acknowledged. Call it when no run sends messages any more."""
        self._quiet.clear()
        if self.unacknowledged():
            await self._quiet.wait()

    def unknown(self, keys: Iterable[RunKey]) -> None:
        """Kill and drop these runs, which the scheduler no longer knows. No messages about them are sent. Unknown keys are ignored."""
        for key in keys:
            run = self._runs.get(key)
            if run is not None:
                _log.info("%s is not wanted any more", key)
                run.kill(run.lost("not wanted any more"))
                self._forget(run)

    def shipped(self, shipment: Shipment, error: str) -> None:
        """Send the scheduler the result of uploading a snapshot that a run took; ignored if the run is not on this node any more.

        Args:
            shipment: The snapshot, and the run that took it.
            error: Why the upload was abandoned; empty: the snapshot is stored.
        """
        run = self._runs.get(shipment.run)
        if run is not None:
            message = resource_manager_pb2.SnapshotStored(
                position=shipment.position, sha256=shipment.sha256, error=error
            )
            run.say(resource_manager_pb2.RunMessage(snapshot_stored=message))
            self._tell_session(run)

    async def discard(self) -> list[RunKey]:
        """Kill and drop all runs with their messages, wait until their processes have ended, and return their keys.

        The numbers of earlier runs are forgotten, too: a later start command with such a number starts a new run.
        """
        runs = list(self._runs.values())
        self._runs.clear()
        for run in runs:
            run.kill(run.lost("its cluster was restored from a backup"))
        tasks = [run.task for run in runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        self._forgotten.clear()
        self._quiet.set()
        return [run.key for run in runs]

    async def stop(self) -> None:
        """Kill all runs with the end LOST, so that their jobs resume from their last snapshots, and wait for their tasks."""
        self.accepting = False
        for run in self._runs.values():
            run.kill(run.lost(f"node {self._node} stops"))
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _carry_out(self, run: NodeRun, command: resource_manager_pb2.RunCommand) -> None:
        self._record(command)
        match command.WhichOneof("body"):
            case "start":
                self._displace(run)
                if self.leaving:
                    self._end(run, _not_begun(run, self._node))
                    return
                run.task = self._background.start(self._make(run), name=str(run.key))
            case "decide":
                run.tell(wire.AttachResponse(decide=command.decide))
            case "amend":
                run.tell(wire.AttachResponse(amend=command.amend))
            case "kill":
                _log.info("%s is killed: %s", run.key, command.kill.reason)
                run.kill(run.terminated(f"killed: {command.kill.reason}" if command.kill.reason else "killed"))
            case other:
                _log.error("%s: command %d has the unknown body %s", run.key, command.sequence, other)

    def _displace(self, new: NodeRun) -> None:
        """Kill the older runs on the slot of `new`, if any, with the end LOST.

        The scheduler assigns a slot again only if it considers the older run as ended.
        """
        for run in self._runs.values():
            if run is not new and run.start.slot == new.start.slot:
                run.kill(run.lost(f"its slot was given to {new.key}"))

    async def _make(self, run: NodeRun) -> None:
        def heard(request: wire.AttachRequest) -> None:
            snapshot = run.relay(request)
            if snapshot is not None:
                self._snapshots.taken(snapshot.sha256, run.key.stream)
            self._tell_session(run)

        try:
            ended = await self._executor.execute(run, heard)
        except asyncio.CancelledError:
            if run.killed is None:
                raise
            ended = run.killed
        self._end(run, ended)

    def _end(self, run: NodeRun, ended: resource_manager_pb2.RunEnded) -> None:
        run.end(ended)
        _log.info("%s ended: %s", run.key, common_pb2.RunEndReason.Name(ended.reason))
        if ended.HasField("snapshot"):
            self._snapshots.taken(ended.snapshot.sha256, run.key.stream)
        self._tell_session(run)

    def _tell_session(self, run: NodeRun) -> None:
        if run.key in self._runs:  # A dropped run has no channel any more.
            self._changed(run)

    def _forget_if_done(self, run: NodeRun) -> None:
        pending = self.shipper is not None and self.shipper.pending(run.key)
        if run.over and not len(run.outgoing) and not pending:
            self._forget(run)

    def _forget(self, run: NodeRun) -> None:
        if self.shipper is not None:
            self.shipper.forget(run.key)
        self._runs.pop(run.key, None)
        # Remember the key, so that a repeated start command does not start the same attempt again.
        self._forgotten[run.key] = None
        while len(self._forgotten) > _MOST_REMEMBERED:
            self._forgotten.popitem(last=False)


def _not_begun(run: NodeRun, node: str) -> resource_manager_pb2.RunEnded:
    """Return the end of a run whose start command arrived after the agent began to stop.

    The run is suspended where it would have started. A gang is lost instead, so that its other ranks do not wait for this one.
    """
    message = f"node {node} is leaving"
    if run.start.world > 1:
        return run.lost(message)
    return resource_manager_pb2.RunEnded(
        reason=common_pb2.RUN_END_REASON_SUSPENDED, position=run.position, message=message
    )
