"""Tests of displaced jobs: those that lost their slots without a decision of the policy start before others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import LabelJob, RunEndReason, StreamId, SuspendJob
from hopyard_engine.core import Core
from hopyard_engine.core.events import JobHeld, NodeLeaving, Operated
from hopyard_engine.core.state.job_queue import IdleQueue
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def waiting(rig: Rig) -> list[str]:
    return [job.id for job in rig.stream.idle_jobs()]


def training(jobs: int = 4, **terms: object) -> Rig:
    """Return a core with jobs of which the first two train, and a third slot stays idle."""
    rig = Rig(**{"capacity": 3, "displaced_first": True, "max_failures": 3, **terms})  # type: ignore[arg-type]
    for _ in range(jobs):
        rig.create()
    rig.start("1", "n1/0")
    rig.start("2", "n1/1")
    return rig


def operate(rig: Rig, action: str) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), action))  # type: ignore[arg-type]


def leave(rig: Rig, name: str, position: int = 3, reason: RunEndReason = RunEndReason.SUSPENDED) -> None:
    saved = snapshot(position, f"{name}-{position}") if position and reason is RunEndReason.SUSPENDED else None
    rig.ended(reason, position, saved, name)
    if saved is not None:
        rig.stored(position, name, sha256=saved.sha256)


def replayed(rig: Rig) -> None:
    """Check that the journal leads to the same state, also through its written form."""
    again = Core()
    for event in rig.journal:
        again.handle(decode(kind_of(event), encode(event)))
    dump.compare(rig.stream, again.streams[StreamId("x")])


def test_after_a_pause_the_jobs_that_trained_come_first_in_the_order_in_which_they_left() -> None:
    rig = training()
    operate(rig, "pause")
    leave(rig, "2")
    leave(rig, "1", 0)  # It has no snapshot and begins again, but it had a slot.
    operate(rig, "resume")
    assert waiting(rig) == ["2", "1", "3", "4"]
    rig.start("2")
    assert not rig.job("2").displaced
    rig.command(SuspendJob("2"))
    leave(rig, "2", 4)
    assert waiting(rig) == ["1", "3", "4", "2"]  # Now its policy has suspended it.
    replayed(rig)


def test_a_second_pause_keeps_the_order_of_jobs_that_still_wait() -> None:
    rig = training()
    operate(rig, "pause")
    leave(rig, "2")
    leave(rig, "1")
    operate(rig, "resume")
    rig.start("2")
    operate(rig, "pause")
    rig.create()
    leave(rig, "2", 4)
    operate(rig, "resume")
    assert waiting(rig) == ["1", "2", "3", "4", "5"]


def test_experiments_of_earlier_journals_keep_their_order() -> None:
    rig = training(displaced_first=False)
    operate(rig, "pause")
    leave(rig, "2")
    leave(rig, "1")
    operate(rig, "resume")
    assert waiting(rig) == ["3", "4", "2", "1"]


def test_a_job_that_its_policy_suspended_before_the_pause_waits_behind() -> None:
    rig = training()
    rig.command(SuspendJob("1"))
    operate(rig, "pause")
    leave(rig, "1")
    leave(rig, "2")
    operate(rig, "resume")
    assert waiting(rig) == ["2", "3", "4", "1"]


def test_a_priority_counts_more_than_displacement() -> None:
    rig = training()
    rig.command(LabelJob("4", 1.0))
    operate(rig, "pause")
    leave(rig, "1")
    leave(rig, "2")
    operate(rig, "resume")
    assert waiting(rig) == ["4", "1", "2", "3"]


def test_the_jobs_of_a_lost_node_come_first() -> None:
    rig = training()
    rig.expire("n1")
    assert waiting(rig) == ["1", "2", "3", "4"]
    replayed(rig)


def test_the_jobs_of_an_agent_that_leaves_come_first() -> None:
    rig = training()
    rig.feed(NodeLeaving(rig.now, "n1", "a"))
    leave(rig, "1")
    leave(rig, "2")
    assert waiting(rig) == ["1", "2", "3", "4"]


def test_a_job_whose_process_fails_or_is_lost_waits_behind() -> None:
    rig = training()
    leave(rig, "1", 0, RunEndReason.FAILED)
    leave(rig, "2", 0, RunEndReason.LOST)
    assert waiting(rig) == ["3", "4", "1", "2"]


def test_a_job_that_fails_during_a_pause_waits_behind() -> None:
    rig = training()
    operate(rig, "pause")
    leave(rig, "1", 0, RunEndReason.FAILED)
    leave(rig, "2", 0, RunEndReason.LOST)  # It trained until it was told to leave.
    operate(rig, "resume")
    assert waiting(rig) == ["2", "3", "4", "1"]


def test_a_job_whose_nodes_are_lost_again_and_again_waits_behind() -> None:
    rig = training()
    rig.expire("n1")
    rig.join("n1", 3, life="b")
    rig.start("1")
    rig.expire("n1")
    assert waiting(rig) == ["2", "3", "4"]
    assert not rig.job("1").displaced  # It may be the cause; after its backoff it comes last.


def test_a_job_that_a_person_paused_and_resumed_comes_first() -> None:
    rig = training()
    rig.feed(JobHeld(rig.now, StreamId("x"), "1", True))
    leave(rig, "1")
    assert waiting(rig) == ["3", "4"]
    rig.feed(JobHeld(rig.now, StreamId("x"), "1", False))
    assert waiting(rig) == ["1", "3", "4"]


Step = tuple[str, int, float, bool]


@pytest.mark.merge
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "label", "discard"]),
            st.integers(0, 6),
            st.sampled_from([-1.0, 0.0, 2.0]),
            st.booleans(),
        )
    )
)
def test_the_queue_is_ordered_by_priority_then_displacement_then_arrival(steps: list[Step]) -> None:
    queue = IdleQueue()
    expected: dict[str, tuple[float, bool, int]] = {}
    for number, (what, job, priority, displaced) in enumerate(steps):
        name = str(job)
        if what == "add" and name not in expected:
            queue.add(name, priority, displaced=displaced)
            expected[name] = (-priority, not displaced, number)
        elif what == "label":
            queue.label(name, priority)
            if name in expected:
                expected[name] = (-priority, *expected[name][1:])
        elif what == "discard":
            queue.discard(name)
            expected.pop(name, None)
        order = sorted(expected, key=lambda n: expected[n])
        assert list(queue) == order
        # A policy process orders the jobs by priority and by their places.
        assert sorted(expected, key=lambda n: (expected[n][0], queue.place(n))) == order
        assert all(queue.place(name) > 0 for name in order)
