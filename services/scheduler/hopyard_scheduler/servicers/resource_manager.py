"""The gRPC service ResourceManagerService: slots, nodes, and the sessions of agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hopyard._net.auth import current_principal
from hopyard._net.auth.tickets import TICKET_SECONDS
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard.v1 import resource_manager_pb2_grpc
from hopyard_scheduler.agents.nodes import Nodes
from hopyard_scheduler.agents.session_requests import SessionRequests
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.agents.slot_reservations import SlotReservations
from hopyard_scheduler.agents.tickets import TicketIssuer
from hopyard_scheduler.pagination import page

if TYPE_CHECKING:
    import grpc.aio


class ResourceManagerServicer(resource_manager_pb2_grpc.ResourceManagerServiceServicer):
    """Implements the gRPC service ResourceManagerService.

    Args:
        slots: Lists, reserves and releases slots.
        nodes: Lists, drains and forgets nodes.
        sessions: The register of agent sessions.
        requests: Opens sessions and handles the requests of agents.
        tickets: Issues tickets for nodes.
    """

    def __init__(
        self,
        slots: SlotReservations,
        nodes: Nodes,
        sessions: Sessions,
        requests: SessionRequests,
        tickets: TicketIssuer,
    ) -> None:
        self._slots = slots
        self._nodes = nodes
        self._sessions = sessions
        self._requests = requests
        self._tickets = tickets

    async def AgentSession(
        self,
        request_iterator: AsyncIterator[pb.AgentSessionRequest],
        context: grpc.aio.ServicerContext[pb.AgentSessionRequest, pb.AgentSessionResponse],
    ) -> AsyncIterator[pb.AgentSessionResponse]:
        """Serve the session of an agent: handle its requests, and send it the queued messages until the session ends.

        InvalidInput: the first request is not a valid hello (the message with which an agent describes itself), or a
        later request is not allowed. Conflict: another live agent has a session for the same node.
        """
        session = await self._requests.open(request_iterator)
        if session.closed:  # The agent has another history: it gets the welcome only.
            while (message := await session.next()) is not None:
                yield message
            return
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
        """Reserve an idle slot of an experiment and return its id.

        A repeated request with the same request id returns the same slot while it is reserved. NotFound: the experiment
        does not exist. Exhausted: it has no idle slot.
        """
        slot = await self._slots.reserve_idle(request.experiment, request.request_id)
        return pb.ReserveIdleMachineResponse(slot=slot)

    async def ReleaseMachine(
        self,
        request: pb.ReleaseMachineRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseMachineRequest, pb.ReleaseMachineResponse],
    ) -> pb.ReleaseMachineResponse:
        """Release a reserved slot. No effect on an idle slot that is not reserved.

        NotFound: the slot does not exist. Conflict: a job runs on it.
        """
        await self._slots.release(request.slot)
        return pb.ReleaseMachineResponse()

    async def ListSlots(
        self,
        request: pb.ListSlotsRequest,
        context: grpc.aio.ServicerContext[pb.ListSlotsRequest, pb.ListSlotsResponse],
    ) -> pb.ListSlotsResponse:
        """Return a page of all slots, sorted by id. InvalidInput: the page size or token is invalid."""
        shown, token = page(self._slots.show_all(), request.page_size, request.page_token)
        return pb.ListSlotsResponse(slots=shown, next_page_token=token)

    async def ListNodes(
        self,
        request: pb.ListNodesRequest,
        context: grpc.aio.ServicerContext[pb.ListNodesRequest, pb.ListNodesResponse],
    ) -> pb.ListNodesResponse:
        """Return a page of all nodes with their slots, sorted by id. InvalidInput: the page size or token is invalid."""
        shown, token = page(self._nodes.show_all(), request.page_size, request.page_token)
        return pb.ListNodesResponse(nodes=shown, next_page_token=token)

    async def DrainNode(
        self,
        request: pb.DrainNodeRequest,
        context: grpc.aio.ServicerContext[pb.DrainNodeRequest, pb.DrainNodeResponse],
    ) -> pb.DrainNodeResponse:
        """Drain a node: no run starts on it, and its runs are suspended at their next boundary.

        NotFound: the node does not exist. InvalidInput: the deadline is not allowed.
        """
        deadline = request.deadline_seconds if request.HasField("deadline_seconds") else None
        return pb.DrainNodeResponse(node=await self._nodes.drain(request.node, deadline))

    async def UndrainNode(
        self,
        request: pb.UndrainNodeRequest,
        context: grpc.aio.ServicerContext[pb.UndrainNodeRequest, pb.UndrainNodeResponse],
    ) -> pb.UndrainNodeResponse:
        """End the drain of a node. No effect on a node that is not drained. NotFound: the node does not exist."""
        return pb.UndrainNodeResponse(node=await self._nodes.undrain(request.node))

    async def ForgetNode(
        self,
        request: pb.ForgetNodeRequest,
        context: grpc.aio.ServicerContext[pb.ForgetNodeRequest, pb.ForgetNodeResponse],
    ) -> pb.ForgetNodeResponse:
        """Remove a lost node from the list of nodes.

        NotFound: the node does not exist. Conflict: it is connected, or it had the only copies of snapshots and the request
        has no `force`.
        """
        await self._nodes.forget(request.node, force=request.force)
        return pb.ForgetNodeResponse()

    async def IssueTicket(
        self,
        request: pb.IssueTicketRequest,
        context: grpc.aio.ServicerContext[pb.IssueTicketRequest, pb.IssueTicketResponse],
    ) -> pb.IssueTicketResponse:
        """Issue a ticket for one method of one node.

        InvalidInput: there is no such method. PermissionDenied: this kind of caller may not call it. NotFound: no connected node
        has the address.
        """
        ticket = self._tickets.issue(current_principal().kind, request.address, request.method, request.object)
        return pb.IssueTicketResponse(ticket=ticket, valid_seconds=TICKET_SECONDS)
