"""ResourceManagerService: machines, nodes, and the agents' sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hopyard.datasets.node_query import LOOK_AGAIN
from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound
from hopyard.policy.vocabulary import ReleaseMachine, ReserveMachine
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard.v1 import resource_manager_pb2_grpc
from hopyard_engine.core.events import JobOperated, NodeDrained, NodeEvicted, NodeJoined
from hopyard_scheduler.agents.node_queries import Inspections
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.converters import (
    key_from_proto,
    machine_from_proto,
    run_message_from_proto,
    shipped_from_proto,
)
from hopyard_scheduler.data.catalog import Catalog
from hopyard_scheduler.pagination import page
from hopyard_scheduler.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.runtime.runtime import Live, experiment_of
from hopyard_scheduler.storage.garbage_collection import GarbageCollector

if TYPE_CHECKING:
    import grpc.aio


class ResourceManagerServicer(resource_manager_pb2_grpc.ResourceManagerServiceServicer):
    """Serves machines and agent sessions."""

    def __init__(
        self,
        live: Live,
        sessions: Sessions,
        garbage: GarbageCollector,
        predictions: PredictionDispatcher,
        catalog: Catalog,
        inspections: Inspections,
    ) -> None:
        self._live = live
        self._garbage = garbage
        self._sessions = sessions
        self._predictions = predictions
        self._catalog = catalog
        self._inspections = inspections
        self._reservations: dict[str, str] = {}

    async def AgentSession(
        self,
        request_iterator: AsyncIterator[pb.AgentSessionRequest],
        context: grpc.aio.ServicerContext[pb.AgentSessionRequest, pb.AgentSessionResponse],
    ) -> AsyncIterator[pb.AgentSessionResponse]:
        """One agent's stream: its messages become events, the core's commands go out."""
        session = await self._greet(request_iterator)
        reader = asyncio.create_task(self._read(session, request_iterator), name=f"session of {session.node}")
        try:
            while (message := await session.next()) is not None:
                yield message
            if reader.done():
                reader.result()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self._sessions.gone(session)

    async def _greet(self, requests: AsyncIterator[pb.AgentSessionRequest]) -> Session:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidInput("an agent session begins with hello")
        hello = first.hello
        if hello.epoch > self._live.journal.epoch:
            raise InvalidInput(
                f"agent {hello.node} has seen epoch {hello.epoch}; this scheduler's is {self._live.journal.epoch}: "
                "a newer scheduler has taken over"
            )
        if not (hello.node and hello.incarnation):
            raise InvalidInput("hello: node and incarnation are required")
        if self._sessions.occupied(hello.node, hello.incarnation, hello.home):
            where = self._sessions.addresses.get(hello.node) or "an unknown address"
            raise Conflict(
                f"node {hello.node} is alive elsewhere, at {where}; give this agent another name with --node, or stop that "
                "one first"
            )
        session = Session(hello.node, hello.incarnation, hello.address, hello.home, bundles=hello.bundles)
        self._sessions.open(session)
        await self._live.submit(
            NodeJoined(
                at=self._live.clock(),
                node=hello.node,
                incarnation=hello.incarnation,
                machines=tuple(machine_from_proto(m) for m in hello.machines),
                runs=tuple(key_from_proto(run) for run in hello.runs),
                snapshots=tuple(hello.snapshots),
            )
        )
        return session

    async def _read(self, session: Session, requests: AsyncIterator[pb.AgentSessionRequest]) -> None:
        try:
            async for request in requests:
                self._sessions.alive(session)
                for message in (request, *request.more):
                    await self._take(session, message)
        finally:
            session.close()

    async def _take(self, session: Session, message: pb.AgentSessionRequest) -> None:
        match message.WhichOneof("message"):
            case "run_message":
                await self._live.submit(run_message_from_proto(message.run_message, self._live.clock()))
            case "ack":
                self._live.core.acknowledge(key_from_proto(message.ack.run), message.ack.sequence)
            case "shipped":
                await self._live.submit(shipped_from_proto(message.shipped, session.node, self._live.clock()))
            case "answer" if message.answer.ticket == LOOK_AGAIN:
                self._catalog.look(session.node)
            case "answer":
                if not self._inspections.answered(message.answer):
                    self._predictions.answered(message.answer)
            case "inventory":
                self._garbage.arrived(message.inventory)
            case "evicted":
                hashes = tuple(message.evicted.sha256)
                await self._live.submit(NodeEvicted(self._live.clock(), session.node, hashes))
            case "heartbeat":
                session.send(pb.AgentSessionResponse(heartbeat=pb.SchedulerHeartbeat()))
            case other:
                raise InvalidInput(f"agent {session.node}: message {other} is not expected here")

    async def ReserveIdleMachine(
        self,
        request: pb.ReserveIdleMachineRequest,
        context: grpc.aio.ServicerContext[pb.ReserveIdleMachineRequest, pb.ReserveIdleMachineResponse],
    ) -> pb.ReserveIdleMachineResponse:
        """Reserves an idle machine of an experiment."""
        stream, _ = experiment_of(self._live.core, request.experiment)
        if request.request_id in self._reservations:
            return pb.ReserveIdleMachineResponse(machine=self._reservations[request.request_id])
        idle = sorted(m.id for m in stream.machines.values() if m.idle and not m.reserved)
        if not idle:
            raise Exhausted(f"experiment {stream.id} has no idle machine; it holds {len(stream.machines)}")
        refused = await self._live.operate(JobOperated(self._live.clock(), stream.id, ReserveMachine(idle[0])))
        if refused:
            raise Exhausted(refused)
        if request.request_id:
            self._reservations[request.request_id] = idle[0]
        return pb.ReserveIdleMachineResponse(machine=idle[0])

    async def ReleaseMachine(
        self,
        request: pb.ReleaseMachineRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseMachineRequest, pb.ReleaseMachineResponse],
    ) -> pb.ReleaseMachineResponse:
        """Makes a reserved machine idle again."""
        machine = self._live.core.cluster.machines.get(request.machine)
        if machine is None:
            raise NotFound(f"there is no machine {request.machine!r}")
        self._reservations = {name: held for name, held in self._reservations.items() if held != request.machine}
        if machine.holder:
            event = JobOperated(self._live.clock(), machine.holder, ReleaseMachine(request.machine))
            refused = await self._live.operate(event)
            if refused:
                raise Conflict(refused)
        return pb.ReleaseMachineResponse()

    async def ListMachines(
        self,
        request: pb.ListMachinesRequest,
        context: grpc.aio.ServicerContext[pb.ListMachinesRequest, pb.ListMachinesResponse],
    ) -> pb.ListMachinesResponse:
        """All machines."""
        machines = [self._machine(name) for name in sorted(self._live.core.cluster.machines)]
        shown, token = page(machines, request.page_size, request.page_token)
        return pb.ListMachinesResponse(machines=shown, next_page_token=token)

    async def ListNodes(
        self,
        request: pb.ListNodesRequest,
        context: grpc.aio.ServicerContext[pb.ListNodesRequest, pb.ListNodesResponse],
    ) -> pb.ListNodesResponse:
        """All nodes."""
        nodes = [self._node(name) for name in sorted(self._live.core.cluster.nodes)]
        shown, token = page(nodes, request.page_size, request.page_token)
        return pb.ListNodesResponse(nodes=shown, next_page_token=token)

    async def DrainNode(
        self,
        request: pb.DrainNodeRequest,
        context: grpc.aio.ServicerContext[pb.DrainNodeRequest, pb.DrainNodeResponse],
    ) -> pb.DrainNodeResponse:
        """Starts nothing more on a node."""
        if request.node not in self._live.core.cluster.nodes:
            raise NotFound(f"there is no node {request.node!r}")
        await self._live.apply(NodeDrained(self._live.clock(), request.node))
        return pb.DrainNodeResponse()

    def _machine(self, name: str) -> pb.Machine:
        machine = self._live.core.cluster.machines[name]
        spec = machine.spec
        message = pb.Machine(id=name, node=machine.node, cpus=spec.cpus, gpus=spec.gpus, hardware=spec.hardware)
        message.experiment = machine.holder
        stream = self._live.core.streams.get(machine.holder)
        held = stream.machines.get(name) if stream is not None else None
        if stream is not None and held is not None and held.run is not None:
            message.job, message.attempt = held.run.job, held.run.attempt
            message.experiment = stream.jobs[held.run.job].experiment.id
            message.rank, message.world = held.run.machines.index(name), len(held.run.ranks)
        return message

    def _node(self, name: str) -> pb.Node:
        node = self._live.core.cluster.nodes[name]
        state = pb.NODE_STATE_LOST if not node.up else pb.NODE_STATE_DRAINING if node.draining else pb.NODE_STATE_UP
        machines = [m.spec.id for m in self._live.core.cluster.machines.values() if m.node == name]
        return pb.Node(
            id=name,
            address=self._sessions.addresses.get(name, ""),
            state=state,
            machines=[self._machine(machine) for machine in sorted(machines)],
            silent_seconds=min(self._sessions.silent_seconds(name), 1e9),
            incarnation=node.incarnation,
        )
