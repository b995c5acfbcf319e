"""Tests of batches: policies in the scheduler's process answer within the batch, and those in other processes after it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from hopyard.policy import Cluster, Policy
from hopyard.policy.vocabulary import RequestMade, StreamId
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
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.journal.codec import decode, encode
from hopyard_engine.policy_host import Host, PolicyHost, host
from hopyard_scheduler.policy_process.policy import Limits, RemotePolicy
from hopyard_scheduler.runtime import batch
from hopyard_scheduler.runtime.batch import MAX_BATCH_EVENTS, Batch, Item, PendingUpCall
from tests.timing import HANG_SECONDS
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick


class Waits(Policy):
    """A policy that sets a far timer, so that its experiment does not end."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def allocate_jobs(self, cluster: Cluster) -> None:
        cluster.wake_at(cluster.now + 1e6)

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        self.threads.add(threading.get_ident())
        if request.ticket == "leave":
            sys.exit("it leaves")


def in_a_process() -> RemotePolicy:
    """Return a policy in another process, which no batch asks."""
    nothing: Any = None
    return RemotePolicy("mine", StreamId("x"), "{}", {}, nothing, nothing, Limits(1.0, 1.0), "")


class Shell:
    """A small scheduler around batches: the core, policies and hosts."""

    def __init__(self, *names: str) -> None:
        self.core = Core()
        self.policies = {name: Waits() for name in names}
        self.hosts: dict[str, Host | RemotePolicy] = {n: PolicyHost(p) for n, p in self.policies.items()}
        self.drive(NodeJoined(1.0, "n", "a", tuple(SlotSpec(f"n/{i}") for i in range(2))))
        for name in names:
            self.drive(StreamCreated(1.0, StreamId(name), settings()))

    def drive(self, *events: Event) -> Batch:
        waiting = [Item(event) for event in reversed(events)]
        batch = Batch(self.core, lambda: waiting.pop() if waiting else None, lambda call: self.hosts[call.stream])
        batch.drive()
        self.left = len(waiting)
        return batch

    def answered(self, parked: PendingUpCall) -> PolicyAnswered | PolicyFailed:
        """Return the answer of the policy to a parked up-call."""
        name = parked.call.stream
        return PolicyHost(self.policies[name]).answer(self.core.streams[name], parked.call)


def records(batch: Batch, stream: str) -> list[Event]:
    return [decode(e.kind, e.payload) for e in batch.entries if e.stream == stream]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose batches have no short time limit, so that slow hosts pass."""
    monkeypatch.setattr(batch, "MAX_BATCH_SECONDS", HANG_SECONDS)
    return Shell("x", "y")


def test_policies_that_answer_at_once_answer_in_their_batch(shell: Shell) -> None:
    batch = shell.drive(*(Requested(2.0, StreamId(name), f"r{i}", {}, 1) for i in range(3) for name in "xy"))
    for name in "xy":
        assert [type(event) for event in records(batch, name)] == [Requested, PolicyAnswered] * 3
    assert not batch.take_parked()
    assert shell.policies["x"].threads == {threading.get_ident()}


def test_a_policy_in_a_process_holds_up_its_own_experiment_only(shell: Shell) -> None:
    shell.hosts["x"] = in_a_process()
    batch = shell.drive(
        Requested(2.0, StreamId("x"), "r1", {}, 1),
        Requested(2.0, StreamId("y"), "r1", {}, 1),
        Requested(2.0, StreamId("y"), "r2", {}, 1),
    )
    (parked,) = batch.take_parked()
    assert (parked.call.stream, parked.policy) == ("x", shell.hosts["x"])
    assert shell.core.awaits_answer(StreamId("x"))
    assert [type(event) for event in records(batch, "x")] == [Requested]
    assert [type(event) for event in records(batch, "y")] == [Requested, PolicyAnswered] * 2
    answer = shell.answered(parked)
    assert records(shell.drive(answer), "x")[0] == answer
    assert not shell.core.awaits_answer(StreamId("x"))


def test_the_up_calls_of_two_policies_in_processes_are_both_parked(shell: Shell) -> None:
    shell.hosts = {name: in_a_process() for name in "xy"}
    batch = shell.drive(Requested(2.0, StreamId("x"), "r1", {}, 1), Requested(2.0, StreamId("y"), "r1", {}, 1))
    both = batch.take_parked()
    assert sorted(parked.call.stream for parked in both) == ["x", "y"]
    for parked in both:
        shell.drive(shell.answered(parked))
        assert not shell.core.awaits_answer(parked.call.stream)


def test_a_node_is_lost_while_a_policy_is_asked(shell: Shell) -> None:
    shell.hosts["x"] = in_a_process()
    (parked,) = shell.drive(Requested(2.0, StreamId("x"), "r1", {}, 1)).take_parked()
    batch = shell.drive(NodeExpired(3.0, "n"))
    assert records(batch, "x") == []
    assert records(batch, "y") != []
    answer = shell.answered(parked)
    assert [type(e).__name__ for e in records(shell.drive(answer), "x")][:2] == ["PolicyAnswered", "NodeLost"]


def test_a_policy_that_leaves_the_process_fails_its_experiment(shell: Shell) -> None:
    batch = shell.drive(Requested(2.0, StreamId("x"), "leave", {}, 1))
    failed = records(batch, "x")[1]
    assert isinstance(failed, PolicyFailed)
    assert "SystemExit: it leaves" in str(failed.reason)
    assert str(shell.core.streams[StreamId("x")].reason).startswith("policy error: Waits on up-call")


def test_a_host_that_raises_fails_its_experiment(shell: Shell) -> None:
    class Broken:
        def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered:
            raise KeyError("no such thing")

    shell.hosts["x"] = Broken()
    batch = shell.drive(Requested(2.0, StreamId("x"), "r1", {}, 1), Requested(2.0, StreamId("y"), "r1", {}, 1))
    failed = records(batch, "x")[1]
    assert isinstance(failed, PolicyFailed)
    assert str(failed.reason) == "KeyError: 'no such thing'"
    assert any(isinstance(event, PolicyAnswered) for event in records(batch, "y"))


def test_an_experiment_that_is_not_there_costs_its_event_only(shell: Shell) -> None:
    batch = shell.drive(Operated(2.0, StreamId("nobody"), "pause"), Requested(2.0, StreamId("y"), "r1", {}, 1))
    assert [item.error is not None for item in batch.items] == [True, False]


def test_a_batch_has_its_bounds(shell: Shell) -> None:
    events: list[Any] = [Operated(2.0, StreamId("x"), "resume") for _ in range(MAX_BATCH_EVENTS + 5)]
    batch = shell.drive(*events)
    assert len(batch.items) <= MAX_BATCH_EVENTS
    assert len(batch.items) + shell.left == len(events)


def test_the_answer_of_a_built_in_policy_is_encoded_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Event] = []

    def counted(event: Event) -> bytes:
        encoded.append(event)
        return encode(event)

    monkeypatch.setattr(batch, "encode", counted)
    monkeypatch.setattr(host, "encode", counted)
    found = records(shell.drive(Requested(2.0, StreamId("x"), "r1", {}, 1)), "x")
    assert [type(event) for event in found] == [Requested, PolicyAnswered]
    assert sorted(type(event).__name__ for event in encoded) == ["PolicyAnswered", "Requested"]
