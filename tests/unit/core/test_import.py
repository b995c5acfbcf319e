"""Tests of a stream that is imported from another cluster, whose nodes do not exist here."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentId, ExperimentState, JobState, RunEndReason, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, ForgetSnapshot, JobChanged, Record, SetTimer, SlotReturned
from hopyard_engine.core.events import Event, Imported, NodeJoined, Operated, SlotGranted
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import SlotSpec
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def moved(rig: Rig, *snapshots: str, request: str = "r") -> tuple[Stream, list[Effect]]:
    """Replay the journal of the rig on a new core and import the stream there; return it and the effects of the import."""
    core = Core()
    for event in rig.journal:
        core.restore(event)  # type: ignore[arg-type]
    effects = core.restore(Imported(rig.now + 1, StreamId("x"), request, snapshots))
    return core.streams[StreamId("x")], effects


def suspended(rig: Rig, *, stored: bool = True) -> None:
    """Suspend job 1 with a snapshot at 3, on its node and (with `stored`) in the store; job 2 has not started."""
    rig.create()
    rig.create(0.2)
    rig.start("1", "n1/0")
    for position in (1, 2, 3):
        rig.report(position)
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3))
    if stored:
        rig.stored(3)


def test_what_came_along_is_stored_and_lies_on_no_node() -> None:
    rig = Rig()
    suspended(rig)
    stream, effects = moved(rig, "s3")
    assert isinstance(effects[0], Record)
    entry = stream.snapshots.get("1", 3)
    assert entry is not None
    assert (entry.stored, entry.nodes) == (True, set())
    assert (stream.jobs["1"].state, stream.jobs["1"].position) == (JobState.SUSPENDED, 3)
    assert stream.state is ExperimentState.PAUSED
    assert {e.job for e in effects if isinstance(e, JobChanged)} == {"1", "2"}


def test_what_did_not_come_along_is_lost_and_its_job_begins_anew() -> None:
    rig = Rig()
    suspended(rig)
    stream, effects = moved(rig)
    assert stream.snapshots.get("1", 3) is None
    assert (stream.jobs["1"].state, stream.jobs["1"].position) == (JobState.PENDING, 0)
    assert [e.sha256 for e in effects if isinstance(e, ForgetSnapshot)] == ["s3"]
    assert stream.jobs["1"].high_water == 3  # Reports are retained.


def test_a_snapshot_that_lay_on_a_node_only_may_come_along_too() -> None:
    rig = Rig()
    suspended(rig, stored=False)
    stream, _ = moved(rig, "s3")
    assert stream.snapshots.settled
    assert stream.state is ExperimentState.PAUSED
    assert stream.jobs["1"].position == 3


def test_slots_and_runs_of_the_other_cluster_are_gone() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    stream, effects = moved(rig)
    assert not stream.slots
    assert not stream.live
    assert (stream.jobs["1"].state, stream.jobs["1"].losses) == (JobState.PENDING, 1)
    assert not [e for e in effects if isinstance(e, SlotReturned)]


def test_the_same_import_again_changes_nothing() -> None:
    rig = Rig()
    suspended(rig)
    core = Core()
    events: list[Event] = [*rig.journal, Imported(rig.now, StreamId("x"), "r", ("s3",))]
    for event in events:
        core.restore(event)  # type: ignore[arg-type]
    assert core.restore(Imported(rig.now, StreamId("x"), "r")) == []
    assert core.streams[StreamId("x")].snapshots.holds("s3")


def test_it_is_admitted_to_a_running_core_and_gets_slots_when_it_is_resumed() -> None:
    rig = Rig(max_seconds=1e6)
    suspended(rig)
    stream, _ = moved(rig, "s3")
    here = Core()
    here.handle(NodeJoined(500.0, "m", "a", (SlotSpec("m/0"),)))
    timers = [e for e in here.admit(stream) if isinstance(e, SetTimer)]
    assert [t.ticket for t in timers] == ["policy/keep"]
    effects = here.handle(Operated(501.0, StreamId("x"), "resume"))
    granted = [e.event for e in effects if isinstance(e, Record) and isinstance(e.event, SlotGranted)]
    assert [g.slot for g in granted] == ["m/0"]


def test_a_finished_one_asks_for_nothing() -> None:
    rig = Rig()
    suspended(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    stream, _ = moved(rig)
    here = Core()
    assert here.admit(stream) == []
    assert not here.cluster.tenants
    assert here.find(ExperimentId("x")) is not None
