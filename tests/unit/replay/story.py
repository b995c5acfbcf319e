"""Helpers for the tests of the story of an experiment: sentences of events, and an experiment with all events."""

from __future__ import annotations

from hopyard.policy.vocabulary import AmendRun, CreateJob, ExperimentId, RunEndReason, StreamId, TerminateJob
from hopyard_engine.core.events import (
    Amended,
    Answered,
    DataChanged,
    Event,
    ExperimentJoined,
    Imported,
    JobHeld,
    JobOperated,
    JobsRetried,
    NodeDraining,
    NodeEvicted,
    Operated,
    PolicyFailed,
    PolicyProcess,
    Requested,
    RunMessage,
    SlotRecalled,
    SlotReserved,
    SnapshotsGivenUp,
    SnapshotShipped,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_engine.explain.story import Story, StoryLine
from tests.reasons import failure
from tests.unit.core.rig import Rig, settings, snapshot


def told(rig: Rig) -> list[StoryLine]:
    """Return the whole story of a rig's experiment."""
    story = Story()
    return [story.tell(event) for event in rig.journal]


def last(rig: Rig, kind: type[Event] = RunMessage) -> str:
    """Return the sentence of the last event of a kind."""
    return [line.text for line in told(rig) if line.kind == kind.__name__][-1]


def quiet(rig: Rig, event: Event) -> str:
    """Feed an event to the rig, and return its sentence without those of the up-calls that follow."""
    before = len(rig.journal)
    rig.feed(event)
    return told(rig)[before].text


def eventful() -> Rig:
    """Return a rig whose journal contains every class of event and of message."""
    rig = Rig(capacity=2, data=PlacedData("d", (PlacedPartition("train/0"),)), max_seconds=1e6, grace=5.0)
    rig.create()
    rig.create(0.2)
    rig.command(CreateJob(str(rig.stream.ordinals + 1)))
    rig.feed(Answered(rig.now, StreamId("x"), f"create/{rig.stream.ordinals}", {"lr": 0.3}))
    rig.start("1", "n1/0", until=6)
    rig.report(1)
    rig.taken(1)
    rig.stored(1)
    rig.command(AmendRun("1", "t1", until=8))
    rig.say(rig.key(), Amended("t1", True, 1))
    rig.join("n1", 2, runs=(rig.key(),), snapshots=("s1",))
    rig.feed(SlotReserved(rig.now, StreamId("x"), "n1/1", "a"))
    rig.feed(JobHeld(rig.now, StreamId("x"), "2", True))
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("2")))
    rig.feed(JobsRetried(rig.now, StreamId("x"), "again", ("2",), ExperimentId("x")))
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=2, weight=2.0, target=0.99, cleared=("slots",)))
    rig.feed(NodeDraining(rig.now, StreamId("x"), "n9"))
    rig.feed(SlotRecalled(rig.now, StreamId("x"), "n9/0"))
    rig.feed(DataChanged(rig.now, StreamId("x"), (PlacedPartition("train/0", places={"n1": "/a"}),)))
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings()))
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.join("n1", 2, "b", snapshots=("s1", "s2"))
    rig.feed(SnapshotShipped(rig.now, StreamId("x"), "n1", 1, "1", 2, "s2"))
    rig.feed(NodeEvicted(rig.now, "n1", ("s2", "unknown")))
    rig.feed(SnapshotsGivenUp(rig.now, StreamId("x"), ("unknown",)))
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    rig.expire("n1")
    rig.feed(TimerElapsed(1e9, StreamId("x"), "policy/keep"))
    rig.hold = True
    rig.feed(Requested(rig.now, StreamId("x"), "r", {"lr": 1.0}, 3))
    rig.feed(PolicyProcess(rig.now, StreamId("x"), here=False))
    rig.feed(PolicyProcess(rig.now, StreamId("x"), here=True, again=2))
    rig.feed(PolicyFailed(rig.now, StreamId("x"), rig.held[-1].number, failure("Mine on up-call 9: ValueError: no")))
    rig.feed(Imported(rig.now, StreamId("x"), "import", ("s2",)))
    return rig
