"""Path queries: the scheduler asks a node for the size and the hash of files or URLs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from hopyard._runtime.datasets.node_query import INSPECT, PathAnswer, PathQuery, answered, question
from hopyard.errors import Unavailable, Unsupported
from hopyard.v1 import resource_manager_pb2
from hopyard_scheduler.agents.sessions import Session, Sessions

_Answer = asyncio.Future[resource_manager_pb2.NodeAnswer]


class Inspections:
    """Sends path queries to nodes and returns the answers.

    A query has no timeout, because reading a large file takes long. It fails when the session of its node ends.

    Args:
        sessions: The agent sessions through which queries are sent.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[str, tuple[Session, _Answer]] = {}
        sessions.left.append(self._left)

    async def ask(self, node: str, wanted: Sequence[PathQuery]) -> list[PathAnswer]:
        """Return the size, the hash and the number of examples of files or URLs, as a node reads them.

        Args:
            node: The id of the node.
            wanted: The paths and URLs; if empty, no query is sent and the result is empty.

        Returns:
            One answer for each query, in the order of the queries.

        Raises:
            Unavailable: The node is not connected, or its session ended before the answer.
            Unsupported: The agent does not support path queries, or its answer is invalid.
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
        """Pass an answer of an agent to the path query that waits for it.

        Returns:
            True if the answer belongs to a path query, even if its caller no longer waits. False if it answers another
            kind of request.
        """
        known = self._open.get(answer.ticket)
        if known is not None and not known[1].done():
            known[1].set_result(answer)
        return answer.ticket.startswith(f"{INSPECT} ")

    def _left(self, session: Session) -> None:
        for over, answer in self._open.values():
            if over is session and not answer.done():
                answer.set_exception(Unavailable(f"node {session.node} went while it read"))
