"""Tests of unfinished uploads when an agent's session breaks, and when the agent restarts."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentState, JobState, RunEndReason, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.effects import AcknowledgeShipment, Effect, ForgetSnapshot, Noted, Record, ShipmentOrder
from hopyard_engine.core.events import NodeBack, Operated, SnapshotShipped
from tests.simulation import dump
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    """A core with a run that took a snapshot at 1, which is not uploaded yet."""
    made = Rig(capacity=1)
    made.create()
    made.start("1", "n1/0")
    made.report(1)
    made.taken(1)
    return made


def killed(rig: Rig, *snapshots: str) -> None:
    """Let the agent return in a new incarnation with these snapshots on its disk."""
    lives = sum(isinstance(event, NodeBack) for event in rig.journal)
    rig.join("n1", 1, f"life {lives + 1}", snapshots=snapshots)


def shipped(rig: Rig, order: int, position: int = 1, error: str = "") -> list[Effect]:
    """Report the result of an upload order."""
    return rig.feed(SnapshotShipped(rig.now, StreamId("x"), "n1", order, "1", position, f"s{position}", error))


def test_a_broken_session_does_not_settle_what_its_agent_is_still_shipping(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.join("n1", 1, "a", runs=(rig.key(),), snapshots=("s1",))
    assert rig.stream.state is ExperimentState.PAUSING
    assert rig.core.orders("n1") == []
    rig.stored(1)
    assert str(rig.stream.state) == "ExperimentState.PAUSED"


def test_an_agent_that_was_killed_is_told_to_ship_what_it_had_not(rig: Rig) -> None:
    killed(rig, "s1")
    assert rig.job().state is JobState.SUSPENDED
    assert [e.ship for e in rig.journal if isinstance(e, NodeBack)] == [(("1", 1),)]
    assert rig.core.orders("n1") == [ShipmentOrder(StreamId("x"), 1, "1", 1, "s1")]
    assert not rig.stream.snapshots.settled
    shipped(rig, 1)
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert (entry.stored, rig.stream.snapshots.settled, rig.core.orders("n1")) == (True, True, [])
    assert rig.of(AcknowledgeShipment) == [AcknowledgeShipment("n1", StreamId("x"), 1)]


def test_an_answer_is_taken_once_and_acknowledged_each_time(rig: Rig) -> None:
    killed(rig, "s1")
    shipped(rig, 1)
    assert rig.of(Record)
    assert shipped(rig, 1) == [AcknowledgeShipment("n1", StreamId("x"), 1)]


def test_an_experiment_does_not_end_before_what_was_ordered_is_stored(rig: Rig) -> None:
    rig.ended(RunEndReason.UNTIL, 10, snapshot(10))
    killed(rig, "s10")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.ENDING
    shipped(rig, 1, 10)
    assert str(rig.stream.state) == "ExperimentState.STOPPED"


def test_after_each_hello_the_order_is_given_anew_and_the_older_answer_counts_no_more(rig: Rig) -> None:
    killed(rig, "s1")
    killed(rig, "s1")
    assert [order.number for order in rig.core.orders("n1")] == [2]
    assert shipped(rig, 1) == [AcknowledgeShipment("n1", StreamId("x"), 1)]
    assert not rig.stream.snapshots.settled


def test_what_was_shipped_before_it_was_deleted_and_taken_anew_is_not_believed(rig: Rig) -> None:
    killed(rig, "s1")
    book = rig.stream.snapshots
    book.collect("1", False, lambda position: None)
    book.taken("1", snapshot(1), "n1", 2)
    assert shipped(rig, 1) == [AcknowledgeShipment("n1", StreamId("x"), 1)]
    book.not_shipping("n1", lambda job, attempt: True)
    book.order(("1", 1), "n1")
    assert shipped(rig, 1) == [AcknowledgeShipment("n1", StreamId("x"), 1)]
    entry = book.get("1", 1)
    assert entry is not None
    assert not entry.stored


def test_what_was_shipped_although_nobody_needs_it_any_more_is_deleted(rig: Rig) -> None:
    killed(rig, "s1")
    rig.start("1", "n1/0")
    rig.kept(2)
    assert shipped(rig, 1) == [
        ForgetSnapshot(StreamId("x"), "s1", (), True),
        AcknowledgeShipment("n1", StreamId("x"), 1),
    ]


def test_an_order_that_cannot_be_carried_out_leaves_the_snapshot_where_it_is_until_the_next_hello(rig: Rig) -> None:
    killed(rig, "s1")
    shipped(rig, 1, error="the store is full")
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert (entry.stored, entry.nodes, rig.stream.snapshots.settled) == (False, {"n1"}, True)
    assert [str(note.reason) for note in rig.of(Noted)] == ["the snapshot at 1 is not stored: the store is full"]
    rig.join("n1", 1, "life 1", snapshots=("s1",))
    assert [order.number for order in rig.core.orders("n1")] == [2]


def test_an_agent_that_begins_anew_settles_nothing_that_it_will_be_told_to_ship(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    killed(rig, "s1")
    assert rig.stream.state is ExperimentState.PAUSING
    shipped(rig, 1)
    assert str(rig.stream.state) == "ExperimentState.PAUSED"


def test_a_lost_node_owes_nothing(rig: Rig) -> None:
    killed(rig, "s1")
    rig.expire("n1")
    assert rig.core.orders("n1") == []
    assert rig.stream.snapshots.settled


def test_a_restarted_scheduler_knows_the_orders(rig: Rig) -> None:
    killed(rig, "s1")
    core = Core()
    for event in rig.journal:
        core.restore(event)  # type: ignore[arg-type]
    dump.compare(rig.stream, core.streams[StreamId("x")])
    assert core.orders("n1") == rig.core.orders("n1")


def test_an_answer_for_an_experiment_that_is_over_and_forgotten_is_acknowledged(rig: Rig) -> None:
    answer = SnapshotShipped(rig.now, StreamId("gone"), "n1", 7, "1", 1, "s1")
    assert rig.core.handle(answer) == [AcknowledgeShipment("n1", StreamId("gone"), 7)]
