"""The session of the agent with the scheduler, which is opened again after every interruption.

The agent gives up only if another agent with the same name is alive.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

import grpc.aio

from hopyard._net.rpc import Backoff
from hopyard._net.rpc.values import run_key_from_proto, run_key_to_proto
from hopyard.errors import Conflict, HopyardError, StaleEpoch, Unauthenticated, Unavailable
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard.v1 import resource_manager_pb2_grpc
from hopyard_nodeagent.cluster_access import ClusterAccess
from hopyard_nodeagent.runs.channel import EpochGuard
from hopyard_nodeagent.runs.registry import Runs
from hopyard_nodeagent.runs.run import NodeRun

_log = logging.getLogger(__name__)

_WELCOME_SECONDS: Final = 10.0
_DEFAULT_HEARTBEAT_SECONDS: Final = 1.0
_DEFAULT_LEASE_SECONDS: Final = 10.0

_MOST_BYTES: Final = 1024 * 1024
"""Maximum size in bytes of messages that are sent together in one."""


Call: TypeAlias = grpc.aio.StreamStreamCall[wire.AgentSessionRequest, wire.AgentSessionResponse]


class SessionOwner(Protocol):
    """The interface of the agent that a session calls for messages of the scheduler that do not belong to a run."""

    def hello(self, epoch: int) -> wire.AgentHello:
        """Return the first message of a session: the agent's identity, slots, runs, snapshots and known epoch.

        `epoch` is the highest epoch of the scheduler that the agent has seen; 0: none.
        """

    def welcomed(self, welcome: wire.AgentWelcome) -> None:
        """Handle the scheduler's first message, with which a session starts."""

    async def discard_runs(self) -> list[RunKey]:
        """End all runs, drop what is not acknowledged, take another incarnation, and return the keys of the runs.

        It is called when the cluster was restored from a backup: the scheduler does not know what has happened since the backup.
        """

    def forget_snapshots(self, hashes: list[str]) -> None:
        """Delete snapshots with these hashes, which the scheduler no longer needs."""

    def ordered(self, orders: list[wire.ShipmentOrder]) -> None:
        """Upload the snapshots that these orders of the scheduler name; report each result by a call of `SchedulerSession.shipped`."""

    def shipment_acknowledged(self, experiment: str, number: int) -> None:
        """Drop the result of the experiment's upload order with this number: the scheduler has acknowledged it."""

    def unacknowledged_shipments(self) -> list[wire.SnapshotShipped]:
        """Return the results of upload orders that the scheduler has not acknowledged."""

    def asked(self, question: wire.NodeQuestion) -> None:
        """Answer a question of the scheduler by a call of `SchedulerSession.answer`, when the answer is available."""

    def withdrawn(self, ticket: str) -> None:
        """Cancel the question with this ticket (its id): the scheduler no longer needs the answer."""

    def inventory(self, wanted: wire.ListNodeSnapshots) -> None:
        """Send a list of the unused snapshots, or of those that the request names, by a call of `SchedulerSession.found`.

        Unused means neither in use nor about to be uploaded or announced to the scheduler. `wanted` is the scheduler's request: the
        minimum time in seconds without use, and whether to delete partial files of interrupted transfers; or hashes of snapshots.
        """

    def heartbeat(self) -> wire.AgentHeartbeat:
        """Return the next heartbeat of the session, with what was measured since the last one."""


class SchedulerSession:
    """Opens sessions with the scheduler, one after another, and exchanges messages in them.

    Runs do not depend on a session: without one they continue to train, and their messages are queued. At the start of the next
    session, the scheduler lists the runs that it no longer knows.

    Args:
        access: Opens the channel to the scheduler.
        owner: The agent, which handles the messages that do not belong to a run.
        backoff: Waiting times between attempts to open a session.
        clock: Returns monotonic seconds, to detect that the scheduler is silent.

    Attributes:
        connected: Whether a session is open.
        leaving: Whether the agent is stopping. The hello of each session says so.
        released: Set when the scheduler has answered that a stopping agent may end.
    """

    def __init__(
        self,
        access: ClusterAccess,
        owner: SessionOwner,
        *,
        backoff: Backoff,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._scheduler = access.scheduler
        self._owner = owner
        self._backoff = backoff
        self._clock = clock
        # Random waits only spread the load; replays do not depend on them.
        self._rng = random.Random()
        self._epochs = EpochGuard()
        self._history = ""
        self._discarded: list[RunKey] = []
        self._changed: dict[NodeRun, None] = {}
        self._asides: deque[wire.AgentSessionRequest] = deque()
        self._acks: dict[RunKey, wire.AgentSessionRequest] = {}
        self._bundles = False
        self._wake = asyncio.Event()
        self._heard = 0.0
        self._heartbeat_seconds = _DEFAULT_HEARTBEAT_SECONDS
        self._lease_seconds = _DEFAULT_LEASE_SECONDS
        self._welcomes = 0
        self.connected = False
        self.leaving = False
        self.released = asyncio.Event()

    def leave(self) -> None:
        """Announce that the agent is stopping, now if a session is open, and at the start of each later session."""
        self.leaving = True
        if self.connected:
            self._say(wire.AgentSessionRequest(leaving=wire.AgentLeaving()))

    def changed(self, run: NodeRun) -> None:
        """Record that a run has messages to send."""
        self._changed[run] = None
        self._wake.set()

    def shipped(self, answer: wire.SnapshotShipped) -> None:
        """Send the result of an upload order. Without a session nothing is sent: the next session sends all unacknowledged results."""
        if self.connected:
            self._say(wire.AgentSessionRequest(shipped=answer))

    def answer(self, answer: wire.NodeAnswer) -> None:
        """Send the answer to a question. Without a session it is dropped, because the scheduler asks again in the next one."""
        if self.connected:
            self._say(wire.AgentSessionRequest(answer=answer))

    def found(self, inventory: wire.SnapshotInventory) -> None:
        """Send the requested list of unused snapshots. Without a session it is dropped, because the request ended with the session."""
        if self.connected:
            self._say(wire.AgentSessionRequest(inventory=inventory))

    def evicted(self, hashes: list[str]) -> None:
        """Report the hashes of deleted copies of snapshots.

        Without a session nothing is sent, because the first message of the next one lists all copies.
        """
        if self.connected:
            self._say(wire.AgentSessionRequest(evicted=wire.SnapshotsEvicted(sha256=hashes)))

    async def serve(self, runs: Runs) -> None:
        """Open one session after another, without end. `runs` executes the commands and provides the messages of runs.

        Raises:
            Conflict: Another agent with this name is alive.
        """
        failures = 0
        while True:
            welcomes = self._welcomes
            why = "it ended"
            try:
                await self._session(runs)
            except StaleEpoch as error:
                why = str(error)
            except Conflict:
                raise
            except Unauthenticated as error:
                why = f"{error}; {self._access.advice}"
            except HopyardError as error:
                why = str(error)
            finally:
                self.connected = False
            failures = 1 if self._welcomes > welcomes else failures + 1
            wait = self._backoff.wait(failures, self._rng)
            _log.warning("session with the scheduler at %s: %s; next try in %.1f s", self._scheduler, why, wait)
            await asyncio.sleep(wait)

    async def _session(self, runs: Runs) -> None:
        async with await self._access.to_scheduler() as connection:
            call = resource_manager_pb2_grpc.ResourceManagerServiceStub(connection).AgentSession()
            try:
                hello = self._owner.hello(self._epochs.newest)
                hello.leaving = announced = self.leaving
                hello.history = self._history
                hello.discarded.extend(run_key_to_proto(key) for key in self._discarded)
                await call.write(wire.AgentSessionRequest(hello=hello))
                await self._welcome(call, runs)
                if self.leaving and not announced:
                    self.leave()
                tasks = {
                    asyncio.create_task(self._read(call, runs)),
                    asyncio.create_task(self._write(call)),
                    asyncio.create_task(self._beat()),
                }
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                for task in done:
                    task.result()
            finally:
                call.cancel()

    async def _welcome(self, call: Call, runs: Runs) -> None:
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                response = await call.read()
        except TimeoutError as error:
            raise Unavailable(f"no welcome within {_WELCOME_SECONDS:g} s") from error
        if not isinstance(response, wire.AgentSessionResponse) or not response.HasField("welcome"):
            raise Unavailable("the scheduler ended the session without a welcome")
        welcome = response.welcome
        if self._history and welcome.history != self._history:
            await self._discard(welcome.history)
        self._check_epoch(welcome.epoch)
        self._history = welcome.history
        self._discarded.clear()
        self._heartbeat_seconds = welcome.heartbeat_seconds or _DEFAULT_HEARTBEAT_SECONDS
        self._lease_seconds = welcome.lease_seconds or _DEFAULT_LEASE_SECONDS
        runs.unknown(run_key_from_proto(run) for run in welcome.unknown_runs)
        self._owner.welcomed(welcome)
        self._bundles = welcome.bundles
        self._acks.clear()
        self._asides.clear()
        self._asides.extend(wire.AgentSessionRequest(shipped=a) for a in self._owner.unacknowledged_shipments())
        for run in runs.all():
            run.outgoing.new_session()
        self._changed = dict.fromkeys(runs.all())
        self._heard = self._clock()
        self._wake.set()
        self._welcomes += 1
        self.connected = True
        _log.info("session with the scheduler at %s, epoch %d", self._scheduler, welcome.epoch)

    async def _discard(self, history: str) -> None:
        """Discard what the agent knows of a history of the cluster that a restore has replaced, and end this session.

        Raises:
            Unavailable: Always: the next session begins with an agent that has no runs.
        """
        _log.warning(
            "the cluster was restored from a backup; all runs are ended, and what they reported since is discarded"
        )
        discarded = await self._owner.discard_runs()
        for key in discarded:
            _log.warning("%s is discarded", key)
        self._discarded += discarded
        self._history, self._epochs = history, EpochGuard()
        raise Unavailable("the cluster was restored from a backup")

    async def _read(self, call: Call, runs: Runs) -> None:
        while isinstance(response := await call.read(), wire.AgentSessionResponse):
            self._heard = self._clock()
            for message in (response, *response.more):
                self._take(message, runs)
        raise Unavailable("the scheduler ended the session")

    def _take(self, message: wire.AgentSessionResponse, runs: Runs) -> None:
        match message.WhichOneof("message"):
            case "command":
                self._check_epoch(message.command.epoch)
                taken = runs.command(message.command)
                if taken is not None:
                    # The acknowledgement only prevents a repetition in the next session, so it waits for the next
                    # message.
                    ack = wire.ChannelAck(run=message.command.run, sequence=taken)
                    self._acks[run_key_from_proto(message.command.run)] = wire.AgentSessionRequest(ack=ack)
            case "ack":
                runs.acknowledged(run_key_from_proto(message.ack.run), message.ack.sequence)
            case "forget_snapshots":
                self._owner.forget_snapshots(list(message.forget_snapshots.sha256))
            case "ship_snapshots":
                self._owner.ordered(list(message.ship_snapshots.orders))
            case "shipment_ack":
                self._owner.shipment_acknowledged(message.shipment_ack.experiment, message.shipment_ack.number)
            case "released":
                self.released.set()
            case "list_snapshots":
                self._owner.inventory(message.list_snapshots)
            case "question":
                self._owner.asked(message.question)
            case "withdraw_question":
                self._owner.withdrawn(message.withdraw_question.ticket)
            case _:
                pass  # A heartbeat.

    async def _write(self, call: Call) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            first: wire.AgentSessionRequest | None = None
            size = 0
            for request in self._waiting():
                if first is None:
                    first, size = request, request.ByteSize()
                elif self._bundles and size < _MOST_BYTES:
                    size += request.ByteSize()
                    first.more.append(request)
                else:
                    await call.write(first)
                    first, size = request, request.ByteSize()
            if first is not None:
                await call.write(first)

    def _waiting(self) -> Iterator[wire.AgentSessionRequest]:
        """Yield and remove the messages that wait to be sent in this session, including those that are added during the iteration.

        First come messages of the session, then acknowledgements, then one message of each run in turn.
        """
        while self._asides or self._changed:
            while self._asides:
                yield self._asides.popleft()
            for key in list(self._acks):
                yield self._acks.pop(key)
            for run in list(self._changed):
                # One message of each run in a turn; new reports are merged into the next one.
                message = run.outgoing.take()
                if message is None:
                    self._changed.pop(run, None)
                else:
                    yield wire.AgentSessionRequest(run_message=run.numbered(message))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            silent = self._clock() - self._heard
            if silent > self._lease_seconds:
                raise Unavailable(f"the scheduler has been silent for {silent:.1f} s")
            self._say(wire.AgentSessionRequest(heartbeat=self._owner.heartbeat()))

    def _say(self, request: wire.AgentSessionRequest) -> None:
        """Queue a message that is valid in this session only; it is dropped when the session ends."""
        self._asides.append(request)
        self._wake.set()

    def _check_epoch(self, epoch: int) -> None:
        if not self._epochs.admits(epoch):
            raise StaleEpoch(
                f"the scheduler's epoch {epoch} is older than {self._epochs.newest}, which commanded before"
            )
