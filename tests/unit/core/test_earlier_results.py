"""Tests of jobs that are answered from the results of earlier experiments."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import AnswerJob, JobState, Report, RunEndReason, StartJob, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.effects import ForgetSnapshot, Noted, ReportAccepted, Start
from hopyard_engine.core.events import Ended, Imported, Operated, Updated
from hopyard_engine.core.state.entities import earlier_of
from hopyard_engine.core.types import EarlierTrial
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.reasons import said
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def reports(*positions: int, worth: float = 0.1) -> tuple[Report, ...]:
    return tuple(Report(position, {"score": round(position * worth, 3)}, 2.0) for position in positions)


EARLIER = (
    EarlierTrial("old/1", {"lr": 0.1}, reports(1, 2, 3, 4)),
    EarlierTrial("old/2", {"lr": 0.2}, reports(3, 4, worth=0.2), ("old/1", 2)),
)
SAVED = (
    EarlierTrial("old/1", {"lr": 0.1}, reports(1, 2, 3, 4), snapshots=(snapshot(2, "two"), snapshot(4, "four"))),
    EarlierTrial("old/2", {"lr": 0.2}, reports(3, 4, worth=0.2), ("old/1", 2), (snapshot(3, "three"),)),
)


def curve(rig: Rig, job: str) -> list[tuple[int, float]]:
    return [(point.position, point.metrics["score"]) for point in rig.stream.curve(rig.job(job))]


@pytest.fixture
def rig() -> Rig:
    made = Rig(earlier=EARLIER, max_position=4)
    made.create()
    made.create()
    return made


def test_a_trial_begins_with_what_it_has_in_common_with_the_one_before() -> None:
    found = earlier_of(EARLIER)
    assert [(one.position, one.metrics["score"]) for one in found["old/2"].reports] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.6),
        (4, 0.8),
    ]
    assert found["old/2"].high_water == 4


def test_a_job_is_complete_with_an_earlier_one_s_results_and_has_no_run(rig: Rig) -> None:
    effects = rig.command(AnswerJob("1", "old/2", 4))
    job = rig.job("1")
    assert (job.state, job.position, job.high_water, job.attempt) == (JobState.COMPLETED, 4, 4, 0)
    assert str(job.reason) == "answered from old/2 at 4, which was trained earlier"
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.6), (4, 0.8)]
    told = [effect for effect in effects if isinstance(effect, ReportAccepted)]
    assert [(one.job, one.report.position) for one in told] == [("1", 1), ("1", 2), ("1", 3), ("1", 4)]
    assert rig.stream.best == ("1", 4, 0.8)
    rig.command(AnswerJob("2", "1", 4))  # An answered job can be a source as well.
    assert curve(rig, "2") == curve(rig, "1")


def test_a_job_that_is_answered_on_its_way_trains_from_where_it_has_a_state(rig: Rig) -> None:
    rig.command(AnswerJob("1", "old/1", 2, completes=False))
    job = rig.job("1")
    assert (job.state, job.position, job.high_water, job.shared) == (JobState.PENDING, 0, 2, 2)
    rig.start("1", "n1/0")
    rig.report(1, 0.1)
    rig.report(2, 0.3)
    assert [str(effect.reason) for effect in rig.of(Noted)] == [
        "position 2 was trained again and differs: {'score': 0.2} then {'score': 0.3}"
    ]
    rig.report(3, 0.9)
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.9)]
    assert job.shared == 0


def test_results_that_are_not_there_are_refused(rig: Rig) -> None:
    rig.stream.earlier.update(earlier_of([EarlierTrial("old/3", {}, reports(1, 2))]))
    rig.command(AnswerJob("1", "old/3", 3))
    assert rig.job("1").state is JobState.PENDING
    assert str(rig.stream.conversation.refusal) == "job 'old/3' has reported up to 2, not 3"
    rig.command(AnswerJob("1", "older/3", 3))
    assert str(rig.stream.conversation.refusal) == "there is no job 'older/3'"


def test_a_target_that_an_earlier_result_reaches_ends_the_experiment() -> None:
    rig = Rig(earlier=EARLIER, max_position=4, target=0.7)
    rig.create()
    rig.create()
    rig.command(AnswerJob("1", "old/1", 4))
    assert rig.stream.state.value == "RUNNING"
    rig.command(AnswerJob("2", "old/2", 4))
    assert rig.stream.state.value != "RUNNING"
    assert str(rig.stream.founder.reason) == "job 2 reached the target 0.7 with 0.8 at 4"


def test_a_job_without_a_state_begins_anew_when_the_search_is_extended(rig: Rig) -> None:
    rig.command(AnswerJob("1", "old/1", 4))
    rig.feed(Updated(rig.now, StreamId("x"), "longer", max_position=6))
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.PENDING, 0, 4)
    rig.start("1", "n1/0")
    for position in range(1, 7):
        rig.report(position, round(position * 0.1, 3))
    assert curve(rig, "1") == [(position, round(position * 0.1, 3)) for position in range(1, 7)]


# ------------------------------------------------------------------------------------------------------------- snapshots


def saved(**terms: object) -> Rig:
    """Return a core with two jobs, and with results and snapshots of earlier experiments."""
    rig = Rig(earlier=SAVED, **{"max_position": 6, **terms})  # type: ignore[arg-type]
    rig.create()
    rig.create()
    return rig


def forgotten(rig: Rig) -> list[str]:
    """Return the snapshots that the last event released in the store."""
    return [effect.sha256 for effect in rig.of(ForgetSnapshot)]


def lose(rig: Rig, name: str = "1") -> None:
    """End a run because no node and no store has the snapshot that it should load."""
    rig.say(rig.key(name), Ended(RunEndReason.LOST, rig.run(name).start, cause=said("gone"), snapshot_missing=True))


def end(rig: Rig) -> None:
    """Stop the experiment while no run is active."""
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state.ended


def test_a_job_starts_from_an_earlier_one_s_snapshot_and_has_its_results() -> None:
    rig = saved()
    effects = rig.command(StartJob("1", ("n1/0",), from_snapshot=("old/2", 3)))
    (start,) = rig.sent(Start)
    assert isinstance(start, Start)
    assert (start.snapshot, start.snapshot_nodes, start.until) == (snapshot(3, "three"), (), 6)
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.STARTING, 3, 3)
    assert str(job.story[-1]) == "STARTING (starting on n1/0 from position 3, to which old/2 was trained earlier)"
    told = [effect.report.position for effect in effects if isinstance(effect, ReportAccepted)]
    assert told == [1, 2, 3]
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.6)]


def test_what_it_has_by_that_is_its_own_and_it_comes_back_to_it() -> None:
    rig = saved()
    rig.start("1", "n1/0", from_snapshot=("old/1", 2))
    rig.report(3, 0.7)
    rig.ended(RunEndReason.LOST, 3)
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.SUSPENDED, 2, 3)
    rig.start("1", "n1/0")
    assert rig.run("1").start == 2
    rig.command(StartJob("2", ("n1/1",), from_snapshot=("1", 2)))
    assert curve(rig, "2") == [(1, 0.1), (2, 0.2)]


def test_earlier_snapshots_stay_in_the_store_until_the_experiment_is_over() -> None:
    rig = saved()
    assert [rig.stream.snapshots.holds(name) for name in ("two", "three", "four", "five")] == [True, True, True, False]
    assert rig.stream.snapshots.size == 0
    rig.start("1", "n1/0", from_snapshot=("old/1", 2))
    assert rig.stream.snapshots.size == 10
    rig.report(3, 0.7)
    rig.taken(3, sha256="mine")
    rig.stored(3, sha256="mine")
    assert rig.stream.snapshots.positions("1") == [3]
    assert forgotten(rig) == []
    rig.report(6, 0.7, at_until=True)
    rig.ended(RunEndReason.UNTIL, 6, snapshot(6, "end"))
    rig.stored(6, sha256="end", attempt=1)
    end(rig)
    assert sorted(forgotten(rig)) == ["four", "three", "two"]
    assert [rig.stream.snapshots.holds(name) for name in ("two", "three", "four", "end")] == [False, False, False, True]
    assert [effect.nodes for effect in rig.of(ForgetSnapshot) if effect.sha256 == "two"] == [("n1",)]


def test_a_snapshot_that_a_job_has_taken_over_outlives_the_loan() -> None:
    rig = saved(max_position=4)
    rig.start("1", "n1/0", from_snapshot=("old/1", 2))
    rig.report(4, 0.7, at_until=True)
    rig.ended(RunEndReason.UNTIL, 4)
    assert rig.job("1").state is JobState.COMPLETED
    end(rig)
    assert sorted(forgotten(rig)) == ["four", "three"]
    assert rig.stream.snapshots.holds("two")


def test_a_snapshot_that_is_gone_is_offered_no_more_and_the_job_begins_anew() -> None:
    rig = saved()
    rig.command(StartJob("1", ("n1/0",), from_snapshot=("old/1", 2)))
    lose(rig)
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.PENDING, 0, 2)
    assert forgotten(rig) == ["two"]
    assert list(rig.stream.earlier["old/1"].snapshots) == [4]
    rig.command(StartJob("2", ("n1/0",), from_snapshot=("old/1", 2)))
    assert str(rig.stream.conversation.refusal) == "old/1, which was trained earlier, has no snapshot at position 2"
    assert (rig.job("2").state, rig.job("2").high_water) == (JobState.PENDING, 0)
    rig.start("1", "n1/0")
    assert rig.run("1").start == 0


def test_a_job_that_is_complete_by_an_answer_has_its_end_and_can_be_extended_from_there() -> None:
    rig = saved(max_position=4)
    rig.command(AnswerJob("1", "old/1", 4))
    assert (rig.job("1").state, rig.stream.snapshots.positions("1")) == (JobState.COMPLETED, [4])
    rig.feed(Updated(rig.now, StreamId("x"), "longer", max_position=6))
    assert (rig.job("1").state, rig.job("1").position) == (JobState.SUSPENDED, 4)
    rig.start("1", "n1/0")
    assert rig.run("1").start == 4
    rig.report(5, 0.5)
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (5, 0.5)]


def test_a_start_that_is_refused_leaves_the_job_as_it_was() -> None:
    rig = saved()
    rig.command(StartJob("1", ("n1/0",), until=2, from_snapshot=("old/1", 2)))
    assert str(rig.stream.conversation.refusal) == "until must be in 3..6 for job '1', found 2"
    assert (rig.job("1").high_water, rig.stream.snapshots.positions("1")) == (0, [])


def test_a_target_that_the_results_reach_ends_the_experiment() -> None:
    rig = saved(target=0.55)
    rig.command(StartJob("1", ("n1/0",), from_snapshot=("old/2", 3)))
    assert str(rig.stream.founder.reason) == "job 1 reached the target 0.55 with 0.6 at 3"


def test_an_experiment_in_another_cluster_has_no_earlier_ones() -> None:
    rig = saved()
    rig.start("1", "n1/0", from_snapshot=("old/1", 2))
    rig.core.restore(Imported(rig.now, StreamId("x"), "r", ("two",)))
    assert [trial.snapshots for trial in rig.stream.earlier.values()] == [{}, {}]
    assert rig.stream.snapshots.positions("1") == [2]
    assert not rig.stream.snapshots.holds("four")


# -------------------------------------------------------------------------------------------- what is kept for later ones


def branched(rig: Rig) -> list[int]:
    """Complete a job with a further snapshot at a branch point; return its snapshots after the end of the experiment."""
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2,))
    rig.taken(2)
    rig.stored(2)
    rig.report(4, 0.5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    rig.stored(4, attempt=1)
    assert rig.stream.state.ended
    return rig.stream.snapshots.positions("1")


def test_where_others_branched_off_later_experiments_may() -> None:
    assert branched(Rig(max_position=4, jobs=1)) == [4]
    assert branched(Rig(max_position=4, jobs=1, plan="root", lasting=True)) == [2, 4]


def test_a_journal_from_before_that_is_applied_as_it_was_decided() -> None:
    rig = Rig(max_position=4, jobs=1, plan="root")
    branched(rig)
    written = [(kind_of(event), encode(event)) for event in rig.journal]
    assert b"lasting" not in written[0][1]
    core = Core()
    for record in written:
        core.restore(decode(*record))  # type: ignore[arg-type]
    assert core.streams[StreamId("x")].snapshots.positions("1") == [4]


def test_the_quota_gives_up_first_what_later_experiments_might_use() -> None:
    assert branched(Rig(max_position=4, jobs=1, lasting=True, snapshot_quota=15)) == [4]
