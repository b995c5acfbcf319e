"""Tests that the cost of an event, counted in steps, does not depend on the number of ended jobs and experiments."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import (
    AllocateJobs,
    ExperimentState,
    JobState,
    Report,
    RunEndReason,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.cluster import fair_share
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Operated, Reports
from hopyard_engine.core.handlers import lifecycle
from hopyard_engine.core.state.job_queue import IdleQueue
from hopyard_engine.policy_host import PolicyHost, view
from hopyard_policies.default import DefaultPolicy
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def looked_at(rig: Rig, policy: DefaultPolicy) -> int:
    """Return the number of job views that one up-call of the policy creates."""
    with mock.patch.object(view, "job_view", wraps=view.job_view) as made:
        PolicyHost(policy).answer(rig.stream, UpCall(StreamId("x"), 1, rig.now, 1, AllocateJobs()))
    return made.call_count


@pytest.mark.parametrize("barrier", [False, True])
def test_the_default_policy_looks_at_no_job_that_has_ended(barrier: bool) -> None:
    rig = Rig(jobs=1000)
    for _ in range(3):
        rig.create()
    few = looked_at(rig, DefaultPolicy(barrier=barrier))
    for _ in range(300):
        rig.command(TerminateJob(rig.create()))
    assert looked_at(rig, DefaultPolicy(barrier=barrier)) == few


def test_the_greedy_default_policy_looks_at_no_more_idle_jobs_than_it_starts() -> None:
    rig = Rig(jobs=1000)
    for _ in range(300):
        rig.create()
    assert looked_at(rig, DefaultPolicy()) <= 4


def test_slots_are_divided_only_when_something_changed_that_it_depends_on() -> None:
    rig = Rig()
    rig.create()
    rig.start("1")
    with mock.patch("hopyard_engine.core.cluster.division.water_fill", wraps=fair_share.water_fill) as divided:
        rig.report(1)
        rig.taken(1)
        assert divided.call_count == 0
        rig.feed(Operated(rig.now, StreamId("x"), "pause"))
        assert divided.call_count > 0


def test_an_end_looks_at_the_snapshots_of_no_job_that_nobody_asked_for() -> None:
    rig = Rig(jobs=1000)
    for _ in range(50):
        rig.command(TerminateJob(rig.create()))
    with mock.patch.object(rig.stream.snapshots, "collect", wraps=rig.stream.snapshots.collect) as collected:
        rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.STOPPED
    assert collected.call_count == 0


def test_an_experiment_that_is_ending_is_wound_up_once() -> None:
    rig = Rig()
    rig.create()
    rig.start("1")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    with mock.patch.object(lifecycle, "_wind_up", wraps=lifecycle._wind_up) as wound:
        rig.say(rig.key(), Reports((Report(1, {"score": 0.5}),)))
        rig.taken(1)
        rig.ended(RunEndReason.TERMINATED, 1, snapshot(2))
        assert rig.stream.state in (ExperimentState.ENDING, ExperimentState.STOPPED)
        rig.stored(1)
        assert wound.call_count == 1


def test_what_the_core_counts_is_what_there_is() -> None:
    rig = Rig(capacity=3)
    for _ in range(4):
        rig.create()
    rig.start("1", "n1/0", "n1/1")
    rig.command(TerminateJob("2"))
    stream = rig.stream
    assert stream.busy == sum(not m.idle for m in stream.slots.values()) == 2
    assert stream.vacant == {m.id for m in stream.slots.values() if m.idle and not m.reserved} == {"n1/2"}
    assert set(stream.open) == {job.id for job in stream.jobs.values() if not job.state.ended} == {"1", "3", "4"}
    assert stream.states[JobState.PENDING] == 2


Step = tuple[str, int, float]


@pytest.mark.merge
@given(st.lists(st.tuples(st.sampled_from(["add", "label", "discard"]), st.integers(0, 6), st.floats(-2, 2))))
def test_the_queue_is_ordered_by_priority_then_by_arrival(steps: list[Step]) -> None:
    queue = IdleQueue()
    waiting: dict[str, tuple[float, int]] = {}
    for number, (what, job, priority) in enumerate(steps):
        name = str(job)
        if what == "add" and name not in waiting:
            queue.add(name, priority)
            waiting[name] = (-priority, number)
        elif what == "label":
            queue.label(name, priority)
            if name in waiting:
                waiting[name] = (-priority, waiting[name][1])
        elif what == "discard":
            queue.discard(name)
            waiting.pop(name, None)
        assert list(queue) == sorted(waiting, key=lambda n: waiting[n])
