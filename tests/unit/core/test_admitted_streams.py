"""Tests of `Core.admit`: a stream that was read again from its journal has lost the slots and runs that it held there."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import JobState, StartJob, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, SetTimer
from hopyard_engine.core.events import (
    Event,
    NodeBack,
    NodeExpired,
    NodeJoined,
    NodeLost,
    Operated,
    SlotGranted,
    StreamCreated,
)
from hopyard_engine.core.types import SlotSpec
from tests.unit.core.rig import Rig, settings

pytestmark = pytest.mark.quick

X, Y = StreamId("x"), StreamId("y")


@pytest.fixture
def rig() -> Rig:
    """A rig whose job 1 trains on n1/0, with snapshots of position 2 in the store and of position 3 on n1 alone."""
    found = Rig(capacity=2)
    found.create()
    found.start()
    found.kept(2)
    found.report(3)
    found.taken(3)
    return found


def replayed(rig: Rig, core: Core) -> list[object]:
    """Rebuild the stream of a rig from its journal, and admit it to a core."""
    apart = Core()
    for event in rig.journal:
        apart.restore(event)  # type: ignore[arg-type]
    return [*core.admit(apart.streams[X])]


def other_cluster(*nodes: str) -> Core:
    """Return a core without the stream x, whose stream y has the slots of the nodes."""
    core = Core()
    core.handle(StreamCreated(200.0, Y, settings()))
    for node in nodes:
        core.handle(
            NodeJoined(201.0, node, "a", tuple(SlotSpec(f"{node}/{index}") for index in range(2)), (), ("s2", "s3"))
        )
    return core


def records(core: Core, event: Event) -> list[Event]:
    return [effect.event for effect in core.handle(event) if isinstance(effect, Record)]


def test_an_admitted_stream_loses_its_slots_and_runs_before_anything_else(rig: Rig) -> None:
    core = other_cluster("n1")
    assert core.streams[Y].slots.keys() == {"n1/0", "n1/1"}
    assert any(isinstance(effect, SetTimer) for effect in replayed(rig, core))
    first, *_ = records(core, Operated(300.0, X, "resume"))
    x, y = core.streams[X], core.streams[Y]
    assert first == NodeBack(300.0, X, "n1", (), ("s2", "s3"), (rig.key(),), ("n1/0", "n1/1"), (("1", 3),))
    assert not x.live
    assert x.jobs["1"].state is JobState.SUSPENDED
    assert x.snapshots.positions("1") == [2, 3]
    # Its share is one slot, which y returned and x was granted again.
    holders = {slot: state.holder for slot, state in core.cluster.slots.items()}
    assert holders == {**dict.fromkeys(x.slots, X), **dict.fromkeys(y.slots, Y)}
    assert len(x.slots) == len(y.slots) == 1
    assert not any(isinstance(event, NodeBack) for event in records(core, Operated(301.0, X, "resume")))


def test_it_gets_the_slots_that_are_free(rig: Rig) -> None:
    core = Core()
    core.handle(NodeJoined(201.0, "n1", "b", (SlotSpec("n1/0"), SlotSpec("n1/1")), (), ("s2",)))
    replayed(rig, core)
    found = records(core, Operated(300.0, X, "resume"))
    assert isinstance(found[0], NodeBack)
    assert [event.slot for event in found if isinstance(event, SlotGranted)] == ["n1/0", "n1/1"]
    assert core.streams[X].slots.keys() == {"n1/0", "n1/1"}


def test_copies_on_lost_and_unknown_nodes_are_lost(rig: Rig) -> None:
    core = other_cluster("n1")
    core.handle(NodeExpired(210.0, "n1"))
    replayed(rig, core)
    first = records(core, Operated(300.0, X, "resume"))[0]
    assert first == NodeLost(300.0, X, "n1", ())
    assert core.streams[X].snapshots.positions("1") == [2]
    unknown = Core()
    replayed(rig, unknown)
    assert records(unknown, Operated(300.0, X, "resume"))[0] == NodeLost(300.0, X, "n1", ())


def test_the_answer_that_was_awaited_comes_first(rig: Rig) -> None:
    rig.hold = True
    rig.feed(NodeJoined(150.0, "n2", "a", (SlotSpec("n2/0"),)))
    (asked,) = rig.held
    rig.script = lambda call: (None, [])
    core = other_cluster("n1", "n2")
    replayed(rig, core)
    assert core.awaits_answer(X)
    assert not any(isinstance(event, NodeBack) for event in records(core, NodeJoined(300.0, "n3", "a", ())))
    found = records(core, rig.answer(asked))
    assert [type(event).__name__ for event in found[:3]] == ["PolicyAnswered", "NodeBack", "NodeBack"]
    assert not core.streams[X].live


def test_a_run_that_the_awaited_answer_starts_is_lost_with_its_slot(rig: Rig) -> None:
    rig.create()
    rig.hold = True
    rig.feed(NodeJoined(150.0, "n2", "a", (SlotSpec("n2/0"),)))
    (asked,) = rig.held
    rig.script = lambda call: (None, [StartJob("2", ("n2/0",))])
    core = other_cluster("n1", "n2")
    replayed(rig, core)
    records(core, NodeJoined(300.0, "n3", "a", ()))
    effects = core.handle(rig.answer(asked))
    job = core.streams[X].jobs["2"]
    assert (job.attempt, job.run) == (1, None)
    assert [effect for effect in effects if type(effect).__name__ == "Send"] == []


def test_a_stream_without_slots_and_copies_is_told_nothing() -> None:
    rig = Rig(capacity=0)
    core = other_cluster("n1")
    replayed(rig, core)
    assert isinstance(records(core, Operated(300.0, X, "pause"))[0], Operated)
