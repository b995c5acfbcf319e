"""ResourceManagerService: slots, nodes, and the sessions of agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hopyard.v1 import resource_manager_pb2 as pb
from hopyard.v1 import resource_manager_pb2_grpc
from hopyard_scheduler.agents.session_requests import SessionRequests
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.agents.slot_reservations import SlotReservations
from hopyard_scheduler.pagination import page

if TYPE_CHECKING:
    import grpc.aio


class ResourceManagerServicer(resource_manager_pb2_grpc.ResourceManagerServiceServicer):
    """Implements ResourceManagerService."""

    def __init__(self, slots: SlotReservations, sessions: Sessions, requests: SessionRequests) -> None:
        self._slots = slots
        self._sessions = sessions
        self._requests = requests

    async def AgentSession(
        self,
        request_iterator: AsyncIterator[pb.AgentSessionRequest],
        context: grpc.aio.ServicerContext[pb.AgentSessionRequest, pb.AgentSessionResponse],
    ) -> AsyncIterator[pb.AgentSessionResponse]:
        """Serves the session of an agent: handles its requests and sends it the queued messages."""
        session = await self._requests.open(request_iterator)
        reader = asyncio.create_task(self._requests.read(session, request_iterator), name=f"session of {session.node}")
        try:
            while (message := await session.next()) is not None:
                yield message
            if reader.done():
                reader.result()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self._sessions.gone(session)

    async def ReserveIdleMachine(
        self,
        request: pb.ReserveIdleMachineRequest,
        context: grpc.aio.ServicerContext[pb.ReserveIdleMachineRequest, pb.ReserveIdleMachineResponse],
    ) -> pb.ReserveIdleMachineResponse:
        """Reserves an idle slot of an experiment."""
        slot = await self._slots.reserve_idle(request.experiment, request.request_id)
        return pb.ReserveIdleMachineResponse(slot=slot)

    async def ReleaseMachine(
        self,
        request: pb.ReleaseMachineRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseMachineRequest, pb.ReleaseMachineResponse],
    ) -> pb.ReleaseMachineResponse:
        """Releases a reserved slot."""
        await self._slots.release(request.slot)
        return pb.ReleaseMachineResponse()

    async def ListSlots(
        self,
        request: pb.ListSlotsRequest,
        context: grpc.aio.ServicerContext[pb.ListSlotsRequest, pb.ListSlotsResponse],
    ) -> pb.ListSlotsResponse:
        """Returns a page of the slots."""
        shown, token = page(self._slots.show_all(), request.page_size, request.page_token)
        return pb.ListSlotsResponse(slots=shown, next_page_token=token)

    async def ListNodes(
        self,
        request: pb.ListNodesRequest,
        context: grpc.aio.ServicerContext[pb.ListNodesRequest, pb.ListNodesResponse],
    ) -> pb.ListNodesResponse:
        """Returns a page of the nodes."""
        shown, token = page(self._slots.show_nodes(), request.page_size, request.page_token)
        return pb.ListNodesResponse(nodes=shown, next_page_token=token)

    async def DrainNode(
        self,
        request: pb.DrainNodeRequest,
        context: grpc.aio.ServicerContext[pb.DrainNodeRequest, pb.DrainNodeResponse],
    ) -> pb.DrainNodeResponse:
        """Drains a node."""
        await self._slots.drain(request.node)
        return pb.DrainNodeResponse()
