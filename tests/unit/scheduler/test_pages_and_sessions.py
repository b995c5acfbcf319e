"""Tests of the pages of lists, and of sessions and leases with the test's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_scheduler import service
from hopyard_scheduler.agents.session_requests import SessionRequests
from hopyard_scheduler.agents.sessions import MAX_BUNDLE_BYTES, MAX_WAITING, Session, Sessions
from hopyard_scheduler.pagination import page

pytestmark = pytest.mark.quick


def test_pages_follow_each_other() -> None:
    items = list(range(7))
    first, token = page(items, 3, "")
    second, token2 = page(items, 3, token)
    third, end = page(items, 3, token2)
    assert (first, second, third, end) == ([0, 1, 2], [3, 4, 5], [6], "")


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (1001, ""), (1, "x"), (1, "9" * 5000), (1, "٣")])
def test_pages_refuse_what_is_no_page(size: int, token: str) -> None:
    with pytest.raises(InvalidInput, match="page_"):
        page([1], size, token)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_lost_node_s_session_ends_so_that_it_says_hello_again() -> None:
    clock = Clock()
    sessions = Sessions(10.0, clock)
    session = Session("a", "1", "x")
    sessions.open(session)
    clock.now += 12.0
    assert sessions.expired() == ["a"]
    sessions.forget("a")
    assert await session.next() is None
    sessions.alive(session)
    sessions.tick(2.5)
    # The time of the last message remains visible.
    assert (sessions.silent_seconds("a"), sessions.expired()) == (12.0, [])
    assert sessions.silent_seconds("b") == float("inf")


def test_a_silent_node_loses_its_lease_and_a_long_stall_renews_all() -> None:
    clock = Clock()
    sessions = Sessions(10.0, clock)
    sessions.open(Session("a", "1", "127.0.0.1:1"))
    sessions.open(Session("b", "1", "127.0.0.1:2"))
    clock.now += 8
    sessions.seen("b")
    clock.now += 3
    assert sessions.expired() == ["a"]
    clock.now += 60
    assert sessions.tick(2.5) == 68.5
    assert sessions.expired() == []
    assert sessions.silent_seconds("a") == 0


async def test_the_recovery_before_the_first_look_at_the_leases_is_no_stall(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, slept = Clock(), list[float]()
    scheduler = object.__new__(service.SchedulerService)
    scheduler._sessions = Sessions(10.0, clock)
    clock.now += 60  # The journals are read.

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 4:
            raise asyncio.CancelledError
        clock.now += seconds if len(slept) < 4 else 30

    monkeypatch.setattr(service, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        await scheduler._watch_leases()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["stalled for 27.5 s, which the leases of nodes do not include"]


def test_stalls_of_the_scheduler_do_not_count_however_often_they_come() -> None:
    clock = Clock()
    sessions = Sessions(10.0, clock)
    sessions.open(Session("a", "1", "x"))
    for _ in range(8):  # The scheduler runs for 1 s, then it is stopped for 3 s.
        clock.now += 4
        assert sessions.tick(1.0) == 3.0
        assert sessions.expired() == []
    for _ in range(3):  # It runs all the time.
        clock.now += 1
        assert sessions.tick(1.0) == 0.0
    assert sessions.silent_seconds("a") == 3.0
    clock.now += 8
    assert sessions.expired() == ["a"]


def test_a_node_whose_messages_the_scheduler_does_not_read_keeps_its_lease() -> None:
    """Check it with a message that waits because AppStat does not answer for a minute."""
    clock = Clock()
    sessions = Sessions(10.0, clock)
    sessions.open(Session("a", "1", "x"))
    with sessions.reading("a"):
        with sessions.reading("a"):  # Its older session has not ended yet.
            clock.now += 60
        assert sessions.expired() == []
        clock.now += 20
        assert sessions.expired() == []
    assert sessions.silent_seconds("a") == 0
    clock.now += 11
    assert sessions.expired() == ["a"]
    sessions.forget("a")
    with sessions.reading("a"):
        clock.now += 1
    assert sessions.silent_seconds("a") == 12


async def test_a_new_session_ends_the_older_one() -> None:
    sessions = Sessions(10.0, Clock())
    old, new = Session("a", "1", "x"), Session("a", "1", "x")
    sessions.open(old)
    sessions.open(new)
    assert await old.next() is None
    assert sessions.of("a") is new
    sessions.gone(old)
    assert sessions.of("a") is new


@pytest.mark.merge
async def test_a_session_that_is_not_read_is_cut_off() -> None:
    session = Session("a", "1", "x")
    session.send(pb.AgentSessionResponse(heartbeat=pb.SchedulerHeartbeat()))  # dropped: it comes before the welcome
    session.welcome(pb.AgentSessionResponse(welcome=pb.AgentWelcome(epoch=1)))
    for _ in range(MAX_WAITING):
        session.send(pb.AgentSessionResponse(heartbeat=pb.SchedulerHeartbeat()))
    received = 0
    while await session.next() is not None:
        received += 1
    assert received == MAX_WAITING - 1


def test_a_node_that_is_alive_is_taken_over_only_by_its_own_next_start() -> None:
    clock = Clock()
    sessions = Sessions(9.0, clock)
    sessions.open(Session("a", "1", "x", "home-1"))
    assert not sessions.occupied("a", "1", "home-1"), "the same agent, dialling again"
    assert not sessions.occupied("a", "2", "home-1"), "it was started anew"
    assert sessions.occupied("a", "2", "home-2")
    assert sessions.occupied("a", "2"), "who does not say its home is somebody else"
    assert not sessions.occupied("b", "2", "home-2")
    clock.now += 4
    assert not sessions.occupied("a", "2", "home-2"), "it has been silent for a third of its lease"


def acknowledged(sequence: int, size: int = 1) -> pb.AgentSessionResponse:
    run = common_pb2.RunRef(experiment="e" * size, job="j")
    return pb.AgentSessionResponse(ack=pb.ChannelAck(run=run, sequence=sequence))


async def test_what_waits_for_an_agent_goes_together_behind_the_welcome() -> None:
    session = Session("n", "i", "a", bundles=True)
    session.welcome(pb.AgentSessionResponse(welcome=pb.AgentWelcome(epoch=1)))
    for sequence in (1, 2, 3):
        session.send(acknowledged(sequence))
    session.close()
    welcome = await session.next()
    assert welcome is not None
    assert welcome.HasField("welcome")
    assert not welcome.more
    together = await session.next()
    assert together is not None
    assert [message.ack.sequence for message in (together, *together.more)] == [1, 2, 3]
    assert await session.next() is None
    assert await session.next() is None


async def test_what_goes_together_is_bounded() -> None:
    session = Session("n", "i", "a", bundles=True)
    session.welcome(pb.AgentSessionResponse(welcome=pb.AgentWelcome(epoch=1)))
    for sequence in range(5):
        session.send(acknowledged(sequence, MAX_BUNDLE_BYTES // 2))
    await session.next()
    sizes: list[int] = []
    while sum(sizes) < 5:
        message = await session.next()
        assert message is not None
        sizes.append(1 + len(message.more))
    assert sizes == [2, 2, 1]


async def test_an_agent_that_knows_no_bundles_gets_one_after_the_other() -> None:
    session = Session("n", "i", "a")
    session.welcome(pb.AgentSessionResponse(welcome=pb.AgentWelcome(epoch=1)))
    session.send(acknowledged(1))
    session.send(acknowledged(2))
    await session.next()
    for sequence in (1, 2):
        message = await session.next()
        assert message is not None
        assert message.ack.sequence == sequence
        assert not message.more


async def test_a_session_whose_events_wait_for_the_journal_keeps_the_lease_of_its_node() -> None:
    """While AppStat does not answer, the queue of events is full, and the heartbeats behind a message are not read."""
    clock, written, waits = Clock(), asyncio.Event(), asyncio.Event()
    sessions = Sessions(10.0, clock)
    session = Session("a", "1", "x")
    sessions.open(session)

    async def submit(event: object) -> None:
        waits.set()
        await written.wait()

    runtime: Any = SimpleNamespace(submit=submit, clock=clock)
    anything: Any = MagicMock()
    reader = SessionRequests(runtime, sessions, anything, anything, anything, anything)

    async def requests() -> AsyncIterator[pb.AgentSessionRequest]:
        yield pb.AgentSessionRequest(leaving=pb.AgentLeaving())
        yield pb.AgentSessionRequest(heartbeat=pb.AgentHeartbeat())

    reading = asyncio.create_task(reader.read(session, requests()))
    await waits.wait()
    clock.now += 60
    assert sessions.expired() == []
    written.set()
    await reading
    assert sessions.silent_seconds("a") == 0
    clock.now += 11
    assert sessions.expired() == ["a"]
