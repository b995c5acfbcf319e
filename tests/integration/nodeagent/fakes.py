"""Counterparts of an agent for tests: a scheduler that the test controls, and a blob store in memory."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from hopyard._net.auth.tickets import issue_ticket
from hopyard._net.rpc.channel import Metadata, token_metadata
from hopyard._net.rpc.values import run_key_from_proto, run_key_to_proto
from hopyard.errors import Conflict, Exhausted, NotFound, Unavailable
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, common_pb2, resource_manager_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as wire
from tests.timing import HANG_SECONDS

TICKET_KEY = b"k" * 32
"""The key of every node of a fake scheduler."""


def ticket(method: str, scope: str) -> str:
    """Return a ticket for a node of a fake scheduler."""
    return issue_ticket(TICKET_KEY, method, scope, time.time())


def headers(method: str, scope: str) -> Metadata:
    """Return the headers of a call to a node of a fake scheduler, with a ticket."""
    return token_metadata(ticket(method, scope))


class FakeScheduler(resource_manager_pb2_grpc.ResourceManagerServiceServicer):
    """A fake scheduler that serves AgentSession and records each run's messages once and in order."""

    def __init__(self) -> None:
        self.epoch = 1
        self.history = "original"
        self.lease_seconds = HANG_SECONDS
        self.acknowledge = True
        self.unwanted: set[RunKey] = set()
        self.occupied: set[str] = set()
        self.hellos: dict[str, list[wire.AgentHello]] = defaultdict(list)
        self.refused: list[wire.AgentHello] = []
        """The hellos of agents with another history."""
        self.received: dict[RunKey, list[wire.RunMessage]] = defaultdict(list)
        self.answers: list[wire.NodeAnswer] = []
        self.shipped: list[wire.SnapshotShipped] = []
        self.redelivered = 0
        self.leaving: list[str] = []
        """Nodes whose agents announced that they are stopping."""
        self.releases = True
        """Whether such an agent may end at once."""
        self.away = False
        """Whether it refuses sessions as if it could not be reached."""
        self._node_of: dict[RunKey, str] = {}
        self._commands: dict[RunKey, list[wire.RunCommand]] = defaultdict(list)
        self._taken: dict[RunKey, int] = defaultdict(int)
        self._sessions: dict[str, asyncio.Queue[wire.AgentSessionResponse | None]] = {}
        self._changed = asyncio.Condition()

    async def IssueTicket(
        self, request: wire.IssueTicketRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.IssueTicketResponse:
        return wire.IssueTicketResponse(ticket=ticket(request.method, request.object))

    async def AgentSession(
        self,
        request_iterator: AsyncIterator[wire.AgentSessionRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[wire.AgentSessionResponse]:
        hello = (await anext(request_iterator)).hello
        if self.away:
            raise Unavailable("the scheduler is away")
        if hello.node in self.occupied:
            raise Conflict(f"node {hello.node} is alive elsewhere")
        if hello.history not in ("", self.history):
            self.refused.append(hello)
            yield wire.AgentSessionResponse(welcome=wire.AgentWelcome(epoch=self.epoch, history=self.history))
            return
        queue: asyncio.Queue[wire.AgentSessionResponse | None] = asyncio.Queue()
        self._sessions[hello.node] = queue
        async with self._changed:
            self.hellos[hello.node].append(hello)
            self._changed.notify_all()
        unknown = [run for run in hello.runs if run_key_from_proto(run) in self.unwanted]
        yield wire.AgentSessionResponse(
            welcome=wire.AgentWelcome(
                epoch=self.epoch,
                lease_seconds=self.lease_seconds,
                heartbeat_seconds=0.2,
                unknown_runs=unknown,
                bundles=hello.bundles,
                ticket_key=TICKET_KEY,
                history=self.history,
            )
        )
        for key, commands in self._commands.items():
            if self._node_of[key] == hello.node and key not in self.unwanted:
                for command in commands[self._taken[key] :]:
                    queue.put_nowait(wire.AgentSessionResponse(command=command))
        if hello.leaving:
            self._leave(hello.node, queue)
        reader = asyncio.create_task(self._read(hello.node, request_iterator, queue))
        try:
            while (response := await queue.get()) is not None:
                yield response
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        raise Unavailable("the test dropped the session")

    async def _read(
        self,
        node: str,
        requests: AsyncIterator[wire.AgentSessionRequest],
        queue: asyncio.Queue[wire.AgentSessionResponse | None],
    ) -> None:
        async for request in requests:
            async with self._changed:
                for message in (request, *request.more):
                    if message.HasField("leaving"):
                        self._leave(node, queue)
                    self._take(message, queue)
                self._changed.notify_all()

    def _take(self, request: wire.AgentSessionRequest, queue: asyncio.Queue[wire.AgentSessionResponse | None]) -> None:
        match request.WhichOneof("message"):
            case "heartbeat":
                queue.put_nowait(wire.AgentSessionResponse(heartbeat=wire.SchedulerHeartbeat()))
            case "ack":
                key = run_key_from_proto(request.ack.run)
                self._taken[key] = max(self._taken[key], request.ack.sequence)
            case "run_message":
                self._message(request.run_message, queue)
            case "answer":
                self.answers.append(request.answer)
            case "shipped":
                self.shipped.append(request.shipped)
                if self.acknowledge:
                    order = request.shipped.order
                    ack = wire.ShipmentAck(experiment=order.experiment, number=order.number)
                    queue.put_nowait(wire.AgentSessionResponse(shipment_ack=ack))

    def _leave(self, node: str, queue: asyncio.Queue[wire.AgentSessionResponse | None]) -> None:
        self.leaving.append(node)
        if self.releases:
            queue.put_nowait(wire.AgentSessionResponse(released=wire.AgentReleased()))

    def _message(self, message: wire.RunMessage, queue: asyncio.Queue[wire.AgentSessionResponse | None]) -> None:
        key = run_key_from_proto(message.run)
        received = self.received[key]
        if message.sequence == len(received) + 1:
            received.append(message)
        elif message.sequence <= len(received):
            assert received[message.sequence - 1] == message, "a numbered message never changes"
            self.redelivered += 1
        if self.acknowledge:
            ack = wire.ChannelAck(run=message.run, sequence=len(received))
            queue.put_nowait(wire.AgentSessionResponse(ack=ack))

    # Actions of a test.

    def restore(self, history: str) -> None:
        """Continue as the scheduler of a cluster that was restored from a backup in which no run had begun."""
        self.history = history
        self._commands.clear()
        self._taken.clear()
        self.received.clear()
        for node in list(self._sessions):
            self.drop_session(node)

    def send(self, node: str, key: RunKey, **body: Any) -> None:
        """Send a command to a run; it is stored and sent again until the agent acknowledges it."""
        self._node_of[key] = node
        commands = self._commands[key]
        command = wire.RunCommand(run=run_key_to_proto(key), sequence=len(commands) + 1, epoch=self.epoch, **body)
        commands.append(command)
        if node in self._sessions:
            self._sessions[node].put_nowait(wire.AgentSessionResponse(command=command))

    def decide(
        self, node: str, key: RunKey, decision: wire.Decision.ValueType, position: int, allowed: int = 0
    ) -> None:
        """Send a decision to a run."""
        self.send(node, key, decide=wire.DecideRun(decision=decision, position=position, allowed=allowed))

    def say(self, node: str, **message: Any) -> None:
        """Send a message other than a run command over the present session."""
        self._sessions[node].put_nowait(wire.AgentSessionResponse(**message))

    def drop_session(self, node: str) -> None:
        """Close the present session of a node."""
        self._sessions.pop(node).put_nowait(None)

    async def until(self, condition: Callable[[], bool], seconds: float = HANG_SECONDS) -> None:
        """Wait until `condition` is true; it is checked after each received message."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def connected(self, node: str, sessions: int = 1) -> None:
        """Wait until a node has opened at least `sessions` sessions."""
        await self.until(lambda: len(self.hellos[node]) >= sessions)

    def reports(self, key: RunKey) -> list[common_pb2.Report]:
        """Return all reports of a run so far."""
        return [report for message in self.received[key] for report in message.reports.reports]

    async def reported(self, key: RunKey, position: int) -> common_pb2.Report:
        """Wait for the report at a position and return it; fail if the run ends before."""
        await self.until(lambda: bool(self._ended(key)) or any(r.position == position for r in self.reports(key)))
        found = [report for report in self.reports(key) if report.position == position]
        assert found, f"it has ended: {self._ended(key)}"
        return found[0]

    async def ended(self, key: RunKey) -> wire.RunEnded:
        """Wait for the end of a run and return its message."""
        await self.until(lambda: bool(self._ended(key)))
        return self._ended(key)[0]

    async def amended(self, key: RunKey, ticket: str) -> wire.RunAmended:
        """Wait for the answer to the amendment with this ticket and return it."""

        def answers() -> list[wire.RunAmended]:
            return [m.amended for m in self.received[key] if m.HasField("amended") and m.amended.ticket == ticket]

        await self.until(lambda: bool(answers()))
        return answers()[0]

    def snapshots(self, key: RunKey) -> list[common_pb2.Snapshot]:
        """Return the snapshots that a run reported as taken."""
        return [m.snapshot_taken.snapshot for m in self.received[key] if m.HasField("snapshot_taken")]

    def _ended(self, key: RunKey) -> list[wire.RunEnded]:
        return [message.ended for message in self.received[key] if message.HasField("ended")]


class FakeStore(appstat_pb2_grpc.AppStatServiceServicer):
    """A fake AppStat that stores blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.available = True
        self.asked = 0
        self.refuses = False
        self._lost: set[str] = set()

    def lose(self, sha256: str) -> None:
        """Delete a blob, and do not keep it if it is uploaded again."""
        self._lost.add(sha256)
        del self.blobs[sha256]

    def add(self, data: bytes) -> str:
        """Store bytes and return their hash."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def _check(self) -> None:
        if not self.available:
            raise Unavailable("the test's store is away")

    async def HasBlobs(
        self, request: appstat_pb2.HasBlobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> appstat_pb2.HasBlobsResponse:
        self._check()
        self.asked += 1
        return appstat_pb2.HasBlobsResponse(sha256=[name for name in request.sha256 if name in self.blobs])

    async def PutBlob(
        self,
        request_iterator: AsyncIterator[appstat_pb2.PutBlobRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> appstat_pb2.PutBlobResponse:
        self._check()
        self.asked += 1
        if self.refuses:
            raise Exhausted("the blob is bigger than the test's store allows")
        name, data = "", b""
        async for request in request_iterator:
            name = name or request.sha256
            data += request.data
        assert hashlib.sha256(data).hexdigest() == name
        if name not in self._lost:
            self.blobs[name] = data
        return appstat_pb2.PutBlobResponse(size_bytes=len(data))

    async def GetBlob(
        self, request: appstat_pb2.GetBlobRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[appstat_pb2.GetBlobResponse]:
        self._check()
        if request.sha256 not in self.blobs:
            raise NotFound(f"no blob {request.sha256}")
        yield appstat_pb2.GetBlobResponse(data=self.blobs[request.sha256])
