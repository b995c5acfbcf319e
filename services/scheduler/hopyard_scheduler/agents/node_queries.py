"""Asking nodes what lies at places on them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from hopyard._runtime.datasets.node_query import INSPECT, FoundPath, PathQuery, answered, question
from hopyard.errors import Unavailable, Unsupported
from hopyard.v1 import resource_manager_pb2
from hopyard_scheduler.agents.sessions import Session, Sessions

_Answer = asyncio.Future[resource_manager_pb2.NodeAnswer]


class Inspections:
    """Questions to nodes, each of which lasts as long as the session over which it went: reading a large file takes its time."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[str, tuple[Session, _Answer]] = {}
        sessions.left.append(self._left)

    async def ask(self, node: str, wanted: Sequence[PathQuery]) -> list[FoundPath]:
        """What lies at places on a node, in their order.

        Raises:
            Unavailable: The node is not there, or went while it read.
            Unsupported: Its agent is of a version that does not look at places.
        """
        if not wanted:
            return []
        session = self._sessions.of(node)
        if session is None or not session.ready:
            raise Unavailable(f"node {node} is not connected")
        ticket = f"{INSPECT} {uuid.uuid4().hex}"
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._open[ticket] = (session, answer)
        try:
            asked = resource_manager_pb2.NodeQuestion(ticket=ticket, kind=INSPECT, payload_json=question(wanted))
            session.send(resource_manager_pb2.AgentSessionResponse(question=asked))
            said = await answer
        finally:
            del self._open[ticket]
        if said.error:
            raise Unsupported(f"node {node}: {said.error}")
        try:
            return answered(said.result_json, len(wanted))
        except ValueError as error:
            raise Unsupported(f"node {node}: {error}") from error

    def answered(self, answer: resource_manager_pb2.NodeAnswer) -> bool:
        """A node has answered something; whether that is a question of ours, or was one."""
        known = self._open.get(answer.ticket)
        if known is not None and not known[1].done():
            known[1].set_result(answer)
        return answer.ticket.startswith(f"{INSPECT} ")

    def _left(self, session: Session) -> None:
        for over, answer in self._open.values():
            if over is session and not answer.done():
                answer.set_exception(Unavailable(f"node {session.node} went while it read"))
