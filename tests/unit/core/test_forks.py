"""Tests of jobs that continue from snapshots and results of other jobs, as a stage tree requires."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import AllocateJobs, AmendRun, AnswerJob, ForkJob, JobState, RunEndReason, StreamId
from hopyard_engine.core.effects import ReportAccepted
from hopyard_engine.core.events import Amended, Updated
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def trained(rig: Rig, *positions: int) -> None:
    """Train job 1 with a snapshot at each position."""
    rig.start("1", "n1/0", snapshot_at=positions)
    for position in positions:
        rig.report(position, position / 10)
        rig.taken(position)


def curve(rig: Rig, job: str) -> list[tuple[int, float]]:
    return [(point.position, point.metrics["score"]) for point in rig.stream.curve(rig.job(job))]


@pytest.fixture
def pair() -> Rig:
    """A core with two jobs and two slots."""
    rig = Rig(capacity=2)
    rig.create()
    rig.create()
    return rig


def test_a_job_that_is_answered_on_its_way_waits_and_then_trains_behind_that(pair: Rig) -> None:
    trained(pair, 1, 2, 3)
    pair.command(AnswerJob("2", "1", 2, completes=False))
    answered = pair.job("2")
    assert (answered.state, answered.position, answered.high_water) == (JobState.PENDING, 0, 2)
    assert curve(pair, "2") == [(1, 0.1), (2, 0.2)]
    pair.start("2", "n1/1", from_snapshot=("1", 3))
    pair.report(4, 0.7, "2")
    assert curve(pair, "2") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.7)]


def test_a_snapshot_of_the_same_training_leaves_no_hole_in_the_curve(pair: Rig) -> None:
    """Check a job with results beyond the snapshot that it starts from: repeated reports are not recorded again."""
    trained(pair, 1, 2, 3)
    pair.command(AnswerJob("2", "1", 3, completes=False))
    pair.start("2", "n1/1", from_snapshot=("1", 1))
    for position in (2, 3, 4):
        pair.report(position, position / 10, "2")
    assert curve(pair, "2") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


def test_a_snapshot_of_another_training_begins_another_curve(pair: Rig) -> None:
    trained(pair, 1, 2)
    pair.start("2", "n1/1")
    pair.report(1, 0.9, "2")
    pair.ended(RunEndReason.SUSPENDED, 1, snapshot(1, "other"), name="2")
    pair.start("2", "n1/1", from_snapshot=("1", 2))
    assert curve(pair, "2") == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize("answered", [True, False])
def test_who_takes_over_what_another_trained_behind_its_own_training_has_it_as_its_own(answered: bool) -> None:
    """Check that job 2 does not get job 3 as its origin: job 3 already has job 2 as its origin, and the curves would be circular."""
    rig = Rig(capacity=2)
    for _ in range(3):
        rig.create()
    trained(rig, 1, 2)
    rig.start("2", "n1/1", from_snapshot=("1", 1))
    rig.report(2, 0.2, "2")
    rig.report(3, 0.3, "2")
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3), name="2")
    rig.start("3", "n1/1", from_snapshot=("2", 3))
    rig.report(4, 0.1, "3")
    rig.ended(RunEndReason.SUSPENDED, 4, snapshot(4), name="3")
    if answered:
        effects = rig.command(AnswerJob("2", "3", 4))
    else:
        effects = rig.start("2", "n1/1", from_snapshot=("3", 4))
    first, second, third = (rig.job(name) for name in "123")
    assert (first.origin, second.origin, third.origin) == (None, ("1", 1), ("2", 3))
    assert curve(rig, "2") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.1)]
    told = [(e.experiment, e.job, e.report.position) for e in effects if isinstance(e, ReportAccepted)]
    assert told == [("x", "2", 4)]
    assert (second.best, second.last, second.high_water) == ((0.3, 3), 0.1, 4)


def test_who_has_trained_otherwise_since_takes_over_the_others_curve(pair: Rig) -> None:
    trained(pair, 1)
    pair.start("2", "n1/1", from_snapshot=("1", 1))
    pair.report(2, 0.9, "2")
    pair.ended(RunEndReason.SUSPENDED, 2, snapshot(2), name="2")
    pair.report(2, 0.2)
    pair.ended(RunEndReason.SUSPENDED, 2, snapshot(2, "other"))
    pair.command(AnswerJob("1", "2", 2))
    assert curve(pair, "1") == [(1, 0.1), (2, 0.9)]


def test_results_that_it_has_already_change_nothing(pair: Rig) -> None:
    trained(pair, 1, 2)
    pair.command(AnswerJob("2", "1", 2, completes=False))
    pair.command(AnswerJob("2", "1", 1, completes=False))
    assert curve(pair, "2") == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize("forks", [True, False])
def test_a_snapshot_that_was_asked_for_wakes_a_policy_that_forks(forks: bool) -> None:
    rig = Rig(capacity=2, forks=forks)
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2,))
    woken = []
    for position in (1, 2):
        rig.report(position)
        before = len(rig.called(AllocateJobs))
        rig.taken(position)
        woken.append(len(rig.called(AllocateJobs)) - before)
    assert woken == [0, int(forks)]


@pytest.mark.parametrize("answered", [True, False])
def test_what_trained_behind_another_s_snapshot_goes_on_when_the_search_is_extended(answered: bool) -> None:
    """Check that a job that has only results of another job waits until its policy names a snapshot to start from."""
    rig = Rig(capacity=2, max_position=3, jobs=2)
    rig.create()
    rig.create()
    trained(rig, 1, 2)
    if answered:
        rig.command(AnswerJob("2", "1", 2))
    else:
        rig.start("2", "n1/1", from_snapshot=("1", 1))
        rig.report(3, 0.5, "2", at_until=True)
        rig.ended(RunEndReason.UNTIL, 3, snapshot(3, "other"), name="2")
    assert rig.job("2").state is JobState.COMPLETED
    rig.feed(Updated(rig.now, StreamId("x"), "longer", max_position=5))
    assert rig.job("2").state is (JobState.PENDING if answered else JobState.SUSPENDED)
    if answered:
        rig.start("2", "n1/1", from_snapshot=("1", 2))
        assert (rig.run("2").position, curve(rig, "2")) == (2, [(1, 0.1), (2, 0.2)])


@pytest.mark.parametrize(("newest", "kept"), [(False, [2, 4, 5]), (True, [4, 5])])
def test_a_policy_may_fork_from_the_newest_alone_of_what_it_asked_for(newest: bool, kept: list[int]) -> None:
    rig = Rig(capacity=1, forks_newest=newest)
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2, 4))
    for position in (1, 2, 3, 4, 5):
        rig.report(position)
        rig.taken(position)
    assert rig.stream.snapshots.positions("1") == kept


def test_what_is_forked_from_stays_though_newer_ones_were_asked_for() -> None:
    rig = Rig(capacity=2, forks_newest=True)
    rig.create()
    trained(rig, 1)
    rig.command(ForkJob("2", "1", 1, {"lr": 0.5}))
    rig.command(AmendRun("1", "t", snapshot_at=(2,)))
    rig.say(rig.key(), Amended("t", True, 1))
    rig.report(2)
    rig.taken(2)
    rig.report(3)
    rig.taken(3)
    assert rig.stream.snapshots.positions("1") == [1, 2, 3]
