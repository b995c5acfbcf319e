"""Handling of the requests that an agent sends on its session."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final

from hopyard._net.rpc.values import run_key_from_proto
from hopyard._runtime.datasets.node_query import LOOK_AGAIN
from hopyard.errors import Conflict, InvalidInput
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core.events import NodeEvicted, NodeJoined, NodeLeaving
from hopyard_scheduler.agents.hello_validation import check_hello
from hopyard_scheduler.agents.node_queries import Inspections
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.converters import (
    run_message_from_proto,
    shipped_from_proto,
    slot_from_proto,
)
from hopyard_scheduler.data.catalog import Catalog
from hopyard_scheduler.external_requests.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.runtime.runtime import Runtime
from hopyard_scheduler.storage.inventories import Inventories

_LOG = logging.getLogger(__name__)

MOST_NAMED: Final = 20
"""Maximum number of discarded runs that a message of the log names."""


class SessionRequests:
    """Opens agent sessions and passes each request to the component of the scheduler that handles it.

    Args:
        runtime: Receives the events that follow from requests.
        sessions: Registers the sessions.
        inventories: Receives the lists of the snapshots on the disks of nodes.
        predictions: Receives the answers of predictors.
        catalog: Queries a node for its data partitions again when the agent requests it.
        inspections: Receives the answers to path queries.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        inventories: Inventories,
        predictions: PredictionDispatcher,
        catalog: Catalog,
        inspections: Inspections,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._inventories = inventories
        self._predictions = predictions
        self._catalog = catalog
        self._inspections = inspections

    async def open(self, requests: AsyncIterator[pb.AgentSessionRequest]) -> Session:
        """Open a session from its first request, and submit the event `NodeJoined`.

        The first request must be a hello: the message with which an agent describes itself, its slots, runs and snapshots.

        If the agent ran on with a history of the cluster that a restore from a backup has replaced, the session is closed, and contains
        only a welcome. No event is submitted: the agent discards its runs, and opens another session.

        Raises:
            InvalidInput: The first request is not a hello, the hello is invalid (`check_hello`), or the agent has seen a scheduler
                epoch that is newer than this scheduler's.
            Conflict: Another live agent has a session for the same node, or the agent's data folder belongs to another cluster.
        """
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidInput("an agent session begins with hello")
        hello = first.hello
        check_hello(hello)
        cluster = self._runtime.journal.cluster
        if hello.cluster not in ("", cluster):  # Its snapshots are unknown here.
            raise Conflict(
                f"the data folder of node {hello.node} belongs to cluster {hello.cluster}, and this scheduler serves cluster "
                f"{cluster}; give the agent another data folder, or restore the database of its cluster, or start the agent once with "
                "--adopt, after which its snapshots belong to this cluster"
            )
        if hello.history not in ("", self._runtime.journal.history):
            return self._refused(hello)
        if hello.epoch > self._runtime.journal.epoch:
            raise InvalidInput(
                f"agent {hello.node} has seen epoch {hello.epoch}; this scheduler's is {self._runtime.journal.epoch}: "
                "a newer scheduler has taken over"
            )
        if self._sessions.occupied(hello.node, hello.incarnation, hello.home):
            where = self._sessions.addresses.get(hello.node) or "an unknown address"
            raise Conflict(
                f"node {hello.node} is alive elsewhere, at {where}; give this agent another name with --node, or stop that "
                "one first"
            )
        session = Session(hello.node, hello.incarnation, hello.address, hello.home, bundles=hello.bundles)
        self._sessions.open(session)
        self._sessions.gpus.announce(hello.node, hello.gpus)
        with self._sessions.reading(session.node):
            if hello.leaving:  # Before it joins, so that no run starts on it.
                await self._runtime.submit(NodeLeaving(self._runtime.clock(), hello.node, hello.incarnation))
            await self._runtime.submit(
                NodeJoined(
                    at=self._runtime.clock(),
                    node=hello.node,
                    incarnation=hello.incarnation,
                    slots=tuple(slot_from_proto(m) for m in hello.slots),
                    runs=tuple(run_key_from_proto(run) for run in hello.runs),
                    snapshots=tuple(hello.snapshots),
                    discarded=tuple(run_key_from_proto(run) for run in hello.discarded),
                )
            )
        return session

    def _refused(self, hello: pb.AgentHello) -> Session:
        """Return the closed session of an agent that ran on with another history. It contains only the welcome with the present one."""
        keys = [str(run_key_from_proto(run)) for run in hello.runs]
        what = f"{', '.join(keys[:MOST_NAMED])}{', ...' if len(keys) > MOST_NAMED else ''}" if keys else "none"
        _LOG.warning(
            "node %s ran on while this cluster was restored from a backup; its runs are discarded with their messages, and their jobs "
            "continue from the state of the backup: %s",
            hello.node,
            what,
        )
        session = Session(hello.node, hello.incarnation, hello.address, hello.home)
        journal = self._runtime.journal
        welcome = pb.AgentWelcome(epoch=journal.epoch, cluster=journal.cluster, history=journal.history)
        session.welcome(pb.AgentSessionResponse(welcome=welcome))
        session.close()
        return session

    async def read(self, session: Session, requests: AsyncIterator[pb.AgentSessionRequest]) -> None:
        """Handle all further requests of a session until the agent ends its stream.

        The session is closed on return and after each error, such as a broken connection, whose error is passed on. Each request renews
        the lease of the node.

        Raises:
            InvalidInput: A request has an unknown type, or is a second hello (the first request of a session, with
                which the agent describes itself).
        """
        try:
            async for request in requests:
                self._sessions.alive(session)
                with self._sessions.reading(session.node):
                    for message in (request, *request.more):
                        await self._take(session, message)
        finally:
            session.close()

    async def _take(self, session: Session, message: pb.AgentSessionRequest) -> None:
        match message.WhichOneof("message"):
            case "run_message":
                addresses = self._sessions.addresses
                await self._runtime.submit(
                    run_message_from_proto(message.run_message, self._runtime.clock(), addresses)
                )
            case "ack":
                self._runtime.core.acknowledge(run_key_from_proto(message.ack.run), message.ack.sequence)
            case "shipped":
                await self._runtime.submit(shipped_from_proto(message.shipped, session.node, self._runtime.clock()))
            case "answer" if message.answer.ticket == LOOK_AGAIN:
                self._catalog.look(session.node)
            case "answer":
                if not self._inspections.answered(message.answer):
                    self._predictions.answered(message.answer)
            case "inventory":
                self._inventories.arrived(message.inventory)
            case "evicted":
                hashes = tuple(message.evicted.sha256)
                await self._runtime.submit(NodeEvicted(self._runtime.clock(), session.node, hashes))
            case "leaving":
                await self._runtime.submit(NodeLeaving(self._runtime.clock(), session.node, session.incarnation))
            case "heartbeat":
                self._sessions.gpus.measured(session.node, message.heartbeat.gpus)
                session.send(pb.AgentSessionResponse(heartbeat=pb.SchedulerHeartbeat()))
            case other:
                raise InvalidInput(f"agent {session.node}: message {other} is not expected here")
