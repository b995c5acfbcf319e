"""Tests of slots that are added and removed, drained nodes, and deletions, with cases computed by hand."""

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import (
    ExperimentState,
    JobState,
    RunEnd,
    RunEndReason,
    ShareChange,
    SlotsChange,
    StartJob,
    StreamId,
)
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.core import FORGET_AGAIN_SECONDS
from hopyard_engine.core.effects import Decide, ForgetSnapshot, Noted, Record, Start, Welcome
from hopyard_engine.core.events import (
    ClusterEvent,
    CopiesEvicted,
    Event,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeEvicted,
    NodeJoined,
    NodeUndrained,
    Operated,
    SnapshotStored,
    Started,
    StreamCreated,
    StreamEvent,
    TimerElapsed,
)
from hopyard_engine.core.types import SlotSpec
from tests.simulation import dump
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create()
    made.start("1")
    return made


def recovered(rig: Rig, cluster: tuple[ClusterEvent, ...] = ()) -> Core:
    """Return a new core that was recovered from the journal of the rig."""
    core = Core()
    for told in cluster:
        core.restore_cluster(told)
    for event in rig.journal:
        core.restore(_of_experiment(event))
    core.recovered()
    return core


# ----------------------------------------------------------------------------------------------------- slots that are gone


def test_a_slot_that_a_hello_no_longer_lists_is_gone_and_its_run_is_lost() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1", "n1/1")
    key = rig.key()
    rig.join("n1", 1, "a", runs=(key,))
    assert set(rig.stream.slots) == set(rig.core.cluster.slots) == {"n1/0"}
    assert (rig.job().state, rig.stream.busy, rig.stream.share) == (JobState.PENDING, 0, 1)
    assert rig.called(SlotsChange)[-1].lost == ("n1/1",)
    assert rig.of(Welcome) == [Welcome("n1", (key,))]


def test_a_recovered_scheduler_forgets_slots_that_the_node_does_not_have_any_more() -> None:
    rig = Rig(capacity=2)
    core = recovered(rig)
    core.handle(NodeJoined(rig.now, "n1", "b", (SlotSpec("n1/0"),)))
    assert set(core.streams[StreamId("x")].slots) == {"n1/0"}
    assert core.cluster.tenants[StreamId("x")].granted == {"n1/0"}


def test_the_runs_that_a_node_has_lost_are_in_the_journal(rig: Rig) -> None:
    rig.core.acknowledge(rig.key(), 1)  # Not an event, so a restored core does not have it.
    rig.join("n1", 2, "a")
    assert rig.job().state is JobState.PENDING
    assert [e.lost for e in rig.journal if isinstance(e, NodeBack)] == [(rig.key(),)]
    core = recovered(rig)
    dump.compare(rig.stream, core.streams[StreamId("x")])


def test_an_agent_in_a_new_life_gets_no_command_of_its_old_one_from_a_recovered_scheduler() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.command(StartJob("1", ("n1/0",)))  # The old incarnation may have started it already, but has not reported it.
    joined = NodeJoined(rig.now, "n1", "a", (SlotSpec("n1/0"),))
    core = recovered(rig, (joined,))
    core.handle(replace(joined, incarnation="b"))
    assert core.unacknowledged("n1") == []
    assert core.streams[StreamId("x")].jobs["1"].state is JobState.PENDING
    core = recovered(rig, (joined,))
    core.handle(joined)
    assert [send.run.attempt for send in core.unacknowledged("n1")] == [1]


# -------------------------------------------------------------------------------------------------------------------- drain


def test_draining_suspends_the_nodes_runs_at_their_next_boundary_and_gives_its_slots_back(rig: Rig) -> None:
    rig.join("n2", 1)
    rig.feed(NodeDrained(rig.now, "n1"))
    assert rig.sent(Decide)
    assert rig.job().state is JobState.SUSPENDING
    assert set(rig.stream.slots) == {"n1/0", "n2/0"}
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert set(rig.stream.slots) == {"n2/0"}
    assert rig.stream.share == 1
    assert any(isinstance(event, NodeDraining) for event in rig.journal)
    rig.start("1", "n2/0")
    assert rig.run().start == 1


def test_a_drained_node_stays_drained_after_a_recovery_and_a_restart_of_its_agent_until_it_is_undrained(
    rig: Rig,
) -> None:
    def cluster_events() -> tuple[ClusterEvent, ...]:
        return (NodeJoined(rig.now, "n1", "a", ()), NodeDrained(rig.now, "n1"))

    core = recovered(rig, cluster_events())
    specs = (SlotSpec("n1/0"), SlotSpec("n1/1"))
    core.handle(NodeJoined(rig.now, "n1", "a", specs, (rig.key(),)))
    assert core.streams[StreamId("x")].share == 0
    core.handle(NodeJoined(rig.now, "n1", "b", specs))
    assert core.streams[StreamId("x")].share == 0
    core.handle(NodeUndrained(rig.now, "n1"))
    assert core.streams[StreamId("x")].share == 2
    renewed = recovered(rig, (*cluster_events(), NodeJoined(rig.now, "n1", "b", ())))
    assert renewed.cluster.nodes["n1"].unschedulable
    renewed = recovered(rig, (*cluster_events(), NodeUndrained(rig.now, "n1")))
    assert not renewed.cluster.nodes["n1"].unschedulable


def test_draining_is_recorded_in_the_clusters_stream() -> None:
    rig = Rig()
    rig.feed(NodeDrained(rig.now, "n9"))
    assert rig.of(Record) == [Record(CLUSTER_STREAM, NodeDrained(rig.now, "n9"))]
    rig.join("n9", 1)
    assert rig.stream.share == 2


# -------------------------------------------------------------------------------------------------------------------- pause


def test_a_paused_experiment_gives_its_slots_and_its_share_to_others_and_gets_them_back(rig: Rig) -> None:
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    other = rig.core.streams[StreamId("y")]
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert (rig.stream.share, other.share, set(rig.stream.slots)) == (0, 2, {"n1/0"})
    rig.ended(RunEndReason.SUSPENDED, 0, snapshot(0))
    assert (set(rig.stream.slots), set(other.slots)) == (set(), {"n1/0", "n1/1"})
    rig.stored(0)
    assert rig.stream.state is ExperimentState.PAUSED
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert (rig.stream.share, other.share) == (1, 1)


# ------------------------------------------------------------------------------------------------------- shares over time


def test_the_earlier_deadline_of_two_smaller_shares_holds() -> None:
    rig = Rig(capacity=3, grace=30.0)
    for number, slot in enumerate(("n1/0", "n1/1", "n1/2"), 1):
        rig.create()
        rig.start(str(number), slot)
    began = rig.now
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    rig.now = began + 20
    rig.feed(StreamCreated(rig.now, StreamId("z"), settings()))
    deadlines = [change.deadline for change in rig.called(ShareChange) if change.deadline is not None]
    assert deadlines == [began + 30, began + 30]
    assert rig.stream.timers["core/share"] == began + 30


def test_a_share_that_is_met_forgets_its_deadline() -> None:
    rig = Rig(capacity=2, grace=30.0)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.start("2", "n1/1")
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    assert "core/share" in rig.stream.timers
    rig.ended(RunEndReason.LOST, 0, name="2")
    assert "core/share" not in rig.stream.timers


def test_what_is_left_above_the_share_after_the_deadline_is_looked_at_again() -> None:
    rig = Rig(capacity=2, grace=30.0)
    rig.create()
    rig.create()
    rig.start("1", "n1/0", preemptible=False)
    rig.start("2", "n1/1", preemptible=False)
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    rig.now += 30
    rig.feed(TimerElapsed(rig.now, StreamId("x"), "core/share"))
    rig.join("n2", 1)
    assert (rig.stream.share, len(rig.stream.slots), rig.sent(Decide)) == (2, 2, [])
    rig.feed(StreamCreated(rig.now, StreamId("z"), settings()))
    assert rig.stream.timers["core/share"] == rig.now + 30  # A smaller share has its own grace period.
    rig.run("1").preemptible = True
    rig.now += 30
    rig.feed(TimerElapsed(rig.now, StreamId("x"), "core/share"))
    assert [type(body) for body in rig.sent(Decide)] == [Decide]


# ---------------------------------------------------------------------------------------------------------- what is deleted


def test_bytes_that_another_experiment_needs_lose_an_owner_and_no_copy(rig: Rig) -> None:
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    rig.core.streams[StreamId("y")].snapshots.taken("1", snapshot(1), "n1", 1)
    rig.kept(1, 2)
    assert rig.of(ForgetSnapshot) == [ForgetSnapshot(StreamId("x"), "s1", (), True)]


def test_a_recovery_deletes_again_only_what_the_last_batch_may_have_missed(rig: Rig) -> None:
    for position in (1, 2, 3):
        rig.kept(position)
        if position == 2:
            rig.now += FORGET_AGAIN_SECONDS + 1
    core = Core()
    for event in rig.journal:
        core.restore(_of_experiment(event))
    assert [e.sha256 for e in core.recovered() if isinstance(e, ForgetSnapshot)] == ["s2"]


def test_a_snapshot_that_cannot_be_stored_stays_on_its_node_and_nobody_waits_for_it(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.stream.state is ExperimentState.PAUSING
    rig.say(rig.key(), SnapshotStored(1, "s1", "it is larger than the store takes"))
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert (str(rig.stream.state), entry.stored, entry.nodes) == ("ExperimentState.PAUSED", False, {"n1"})
    assert [str(note.reason) for note in rig.of(Noted)] == [
        "the snapshot at 1 is not stored: it is larger than the store takes"
    ]


def test_a_lost_rank_of_a_gang_on_a_slot_that_is_gone_ends_the_run_once() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1", "n1/0", "n1/1")
    rig.join("n1", 0, "a")
    assert (rig.stream.busy, dict(rig.stream.slots), rig.job().state) == (0, {}, JobState.PENDING)
    assert len(rig.called(RunEnd)) == 1


def _of_experiment(event: Event) -> StreamEvent:
    return event  # type: ignore[return-value]


# --------------------------------------------------------------------------------------------------------------- evictions


def test_a_copy_that_made_room_is_not_believed_there_and_the_job_goes_on_from_the_store() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0")
    rig.kept(1)
    rig.report(2)
    rig.taken(2)
    rig.feed(NodeEvicted(rig.now, "n1", ("s1", "s2", "unknown")))
    one, two = rig.stream.snapshots.of("1")
    assert (one.nodes, one.available) == (set(), True)
    assert two.nodes == {"n1"}  # Not known to be stored: its agent reports that separately.
    assert rig.journal[-1] == CopiesEvicted(rig.now, StreamId("x"), "n1", ("s1",))
    rig.feed(NodeEvicted(rig.now, "n1", ("s1",)))  # A repeated message is not an event.
    assert [event for event in rig.journal if isinstance(event, CopiesEvicted)] == [rig.journal[-1]]
    rig.expire("n1")
    assert (rig.job().position, rig.stream.snapshots.positions("1")) == (1, [1])
    rig.command(StartJob("1", ("n2/0",)))
    (start,) = rig.sent(Start)
    assert isinstance(start, Start)
    assert (start.snapshot, start.snapshot_nodes) == (snapshot(1), ())
    rig.say(rig.key(), Started(1))
    assert rig.stream.snapshots.of("1")[0].nodes == {"n2"}


def test_another_experiment_s_copy_is_as_good_until_it_makes_room() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.start("1", "n1/0")
    rig.kept(1)
    rig.report(2)
    rig.taken(2)
    rig.join("n2", snapshots=("s2",))  # Equal bytes of another experiment, which are in the store.
    rig.feed(NodeEvicted(rig.now, "n1", ("s2",)))
    assert [entry.nodes for entry in rig.stream.snapshots.of("1")] == [{"n1"}, {"n1", "n2"}]
    rig.expire("n1")
    assert (rig.job().position, rig.stream.snapshots.positions("1")) == (2, [1, 2])
    rig.feed(NodeEvicted(rig.now, "n2", ("s2",)))
    assert (rig.job().state, rig.job().position, rig.stream.snapshots.positions("1")) == (JobState.SUSPENDED, 1, [1])
    assert rig.journal[-1] == CopiesEvicted(rig.now, StreamId("x"), "n2", ("s2",))


def test_a_copy_that_a_run_got_there_counts_as_there_until_it_is_stored() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.start("1", "n2/0")
    rig.feed(NodeEvicted(rig.now, "n2", ("s1",)))
    assert [entry.nodes for entry in rig.stream.snapshots.of("1")] == [{"n1", "n2"}]
