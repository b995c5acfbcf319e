"""Tests of the hello of an agent that ran on while its cluster was restored from a backup."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from unittest.mock import AsyncMock, MagicMock

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core.events import NodeJoined
from hopyard_scheduler.agents.session_requests import SessionRequests
from hopyard_scheduler.agents.sessions import Session

pytestmark = pytest.mark.quick

RUN = common_pb2.RunRef(experiment="e", job="3", attempt=2)


def opened(hello: pb.AgentHello) -> tuple[Session, MagicMock, AsyncMock]:
    """Open a session at a scheduler of the history "new"; return it, the register of sessions, and the mock that gets events."""
    sessions, runtime = MagicMock(), MagicMock()
    sessions.occupied.return_value = False
    runtime.journal.epoch, runtime.journal.cluster, runtime.journal.history = 7, "c", "new"
    runtime.clock.return_value = 1.0
    runtime.submit = AsyncMock()
    requests = SessionRequests(runtime, sessions, MagicMock(), MagicMock(), MagicMock(), MagicMock())

    async def sent() -> AsyncIterator[pb.AgentSessionRequest]:
        yield pb.AgentSessionRequest(hello=hello)

    return asyncio.run(requests.open(sent())), sessions, runtime.submit


def test_an_agent_of_another_history_gets_only_a_welcome(caplog: pytest.LogCaptureFixture) -> None:
    # Its epoch may be any: the histories are compared first.
    hello = pb.AgentHello(node="n", incarnation="a", cluster="c", history="old", epoch=99, runs=[RUN])
    with caplog.at_level(logging.WARNING):
        session, sessions, submit = opened(hello)
    assert session.closed
    first, then = asyncio.run(_both(session))
    assert first is not None
    assert (first.welcome.history, first.welcome.epoch, first.welcome.cluster) == ("new", 7, "c")
    assert then is None
    sessions.open.assert_not_called()
    submit.assert_not_called()
    assert "node n ran on while this cluster was restored from a backup" in caplog.text
    assert "run 2 of job 3 of experiment e" in caplog.text


@pytest.mark.parametrize("history", ["", "new"])
def test_an_agent_of_this_history_or_of_none_joins(history: str) -> None:
    hello = pb.AgentHello(node="n", incarnation="b", cluster="c", history=history, discarded=[RUN])
    session, sessions, submit = opened(hello)
    assert not session.closed
    sessions.open.assert_called_once_with(session)
    (event,) = submit.call_args.args
    assert isinstance(event, NodeJoined)
    assert event.discarded == (RunKey(StreamId("e"), "3", 2),)


async def _both(session: Session) -> tuple[pb.AgentSessionResponse | None, pb.AgentSessionResponse | None]:
    return await session.next(), await session.next()
