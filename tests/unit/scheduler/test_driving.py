"""Batches: policies that answer at once, policies that think, and the thread that drives meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hopyard._net.server.killable_threads import Threads, Work
from hopyard.policy import Cluster, Policy
from hopyard.policy.vocabulary import RequestMade
from hopyard_engine.core import Core
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import (
    Event,
    NodeExpired,
    NodeJoined,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    Requested,
    StreamCreated,
)
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.journal.codec import decode
from hopyard_engine.policy_host import Host, LatePolicy, PolicyHost
from hopyard_scheduler.runtime import batch
from hopyard_scheduler.runtime.batch import MAX_BATCH_EVENTS, Batch, Item
from tests.reasons import failure
from tests.timing import HANG_SECONDS
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick


thinking: set[int] = set()
"""The threads on which policies wait for their gates."""

wait = Work.wait
"""Waits by the clock, as it is outside these tests."""


class Gated(Policy):
    """Waits for something, so that it does not end; thinks over requests until its gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[int] = set()

    def allocate_jobs(self, cluster: Cluster) -> None:
        cluster.wake_at(cluster.now + 1e6)

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        self.threads.add(threading.get_ident())
        if not self.gate.is_set():
            thinking.add(threading.get_ident())
            self.gate.wait()
            thinking.discard(threading.get_ident())
        if request.ticket == "leave":
            sys.exit("it leaves")


class Shell:
    """What stands around batches, in small."""

    def __init__(self, *names: str) -> None:
        self.core = Core()
        self.threads = Threads("policy")
        self.policies = {name: Gated() for name in names}
        self.hosts: dict[str, Host | PolicyFailed | None] = {n: PolicyHost(p) for n, p in self.policies.items()}
        self.drive(NodeJoined(1.0, "n", "a", tuple(SlotSpec(f"n/{i}") for i in range(2))))
        for name in names:
            self.drive(StreamCreated(1.0, name, settings()))

    def drive(self, *events: Event) -> Batch:
        waiting = [Item(event) for event in reversed(events)]
        batch = Batch(self.core, lambda: waiting.pop() if waiting else None, self.asked)
        batch.drive(self.threads)
        self.left = len(waiting)
        return batch

    def asked(self, call: UpCall) -> Host | PolicyFailed | None:
        return self.hosts[call.stream]


def records(batch: Batch, stream: str) -> list[Event]:
    return [decode(e.kind, e.payload) for e in batch.entries if e.stream == stream]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A policy takes longer than a moment if it waits for its gate, and only then, however slow the slot is."""

    def until_it_thinks(work: Work[Any], _: float) -> bool:
        while work.thread is None or work.thread.ident not in thinking:
            if wait(work, 0.001):
                return True
        return False

    monkeypatch.setattr(batch, "MAX_BATCH_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(Work, "wait", until_it_thinks)
    made = Shell("x", "y")
    yield made
    for policy in made.policies.values():
        policy.gate.set()
    made.threads.close()


def test_policies_that_answer_at_once_answer_in_their_batch(shell: Shell) -> None:
    batch = shell.drive(*(Requested(2.0, name, f"r{i}", {}, 1) for i in range(3) for name in "xy"))
    for name in "xy":
        assert [type(event) for event in records(batch, name)] == [Requested, PolicyAnswered] * 3
    assert not batch.parked
    assert threading.get_ident() not in shell.policies["x"].threads


@pytest.mark.merge
def test_a_policy_that_thinks_holds_up_its_own_experiment_only(shell: Shell) -> None:
    shell.policies["x"].gate.clear()
    batch = shell.drive(
        Requested(2.0, "x", "r1", {}, 1), Requested(2.0, "y", "r1", {}, 1), Requested(2.0, "y", "r2", {}, 1)
    )
    (parked,) = batch.parked
    assert parked.call.stream == "x"
    assert shell.core.thinks("x")
    assert [type(event) for event in records(batch, "x")] == [Requested]
    assert [type(event) for event in records(batch, "y")] == [Requested, PolicyAnswered] * 2
    shell.policies["x"].gate.set()
    assert isinstance(parked.work, Work)
    assert wait(parked.work, HANG_SECONDS)
    answer = parked.work.result()
    assert isinstance(answer, PolicyAnswered)
    assert not records(batch, "x")[1:]  # The thread that was left did nothing but answer.
    assert records(shell.drive(answer), "x")[0] == answer
    assert not shell.core.thinks("x")


@pytest.mark.merge
def test_two_policies_that_think_are_both_left_to_it(shell: Shell) -> None:
    for policy in shell.policies.values():
        policy.gate.clear()
    batch = shell.drive(Requested(2.0, "x", "r1", {}, 1), Requested(2.0, "y", "r1", {}, 1))
    assert sorted(parked.call.stream for parked in batch.parked) == ["x", "y"]
    for parked in batch.parked:
        shell.policies[parked.call.stream].gate.set()
        assert isinstance(parked.work, Work)
        assert wait(parked.work, HANG_SECONDS)
        answer = parked.work.result()
        assert isinstance(answer, PolicyAnswered)
        assert answer.stream == parked.call.stream


@pytest.mark.merge
def test_a_node_is_lost_while_a_policy_thinks(shell: Shell) -> None:
    shell.policies["x"].gate.clear()
    (parked,) = shell.drive(Requested(2.0, "x", "r1", {}, 1)).parked
    batch = shell.drive(NodeExpired(3.0, "n"))
    assert records(batch, "x") == []
    assert records(batch, "y") != []
    shell.policies["x"].gate.set()
    assert isinstance(parked.work, Work)
    assert wait(parked.work, HANG_SECONDS)
    answer = parked.work.result()
    assert answer is not None
    assert [type(e).__name__ for e in records(shell.drive(answer), "x")][:2] == ["PolicyAnswered", "NodeLost"]


def test_a_policy_that_leaves_the_process_fails_its_experiment(shell: Shell) -> None:
    batch = shell.drive(Requested(2.0, "x", "leave", {}, 1))
    failed = records(batch, "x")[1]
    assert isinstance(failed, PolicyFailed)
    assert "SystemExit: it leaves" in str(failed.reason)
    assert str(shell.core.streams["x"].reason).startswith("policy error: Gated on up-call")


def test_a_host_that_raises_fails_its_experiment(shell: Shell) -> None:
    def make() -> Host:
        raise KeyError("no such thing")

    shell.hosts["x"] = LatePolicy(make)
    batch = shell.drive(Requested(2.0, "x", "r1", {}, 1), Requested(2.0, "y", "r1", {}, 1))
    failed = records(batch, "x")[1]
    assert isinstance(failed, PolicyFailed)
    assert str(failed.reason) == "KeyError: 'no such thing'"
    assert any(isinstance(event, PolicyAnswered) for event in records(batch, "y"))


def test_a_policy_that_is_to_be_made_again_is_parked_unasked(shell: Shell) -> None:
    shell.hosts["x"] = None
    (parked,) = shell.drive(Requested(2.0, "x", "r1", {}, 1)).parked
    assert parked.work is None
    assert shell.core.thinks("x")


def test_an_answer_that_is_there_is_taken_and_nobody_asked(shell: Shell) -> None:
    number = shell.core.streams["x"].conversation.number + 1
    shell.hosts["x"] = PolicyFailed(2.0, "x", number, failure("it hung"), unheard=True)
    batch = shell.drive(Requested(2.0, "x", "r1", {}, 1))
    assert records(batch, "x")[1] == shell.hosts["x"]
    assert str(shell.core.streams["x"].reason) == "policy error: it hung"


def test_an_experiment_that_is_not_there_costs_its_event_only(shell: Shell) -> None:
    batch = shell.drive(Operated(2.0, "nobody", "pause"), Requested(2.0, "y", "r1", {}, 1))
    assert [item.error is not None for item in batch.items] == [True, False]


def test_a_batch_has_its_bounds(shell: Shell) -> None:
    events: list[Any] = [Operated(2.0, "x", "resume") for _ in range(MAX_BATCH_EVENTS + 5)]
    batch = shell.drive(*events)
    assert len(batch.items) <= MAX_BATCH_EVENTS
    assert len(batch.items) + shell.left == len(events)
