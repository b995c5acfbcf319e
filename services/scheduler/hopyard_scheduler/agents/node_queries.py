"""Queries to nodes: the size and the hash of files or URLs (path queries), and the logs of experiments."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

from hopyard._runtime.datasets.node_query import INSPECT, PathAnswer, PathQuery, answered, question
from hopyard._runtime.job_log import LOGS, LogQuery, logs_answered
from hopyard.errors import Unavailable, Unsupported
from hopyard.v1 import resource_manager_pb2
from hopyard_scheduler.agents.sessions import Session, Sessions

LOG_SECONDS: Final = 20.0
"""Time limit in seconds of a query about logs."""

_Answer = asyncio.Future[resource_manager_pb2.NodeAnswer]


class Inspections:
    """Sends queries about paths and logs to nodes and returns the answers.

    A query about paths has no timeout, because reading a large file takes long. It fails when the session of its node ends.

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
            One answer for each query, in the order of the queries. If the node cannot read a path or URL, its answer contains the
            error.

        Raises:
            Unavailable: The node is not connected, or its session ended before the answer.
            Unsupported: The agent does not support path queries, or its answer is invalid.
        """
        if not wanted:
            return []
        result = await self._result(node, INSPECT, question(wanted))
        try:
            return answered(result, len(wanted))
        except ValueError as error:
            raise Unsupported(f"node {node}: {error}") from error

    async def logs(self, node: str, wanted: LogQuery) -> dict[str, tuple[int, int]]:
        """Measure the logs of experiments on a node, and delete those of the experiments in `wanted.delete`.

        Args:
            node: The id of the node.
            wanted: The experiments, identified by the ids of their groups, whose logs are measured, or measured and deleted.

        Returns:
            (number of logs, their bytes) by experiment. Experiments without logs on the node are left out.

        Raises:
            Unavailable: The node is not connected, its session ended, or it did not answer within `LOG_SECONDS` seconds.
            Unsupported: The agent does not support such queries, or it failed.
        """
        try:
            async with asyncio.timeout(LOG_SECONDS):
                result = await self._result(node, LOGS, wanted.to_json())
        except TimeoutError as error:
            raise Unavailable(f"node {node} did not say within {LOG_SECONDS:g} s which logs it has") from error
        try:
            return logs_answered(result)
        except ValueError as error:
            raise Unsupported(f"node {node}: {error}") from error

    async def _result(self, node: str, kind: str, payload: str) -> str:
        """Send a question to a node, wait for the answer, and return it as JSON text.

        Args:
            node: The id of the node.
            kind: `INSPECT` (paths) or `LOGS`.
            payload: The question as JSON text.

        Raises:
            Unavailable: The node is not connected, or its session ended before the answer.
            Unsupported: The agent does not support such questions, or it failed.
        """
        session = self._sessions.of(node)
        if session is None or not session.ready:
            raise Unavailable(f"node {node} is not connected")
        ticket = f"{kind} {uuid.uuid4().hex}"
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._open[ticket] = (session, answer)
        try:
            asked = resource_manager_pb2.NodeQuestion(ticket=ticket, kind=kind, payload_json=payload)
            session.send(resource_manager_pb2.AgentSessionResponse(question=asked))
            said = await answer
        finally:
            del self._open[ticket]
        if said.error:
            raise Unsupported(f"node {node}: {said.error}")
        return said.result_json

    def answered(self, answer: resource_manager_pb2.NodeAnswer) -> bool:
        """Pass an answer of an agent to the query that waits for it.

        Returns:
            True if the answer belongs to a query about paths or logs, even if its caller no longer waits. False if it answers another
            kind of request.
        """
        known = self._open.get(answer.ticket)
        if known is not None and not known[1].done():
            known[1].set_result(answer)
        return answer.ticket.startswith((f"{INSPECT} ", f"{LOGS} "))

    def _left(self, session: Session) -> None:
        for over, answer in self._open.values():
            if over is session and not answer.done():
                answer.set_exception(Unavailable(f"node {session.node} went while it read"))
