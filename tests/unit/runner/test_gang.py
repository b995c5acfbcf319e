"""Tests of the leader and the followers of a gang in one process, over real connections on loopback."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hopyard._runtime.runner.gang import leader
from hopyard._runtime.runner.gang.connections import (
    ABANDON_SECONDS,
    GangBrokenError,
    Link,
    ProcessGang,
    environment,
    judged,
)
from hopyard._runtime.runner.gang.follower import Follower, GangStep, Leave
from hopyard._runtime.runner.gang.leader import Leader
from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2
from hopyard.v1.resource_manager_pb2 import RunEnded, StartRun
from tests.timing import HANG_SECONDS

T = TypeVar("T")
SECONDS = HANG_SECONDS

LOST, FAILED = common_pb2.RUN_END_REASON_LOST, common_pb2.RUN_END_REASON_FAILED


def failed(message: str) -> RunEnded:
    """Return the end of a rank's run after an exception in the user's code."""
    return judged(3, message, user=True)


def fail(gang: ProcessGang, message: str) -> RunEnded:
    """End a rank's run with a failure, and return the verdict that it receives."""
    gang.failing(failed(message))
    return gang.verdict(failed(message))


class Noticed:
    """A callback of a gang for which a test can wait."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(SECONDS)


class Trio:
    """A gang of three ranks: one leader and two followers."""

    def __init__(self, folder: Path | None) -> None:
        self.pool = ThreadPoolExecutor(8)
        self.noticed = [Noticed() for _ in range(3)]
        self.leader = Leader(3, "127.0.0.1", self.noticed[0], folder=folder, gather_seconds=SECONDS)
        place = self.leader.place
        self.followers = {rank: Follower(place, rank, self.noticed[rank], verdict_seconds=SECONDS) for rank in (1, 2)}

    @property
    def all(self) -> list[ProcessGang]:
        return [self.leader, *self.followers.values()]

    def meanwhile(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        return self.pool.submit(call, *arguments)

    def join(self) -> None:
        for joining in [self.meanwhile(gang.join, SECONDS) for gang in self.all]:
            joining.result(SECONDS)

    def close(self) -> None:
        for gang in self.all:
            gang.close()
            gang.close()
        self.pool.shutdown()


@pytest.fixture(params=["TCP", "Unix"])
def trio(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trio]:
    """A gang over TCP, and one over a Unix socket at a path that is longer than the kernel allows."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    made = Trio(None if request.param == "TCP" else folder)
    try:
        yield made
    finally:
        made.close()


def test_the_leaders_steps_arrive_in_order_and_its_end_is_a_good_one(trio: Trio) -> None:
    trio.join()
    trio.leader.step(0, None)
    trio.leader.step(1, 3)
    trio.leader.leave(RunEndReason.SUSPENDED)
    trio.leader.close()
    for follower in trio.followers.values():
        assert [follower.next() for _ in range(3)] == [GangStep(0, None), GangStep(1, 3), Leave(RunEndReason.SUSPENDED)]


@pytest.mark.parametrize("trio", ["TCP"], indirect=True)
def test_only_ranks_that_are_missing_and_know_the_secret_are_let_in(trio: Trio) -> None:
    place = trio.leader.place
    for secret, rank in (("wrong", 1), (place.secret, 0), (place.secret, 3), (place.secret, "1")):
        with socket.create_connection((place.host, place.lead_port), timeout=SECONDS) as stranger:
            stranger.sendall(json.dumps({"secret": secret, "rank": rank}).encode() + b"\n")
            assert stranger.recv(1) == b"", "it is shown the door"
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[" * 50_000 + b"\n", b'{"secret": "\\ud800", "rank": 1}\n'):
        with socket.create_connection((place.host, place.lead_port), timeout=SECONDS) as stranger:
            stranger.sendall(said)
            assert stranger.recv(1) == b""
    trio.join()


@pytest.mark.parametrize("trio", ["TCP"], indirect=True)
def test_strangers_who_say_nothing_are_heard_a_few_at_a_time(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "HELLO_SECONDS", SECONDS)
    place = trio.leader.place

    with ExitStack() as stack:
        first, *_, last = [
            stack.enter_context(socket.create_connection((place.host, place.lead_port), timeout=0.5))
            for _ in range(leader.STRANGERS + 4)
        ]
        last.sendall(b"{}\n")
        with pytest.raises(TimeoutError):
            last.recv(1)
        first.sendall(b"{}\n")
        last.settimeout(SECONDS)
        assert last.recv(1) == b"", "it is shown the door when one of those before it was"
    trio.join()


def test_who_is_missing_is_named() -> None:
    leader = Leader(3, "127.0.0.1", Noticed())
    try:
        with pytest.raises(GangBrokenError, match=r"^of 3 ranks, not joined within 0 s: 1, 2$"):
            leader.join(0.0)
    finally:
        leader.close()


def test_who_comes_when_rank_0_has_left_is_told_at_once(trio: Trio) -> None:
    """Check a follower that connects after the leader has closed; its port may be open for a moment still."""
    trio.leader.close()
    with pytest.raises(GangBrokenError, match=r"^rank 0 (is gone|cannot be reached)"):
        trio.followers[1].join(SECONDS)


def test_a_place_that_nobody_is_at_is_named(trio: Trio) -> None:
    trio.leader.close()
    with socket.socket() as held:  # bound, but not listening: no other process gets the port
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        follower = Follower(common_pb2.GangPlace(host="127.0.0.1", lead_port=port), 1, Noticed())
        with pytest.raises(GangBrokenError, match=rf"rank 0 cannot be reached at 127.0.0.1:{port}: .*refused"):
            follower.join(SECONDS)
    assert fail(follower, "mine") == failed("mine")


def test_a_rank_that_is_gone_breaks_the_gang_and_explains_what_the_code_of_others_makes_of_it(trio: Trio) -> None:
    trio.join()
    deciding = trio.meanwhile(fail, trio.followers[1], "ConnectionError")
    trio.followers[2].close()
    trio.noticed[0].wait()
    mine = fail(trio.leader, "BrokenPipeError")
    with pytest.raises(GangBrokenError, match=r"^rank 2 is gone: its connection ended$"):
        trio.leader.step(3, None)
    for ended in (mine, deciding.result(SECONDS)):
        assert (ended.reason, ended.position) == (LOST, 3)
        assert ended.failure == common_pb2.FAILURE_CLASS_INFRASTRUCTURE
        assert ended.message == "rank 2 is gone: its connection ended"


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets threads that read connections continue only up to the first message or the end of the connection."""
    messages, gate = Link.messages, threading.Event()

    def first(link: Link) -> Iterator[dict[str, Any]]:
        yield from islice(messages(link), 1)
        gate.wait(SECONDS)

    monkeypatch.setattr(Link, "messages", first)
    yield
    gate.set()


@pytest.mark.usefixtures("unread")
def test_a_rank_that_is_gone_is_found_although_the_thread_that_reads_did_not_run() -> None:
    leader = Leader(2, "127.0.0.1", Noticed(), gather_seconds=0.0)
    try:
        with socket.create_connection((leader.place.host, leader.place.lead_port), timeout=SECONDS) as other:
            other.sendall(json.dumps({"secret": leader.place.secret, "rank": 1}).encode() + b"\n")
            leader.join(SECONDS)
            assert fail(leader, "mine") == failed("mine")
        ended = fail(leader, "ConnectionError")
        assert (ended.reason, ended.message) == (LOST, "rank 1 is gone: its connection ended")
    finally:
        leader.close()


@pytest.mark.usefixtures("unread")
def test_a_leader_that_is_gone_is_found_although_the_thread_that_reads_did_not_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = common_pb2.GangPlace(host="127.0.0.1", lead_port=server.getsockname()[1])
        follower = Follower(place, 1, Noticed(), verdict_seconds=0.0)
        try:
            with ThreadPoolExecutor(1) as pool:
                joining = pool.submit(follower.join, SECONDS)
                with server.accept()[0] as leader:
                    leader.sendall(b'{"go": true}\n')
                    joining.result(SECONDS)
                    assert fail(follower, "mine") == failed("mine")
            ended = fail(follower, "ConnectionError")
            assert (ended.reason, ended.message) == (LOST, "rank 0 is gone: its connection ended")
        finally:
            follower.close()


def test_what_failed_first_is_told_first(trio: Trio) -> None:
    trio.join()
    second = trio.meanwhile(fail, trio.followers[2], "ValueError: bad\ntraceback")
    trio.noticed[0].wait()
    first = trio.meanwhile(fail, trio.leader, "BrokenPipeError\ntraceback")
    third = trio.meanwhile(fail, trio.followers[1], "ConnectionError\ntraceback")
    ended = first.result(SECONDS)
    assert (ended.reason, ended.failure) == (FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message.startswith("rank 2: ValueError: bad\ntraceback\n")
    assert "BrokenPipeError\ntraceback" in ended.message
    assert "rank 1: ConnectionError" in ended.message
    for other in (second, third):
        assert other.result(SECONDS).message == ended.message


def test_a_failure_that_rank_0_was_told_of_is_told_as_it_was(trio: Trio) -> None:
    trio.join()
    own = trio.meanwhile(fail, trio.followers[1], "ValueError: bad")
    trio.noticed[0].wait()
    with pytest.raises(GangBrokenError) as broken:
        trio.leader.check()
    assert broken.value.user
    also = trio.meanwhile(fail, trio.followers[2], "ConnectionError")
    ended = fail(trio.leader, str(broken.value))
    assert ended.message == "rank 1: ValueError: bad"
    assert own.result(SECONDS).message == also.result(SECONDS).message == ended.message


def test_ranks_of_a_leader_that_is_gone_are_lost(trio: Trio) -> None:
    trio.join()
    trio.leader.step(0, 2)
    waiting = trio.followers[1]
    assert waiting.next() == GangStep(0, 2)
    trio.leader.close()
    with pytest.raises(GangBrokenError, match="rank 0 is gone: its connection ended") as broken:
        waiting.next()
    assert not broken.value.user
    ended = fail(trio.followers[2], "ConnectionError")
    assert (ended.reason, ended.message) == (LOST, "rank 0 is gone: its connection ended")


def test_a_follower_that_waits_hears_why_its_leader_failed(trio: Trio) -> None:
    trio.leader._gather_seconds = 0.0
    trio.join()
    ended = fail(trio.leader, "ValueError: mine")
    assert ended == failed("ValueError: mine")
    with pytest.raises(GangBrokenError, match="rank 0 says: ValueError: mine") as broken:
        trio.followers[1].next()
    assert broken.value.user


def test_code_that_does_not_notice_is_given_up_after_a_while() -> None:
    now = [100.0]
    noticed = Noticed()
    leader = Leader(2, "127.0.0.1", noticed, clock=lambda: now[0])
    follower = Follower(leader.place, 1, Noticed(), clock=lambda: now[0])
    with ThreadPoolExecutor(2) as pool:
        for joining in [pool.submit(gang.join, SECONDS) for gang in (leader, follower)]:
            joining.result(SECONDS)
    assert not leader.abandoned(1e9)
    follower.close()
    noticed.wait()
    assert not leader.abandoned(100.0 + ABANDON_SECONDS)
    assert leader.abandoned(100.1 + ABANDON_SECONDS)
    leader.close()


def test_the_kept_port_is_for_whoever_says_that_it_reuses_it(trio: Trio) -> None:
    port = trio.leader.place.rendezvous_port
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(server.getsockname(), timeout=SECONDS),
    ):
        pass
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))


def test_the_environment_is_the_runs_and_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "mine")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    start = wire.ApplicationStart(run=common_pb2.RunRef(rank=1), start=StartRun(world=2))
    with environment(start, common_pb2.GangPlace(host="h", rendezvous_port=7)):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        assert [os.environ[name] for name in names] == ["1", "2", "0", "h", "7"]
    assert os.environ["RANK"] == "mine"
    assert "MASTER_PORT" not in os.environ
    with environment(start, None):
        assert os.environ["RANK"] == "mine"
