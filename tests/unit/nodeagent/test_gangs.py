"""Tests of how the agent of a rank asks the agent of rank 0 for the place of its gang, over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest

from hopyard._net.server import Server
from hopyard.errors import TimedOut
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2, node_agent_pb2, node_agent_pb2_grpc, resource_manager_pb2
from hopyard_nodeagent import servicer
from hopyard_nodeagent.runs import rendezvous
from tests.access import AcceptEveryone, AnyTicket
from tests.timing import HANG_SECONDS

SECOND = RunKey(StreamId("e1"), "j1", 1, 1)


class Leader(node_agent_pb2_grpc.NodeAgentServiceServicer):
    """The agent of rank 0: the first `still` calls never return, later ones answer."""

    def __init__(self, still: int) -> None:
        self.still, self.calls = still, 0

    async def JoinGang(
        self, request: node_agent_pb2.JoinGangRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> node_agent_pb2.JoinGangResponse:
        self.calls += 1
        if self.calls <= self.still:
            await asyncio.Event().wait()
        return node_agent_pb2.JoinGangResponse(place=common_pb2.GangPlace(host="a", secret=str(request.run.rank)))


async def asked(leader: Leader, seconds: float) -> str:
    """Return the secret that rank 1 receives from rank 0 within a number of seconds."""
    server = Server("agent", authenticator=AcceptEveryone("ticket", "JoinGang"))
    server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, leader, servicer.SERVICE)
    address = await server.start()
    try:
        start = resource_manager_pb2.StartRun(world=2, rank_addresses=[address, "127.0.0.1:9"])
        gang = await rendezvous.gang_of(SECOND, start, seconds, AnyTicket())
        assert gang is not None
        return gang.place.secret
    finally:
        await server.stop(0)


async def test_an_agent_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_ANSWER_SECONDS", 0.1)
    leader = Leader(still=2)  # type: ignore[abstract]
    assert await asked(leader, HANG_SECONDS) == "0"
    assert leader.calls >= 3  # a call without an answer is repeated


async def test_one_that_never_answers_is_waited_for_no_longer_than_for_the_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous, "_ANSWER_SECONDS", 0.1)
    with pytest.raises(TimedOut, match=r"rank 0 of its gang, on the agent at .*, was not ready in 0\.5 s: "):
        await asked(Leader(still=1000), 0.5)  # type: ignore[abstract]
