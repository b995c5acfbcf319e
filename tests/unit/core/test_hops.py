"""Tests of model hops: deferred uploads, uploads that the scheduler orders, and their counters."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.policy.vocabulary import ExperimentState, JobState, RunEndReason, StartJob, StreamId, TerminateJob
from hopyard_engine.core.effects import OrdersGiven, Start
from hopyard_engine.core.events import NodeDrained, Operated, SnapshotShipped, Started
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def made(ship_every: int = 0, **terms: Any) -> Rig:
    """Return a core with two nodes of one slot each, and one job."""
    rig = Rig(capacity=1, ship_every=ship_every, **terms)
    rig.join("n2")
    rig.create()
    return rig


def unit(rig: Rig, slot: str, *, fetched: int = 0, from_store: bool = False, score: float = 0.5) -> SnapshotEntry:
    """Run a job for one position and return its snapshot, 10 bytes on the node of the run."""
    rig.command(StartJob("1", (slot,), until=rig.job().position + 1, preemptible=False))
    run = rig.run()
    rig.say(rig.key(), Started(run.start, fetched, from_store))
    rig.report(run.until, score, at_until=True)
    rig.ended(RunEndReason.UNTIL, run.until, snapshot(run.until))
    entry = rig.stream.snapshots.get("1", run.until)
    assert entry is not None
    return entry


def shipped(rig: Rig, node: str, position: int, error: str = "") -> None:
    order = next(order for order in rig.core.orders(node) if order.position == position)
    rig.feed(SnapshotShipped(rig.now, StreamId("x"), node, order.number, "1", position, f"s{position}", error))


def positions(rig: Rig) -> list[int]:
    return rig.stream.snapshots.positions("1")


def test_a_run_is_told_whether_its_snapshots_are_shipped_unasked() -> None:
    for ship_every, by_order in ((1, False), (0, True), (3, True)):
        rig = made(ship_every)
        rig.command(StartJob("1", ("n1/0",)))
        assert [start.ships_by_order for start in rig.sent(Start)] == [by_order]  # type: ignore[union-attr]


def test_a_hop_takes_no_copy_to_the_store_and_is_counted() -> None:
    rig = made()
    first = unit(rig, "n1/0")
    assert (first.deferred, first.stored, first.nodes) == (True, False, {"n1"})
    assert rig.of(OrdersGiven) == []
    unit(rig, "n2/0", fetched=10)
    unit(rig, "n1/0", fetched=10)
    unit(rig, "n1/0")
    hops = rig.stream.hops
    assert (hops.direct, hops.direct_bytes, hops.fetched, hops.stored) == (2, 20, 0, 0)
    assert rig.core.orders("n1") == rig.core.orders("n2") == []


def test_what_came_from_the_store_is_counted_apart() -> None:
    rig = made()
    unit(rig, "n1/0")
    unit(rig, "n2/0", fetched=10, from_store=True)
    assert (rig.stream.hops.direct, rig.stream.hops.fetched, rig.stream.hops.fetched_bytes) == (0, 1, 10)


def test_the_loss_of_one_node_costs_one_unit() -> None:
    rig = made()
    unit(rig, "n1/0")
    unit(rig, "n2/0", fetched=10)
    assert positions(rig) == [1, 2]
    rig.expire("n2")
    assert (rig.job().state, rig.job().position, positions(rig)) == (JobState.SUSPENDED, 1, [1])


def test_when_the_newest_lies_on_two_nodes_the_one_before_is_not_needed() -> None:
    rig = made()
    unit(rig, "n1/0")
    unit(rig, "n2/0", fetched=10)
    rig.command(StartJob("1", ("n1/0",), until=3))
    rig.say(rig.key(), Started(2, 10))
    assert positions(rig) == [2]
    rig.expire("n2")
    assert positions(rig) == [2]


def test_a_model_that_stays_on_one_node_is_gone_with_it() -> None:
    rig = made()
    unit(rig, "n1/0")
    unit(rig, "n1/0")
    assert positions(rig) == [2]
    rig.expire("n1")
    assert (rig.job().state, rig.job().position) == (JobState.PENDING, 0)


def test_every_so_many_units_a_snapshot_is_stored() -> None:
    rig = made(2)
    unit(rig, "n1/0")
    assert rig.core.orders("n1") == []
    entry = unit(rig, "n2/0", fetched=10)
    assert rig.of(OrdersGiven) == [OrdersGiven("n2")]
    shipped(rig, "n2", 2)
    assert entry.stored
    assert (rig.stream.hops.stored, rig.stream.hops.stored_bytes) == (1, 10)
    unit(rig, "n2/0")
    assert positions(rig) == [2, 3]
    rig.expire("n2")
    assert (rig.job().position, positions(rig)) == (2, [2])


def test_a_repeated_result_of_an_upload_is_counted_once() -> None:
    rig = made(1)
    rig.command(StartJob("1", ("n1/0",), until=9))
    rig.kept(1)
    for _ in range(3):
        rig.stored(1)
    assert (rig.stream.hops.stored, rig.stream.hops.stored_bytes) == (1, 10)


def test_a_job_that_ended_leaves_its_result_in_the_store_and_the_experiment_waits_for_it() -> None:
    rig = made(max_position=2, jobs=1)
    unit(rig, "n1/0")
    unit(rig, "n2/0", fetched=10)
    assert rig.job().state is JobState.COMPLETED
    assert [order.position for order in rig.core.orders("n2")] == [2]
    assert (rig.core.orders("n1"), positions(rig)) == ([], [1, 2])  # It stays until the other is stored.
    assert rig.stream.state is ExperimentState.ENDING
    shipped(rig, "n2", 2)
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"
    assert (rig.stream.hops.stored, positions(rig)) == (1, [2])


def test_what_was_terminated_is_not_stored() -> None:
    rig = made()
    unit(rig, "n1/0")
    rig.create()
    rig.start("2", "n2/0", until=1)
    rig.report(1, 0.9, "2", at_until=True)
    rig.command(TerminateJob("1"))
    assert rig.core.orders("n1") == []
    assert positions(rig) == []


def test_a_pause_waits_until_all_is_stored() -> None:
    rig = made()
    unit(rig, "n1/0")
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert rig.stream.state is ExperimentState.PAUSING
    assert rig.of(OrdersGiven) == [OrdersGiven("n1")]
    shipped(rig, "n1", 1)
    assert str(rig.stream.state) == "ExperimentState.PAUSED"


def test_a_store_that_refuses_does_not_keep_a_pause_waiting() -> None:
    rig = made()
    unit(rig, "n1/0")
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    shipped(rig, "n1", 1, "the store is full")
    assert rig.stream.state is ExperimentState.PAUSED
    assert rig.core.orders("n1") == []


def test_what_waited_for_the_newest_is_stored_even_if_that_was_refused_until_all_was_over() -> None:
    rig = made(max_position=2, jobs=1, keep_best=1)
    unit(rig, "n1/0", score=0.9)
    unit(rig, "n2/0", fetched=10)
    shipped(rig, "n2", 2, "the store is full")
    assert (rig.stream.state, positions(rig)) == (ExperimentState.COMPLETED, [1, 2])
    rig.join("n2", 1, "a", snapshots=("s2",))
    shipped(rig, "n2", 2)
    assert [order.position for order in rig.core.orders("n1")] == [1]
    shipped(rig, "n1", 1)
    assert all(entry.stored for entry in rig.stream.snapshots.of("1"))


def test_when_the_node_that_was_asked_dies_another_with_a_copy_is_asked() -> None:
    rig = made()
    unit(rig, "n1/0")
    rig.command(StartJob("1", ("n2/0",), until=2, preemptible=False))
    rig.say(rig.key(), Started(1, 10))
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.LOST, 1)
    asked = next(node for node in ("n1", "n2") if rig.core.orders(node))
    other = {"n1": "n2", "n2": "n1"}[asked]
    rig.expire(asked)
    assert [order.position for order in rig.core.orders(other)] == [1]
    shipped(rig, other, 1)
    assert rig.stream.state is ExperimentState.PAUSED


def test_a_drained_node_brings_what_it_alone_has_to_the_store() -> None:
    rig = made()
    unit(rig, "n1/0")
    rig.feed(NodeDrained(rig.now, "n1"))
    assert [order.position for order in rig.core.orders("n1")] == [1]


def test_a_run_that_leaves_a_drained_node_leaves_its_snapshot_in_the_store() -> None:
    rig = made()
    rig.start("1", "n1/0", until=5)
    rig.report(1)
    rig.feed(NodeDrained(rig.now, "n1"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert [order.position for order in rig.core.orders("n1")] == [1]


def test_an_agent_that_comes_back_is_not_asked_to_upload_what_is_deferred() -> None:
    rig = made()
    entry = unit(rig, "n1/0")
    rig.join("n1", 1, "b", snapshots=("s1",))
    assert entry.deferred
    assert rig.core.orders("n1") == []


@pytest.mark.parametrize("ship_every", [0, 1])
def test_the_best_of_a_job_is_kept_beside_its_newest(ship_every: int) -> None:
    rig = made(ship_every, keep_best=1)
    rig.start("1", "n1/0", until=5)
    for position, score in ((1, 0.9), (2, 0.1), (3, 0.2)):
        rig.report(position, score)
        rig.taken(position)
    assert positions(rig) == [1, 3]


def test_a_pause_waits_for_nothing_that_the_quota_gives_up_once_the_newest_is_stored() -> None:
    """Check that a pause does not wait for the older deferred snapshot, whose upload is never ordered."""
    rig = made(snapshot_quota=0, keep_latest=4)
    unit(rig, "n1/0")
    unit(rig, "n2/0", fetched=10, score=0.9)
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert (rig.stream.state, positions(rig)) == (ExperimentState.PAUSING, [1, 2])
    shipped(rig, "n2", 2)
    assert positions(rig) == [2]
    assert rig.stream.state is ExperimentState.PAUSED
