"""Tests of nodes that are drained, leave, are lost and are forgotten, with cases computed by hand."""

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import JobState, RunEnd, RunEndReason, StartJob, StreamId
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.cluster.division import SlotKind
from hopyard_engine.core.cluster.nodes import ClusterNodeState
from hopyard_engine.core.effects import Decide, Kill, NodeReleased, Record, Send
from hopyard_engine.core.events import (
    ClusterEvent,
    DrainExpired,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeUndrained,
    SnapshotShipped,
    SnapshotStored,
    Started,
)
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from tests.unit.core.rig import Rig, snapshot
from tests.unit.core.test_pending_answers import Thinking

pytestmark = pytest.mark.quick


def made(**terms: object) -> Rig:
    """Return a core with the nodes n1 and n2, one slot each, on which job 1 has trained to position 1 on n1."""
    rig = Rig(capacity=1, **terms)
    rig.join("n2", 1)
    rig.create()
    rig.start("1", "n1/0", until=9)
    rig.report(1)
    return rig


def leave(rig: Rig, node: str = "n1") -> None:
    rig.feed(NodeLeaving(rig.now, node, "a"))


def recorded(rig: Rig) -> list[ClusterEvent]:
    """Return the events that the last event recorded in the journal of the cluster."""
    return [effect.event for effect in rig.of(Record) if effect.stream == CLUSTER_STREAM]  # type: ignore[misc]


def restored(*events: ClusterEvent) -> Core:
    core = Core()
    for event in events:
        core.restore_cluster(event)
    core.recovered()
    return core


JOINED = NodeJoined(100.0, "n1", "a", (SlotSpec("n1/0"),))


# ------------------------------------------------------------------------------------------------------------------ leaving


def test_a_leaving_node_is_released_when_its_run_is_suspended_and_its_snapshot_is_stored() -> None:
    rig = made()
    leave(rig)
    assert rig.sent(Decide)
    assert rig.core.node_state("n1") is ClusterNodeState.LEAVING
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert set(rig.stream.slots) == {"n2/0"}
    assert rig.of(NodeReleased) == []  # The run uploads the snapshot, which no other node has.
    rig.stored(1)
    assert rig.of(NodeReleased) == [NodeReleased("n1")]
    rig.expire("n1")
    rig.start("1", "n2/0")
    assert (rig.run().start, rig.job().losses) == (1, 0)


def test_an_idle_leaving_node_is_released_at_once_and_told_again_in_its_next_session() -> None:
    rig = made()
    leave(rig, "n2")
    assert rig.of(NodeReleased) == [NodeReleased("n2")]
    leave(rig, "n2")
    assert (recorded(rig), rig.of(NodeReleased)) == ([], [])
    rig.join("n2", 1)
    assert rig.of(NodeReleased) == [NodeReleased("n2")]


def test_a_leaving_node_uploads_the_deferred_snapshots_of_earlier_runs() -> None:
    """Check also a stream that has no slot on the node any more."""
    rig = made(ship_every=0)
    rig.taken(1)
    rig.ended(RunEndReason.SUSPENDED, 1)
    rig.command(StartJob("1", ("n2/0",), until=9))
    rig.nodes = ("n2",)
    rig.say(rig.key(), Started(1, 10))
    rig.say(rig.key(), SnapshotStored(1, "s1", ""))
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert entry.deferred
    entry.nodes.discard("n2")  # As if the node had deleted its copy.
    leave(rig)
    (order,) = rig.core.orders("n1")
    assert (order.position, rig.of(NodeReleased)) == (1, [])
    rig.feed(SnapshotShipped(rig.now, StreamId("x"), "n1", order.number, "1", 1, "s1"))
    assert rig.of(NodeReleased) == [NodeReleased("n1")]


def test_copies_on_two_leaving_nodes_do_not_protect_each_other() -> None:
    rig = made(ship_every=0)
    rig.taken(1)
    rig.ended(RunEndReason.SUSPENDED, 1)
    rig.command(StartJob("1", ("n2/0",), until=9))
    rig.say(rig.key(), Started(1, 10))
    leave(rig)
    assert rig.core.orders("n1") == []  # n2 has a copy and stays.
    rig.feed(NodeDrained(rig.now, "n2"))
    assert [order.position for node in ("n1", "n2") for order in rig.core.orders(node)] == [1]


def test_an_upload_that_was_given_up_is_tried_again_when_its_node_leaves() -> None:
    rig = made()
    rig.taken(1)
    rig.say(rig.key(), SnapshotStored(1, "s1", "disk full"))
    rig.ended(RunEndReason.SUSPENDED, 1)
    leave(rig)
    (order,) = rig.core.orders("n1")
    rig.feed(SnapshotShipped(rig.now, StreamId("x"), "n1", order.number, "1", 1, "s1", "disk full"))
    assert rig.of(NodeReleased) == [NodeReleased("n1")]  # It is not tried without end.


def test_a_gang_with_a_rank_on_a_leaving_node_is_suspended_as_a_whole() -> None:
    rig = Rig(capacity=1)
    rig.join("n2", 1)
    rig.create()
    rig.start("1", "n1/0", "n2/0", until=9)
    rig.say(rig.key(rank=1), Started(0))
    leave(rig, "n2")
    assert [send.node for send in rig.of(Send)] == ["n1"]  # To rank 0, which leads.
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.ended(RunEndReason.SUSPENDED, 1, rank=1)
    assert (rig.job().state, rig.job().losses) == (JobState.SUSPENDED, 0)
    assert rig.of(NodeReleased) == [NodeReleased("n2")]


def test_nothing_starts_on_a_leaving_node_until_its_agent_starts_anew() -> None:
    rig = Rig(capacity=1)
    leave(rig)
    assert (rig.stream.share, set(rig.stream.slots)) == (0, set())
    rig.join("n1", 1)
    assert rig.stream.share == 0
    rig.join("n1", 1, "b")
    assert (rig.stream.share, rig.core.node_state("n1")) == (1, ClusterNodeState.UP)
    assert rig.core.cluster.unreleased == set()


def test_an_announcement_of_an_earlier_incarnation_is_ignored() -> None:
    rig = Rig(capacity=1)
    rig.join("n1", 1, "b")
    leave(rig)
    assert (recorded(rig), rig.stream.share) == ([], 1)


def test_a_leaving_node_is_leaving_after_a_recovery() -> None:
    core = restored(JOINED, NodeLeaving(101.0, "n1", "a"))
    effects = core.handle(JOINED)
    assert NodeReleased("n1") in effects
    assert core.node_state("n1") is ClusterNodeState.LEAVING


# -------------------------------------------------------------------------------------------------------------------- drain


def test_a_drained_node_is_draining_until_nothing_on_it_is_needed() -> None:
    rig = made()
    rig.feed(NodeDrained(rig.now, "n1"))
    assert rig.core.node_state("n1") is ClusterNodeState.DRAINING
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.core.node_state("n1") is ClusterNodeState.DRAINING  # Its snapshot is not stored.
    rig.stored(1)
    assert rig.core.node_state("n1") is ClusterNodeState.DRAINED
    rig.feed(NodeUndrained(rig.now, "n1"))
    assert (rig.core.node_state("n1"), set(rig.stream.slots)) == (ClusterNodeState.UP, {"n1/0", "n2/0"})


def test_draining_and_undraining_twice_changes_nothing() -> None:
    rig = made()
    rig.feed(NodeDrained(rig.now, "n1", 200.0))
    assert len(recorded(rig)) == 1
    for deadline in (None, 200.0):
        rig.feed(NodeDrained(rig.now, "n1", deadline))
        assert recorded(rig) == []
    rig.feed(NodeDrained(rig.now, "n1", 300.0))
    assert len(recorded(rig)) == 1
    rig.feed(NodeUndrained(rig.now, "n1"))
    rig.feed(NodeUndrained(rig.now, "n1"))
    assert recorded(rig) == []


def test_a_run_that_is_left_at_the_deadline_is_killed_and_lost() -> None:
    rig = made()
    rig.kept(2)
    rig.feed(NodeDrained(rig.now, "n1", 200.0))
    rig.now = 200.0
    rig.feed(DrainExpired(rig.now, "n1"))
    (kill,) = rig.sent(Kill)
    assert isinstance(kill, Kill)
    assert kill.reason.code is ReasonCode.DRAIN_EXPIRED
    rig.ended(RunEndReason.TERMINATED, 2)
    assert [call.reason for call in rig.called(RunEnd)] == [RunEndReason.LOST]
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 2)
    rig.feed(DrainExpired(rig.now, "n1"))
    assert recorded(rig) == []


def test_a_deadline_without_a_drain_ends_nothing() -> None:
    rig = made()
    rig.feed(NodeDrained(rig.now, "n1", 200.0))
    rig.feed(NodeUndrained(rig.now, "n1"))
    rig.feed(DrainExpired(200.0, "n1"))
    assert (recorded(rig), rig.sent(Kill)) == ([], [])


def test_a_recovered_scheduler_ends_the_runs_that_an_expired_drain_left() -> None:
    rig = made()
    core = Core()
    for event in (JOINED, NodeDrained(rig.now, "n1", 200.0), DrainExpired(200.0, "n1")):
        core.restore_cluster(event)
    for told in rig.journal:
        core.restore(told)  # type: ignore[arg-type]
    core.recovered()
    effects = core.handle(replace(JOINED, runs=(rig.key(),)))
    assert [effect.body for effect in effects if isinstance(effect, Send) and isinstance(effect.body, Kill)]


def test_when_the_other_copy_is_lost_a_drained_node_uploads_its_own() -> None:
    rig = made(ship_every=0)
    rig.taken(1)
    rig.ended(RunEndReason.SUSPENDED, 1)
    rig.command(StartJob("1", ("n2/0",), until=9))
    rig.say(rig.key(), Started(1, 10))
    rig.feed(NodeDrained(rig.now, "n1"))
    assert (rig.core.orders("n1"), rig.core.node_state("n1")) == ([], ClusterNodeState.DRAINED)
    rig.expire("n2")
    assert [order.position for order in rig.core.orders("n1")] == [1]
    assert rig.core.node_state("n1") is ClusterNodeState.DRAINING


def test_a_drained_node_whose_agent_restarts_is_ordered_to_upload_what_it_still_has() -> None:
    rig = made(ship_every=0)
    rig.taken(1)
    rig.ended(RunEndReason.SUSPENDED, 1)
    rig.feed(NodeDrained(rig.now, "n1"))
    rig.join("n1", 1, "b", snapshots=("s1",))
    assert [order.position for order in rig.core.orders("n1")] == [1]
    assert not any(isinstance(event, NodeBack) and event.gone for event in rig.journal)


# ----------------------------------------------------------------------------------------------------- lost and forgotten


def test_the_loss_of_a_node_records_the_snapshots_that_only_it_had() -> None:
    rig = made()
    rig.taken(1)
    rig.feed(NodeExpired(rig.now, "n1"))
    assert recorded(rig) == [NodeExpired(rig.now, "n1", (("x", 1),))]
    assert rig.core.cluster.nodes["n1"].orphans == (("x", 1),)
    core = restored(JOINED, NodeExpired(rig.now, "n1", (("x", 1),)))
    assert core.cluster.nodes["n1"].orphans == (("x", 1),)


def test_a_stored_snapshot_is_not_lost_with_its_node() -> None:
    rig = made()
    rig.kept(2)
    rig.feed(NodeExpired(rig.now, "n1"))
    assert rig.core.cluster.nodes["n1"].orphans == ()


def test_a_connected_node_is_not_forgotten_and_a_lost_one_is_with_its_drain() -> None:
    rig = made()
    rig.feed(NodeDrained(rig.now, "n2"))
    rig.feed(NodeForgotten(rig.now, "n2"))
    assert (recorded(rig), "n2" in rig.core.cluster.nodes) == ([], True)
    rig.expire("n2")
    rig.feed(NodeForgotten(rig.now, "n2"))
    assert (len(recorded(rig)), "n2" in rig.core.cluster.nodes) == (1, False)
    rig.feed(NodeForgotten(rig.now, "n2"))
    assert recorded(rig) == []
    rig.join("n2", 1)
    assert rig.core.node_state("n2") is ClusterNodeState.UP


def test_a_recovered_scheduler_knows_the_nodes_that_were_not_forgotten() -> None:
    others = [NodeJoined(100.0, node, "a", ()) for node in ("n2", "n3")]
    core = restored(JOINED, *others, NodeExpired(105.0, "n2"), NodeExpired(106.0, "n3"), NodeForgotten(107.0, "n3"))
    nodes = core.cluster.nodes
    assert {name: (node.up, node.lost_at) for name, node in nodes.items()} == {
        "n1": (False, None),
        "n2": (False, 105.0),
    }
    core.handle(NodeExpired(200.0, "n1"))  # Its agent has not come back.
    assert nodes["n1"].lost_at == 200.0


# ------------------------------------------------------------------------------------------------------------ why jobs wait


def why(rig: Rig) -> str:
    return str(WaitingReasons(rig.stream, rig.core.cluster, rig.now).job(rig.job()))


def test_a_job_waits_because_the_only_nodes_that_its_policy_can_use_are_drained() -> None:
    rig = Rig(capacity=1)
    rig.join("n2", 1)
    rig.nodes = ("n1",)
    rig.create()
    rig.feed(NodeDrained(rig.now, "n1"))
    assert why(rig) == ("waits for a slot: its policy can use slots of node n1 only, which is drained or leaving")


def test_a_job_waits_because_the_slots_that_fit_are_on_a_leaving_node() -> None:
    rig = Rig(capacity=1, cpus=4)
    rig.join("n2", 1)
    rig.feed(NodeJoined(rig.now, "n3", "a", (SlotSpec("n3/0", 4),)))
    rig.create()
    assert rig.core.cluster.tenants[StreamId("x")].need == SlotKind(4, 0)
    leave(rig, "n3")
    assert why(rig) == (
        "waits for a slot: each job needs a slot with 4 CPU threads and no GPU (resources.per_job); such slots "
        "are on node n3, which is drained or leaving"
    )


def test_a_run_that_was_decided_while_its_node_left_never_begins() -> None:
    rig = Thinking()
    rig.create()
    rig.ponder()
    leave(rig)
    rig.wake(StartJob("1", ("n1/0",)))
    assert rig.of(Send) == []
    (ended,) = rig.called(RunEnd)
    assert ended.cause is not None
    assert ended.cause.code is ReasonCode.NODE_LEAVING
    assert any(isinstance(event, NodeDraining) and event.leaving for event in rig.journal)
