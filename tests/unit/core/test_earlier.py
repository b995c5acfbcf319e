"""Jobs that are answered from what earlier experiments have trained."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import AnswerJob, JobState, Report
from hopyard_scheduler.core.effects import Noted, ReportAccepted
from hopyard_scheduler.core.events import EarlierTrial, Updated
from hopyard_scheduler.core.model import earlier_of
from tests.unit.core.rig import Rig


def reports(*positions: int, worth: float = 0.1) -> tuple[Report, ...]:
    return tuple(Report(position, {"score": round(position * worth, 3)}, 2.0) for position in positions)


EARLIER = (
    EarlierTrial("old/1", {"lr": 0.1}, reports(1, 2, 3, 4)),
    EarlierTrial("old/2", {"lr": 0.2}, reports(3, 4, worth=0.2), ("old/1", 2)),
)


def curve(rig: Rig, job: str) -> list[tuple[int, float]]:
    return [(point.position, point.metrics["score"]) for point in rig.x.curve(rig.job(job))]


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
    assert job.reason == "answered from old/2 at 4, which was trained earlier"
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.6), (4, 0.8)]
    told = [effect for effect in effects if isinstance(effect, ReportAccepted)]
    assert [(one.job, one.report.position) for one in told] == [("1", 1), ("1", 2), ("1", 3), ("1", 4)]
    assert rig.x.best == ("1", 4, 0.8)
    rig.command(AnswerJob("2", "1", 4))  # It is as good a source as any.
    assert curve(rig, "2") == curve(rig, "1")


def test_a_job_that_is_answered_on_its_way_trains_from_where_it_has_a_state(rig: Rig) -> None:
    rig.command(AnswerJob("1", "old/1", 2, completes=False))
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.PENDING, 0, 2)
    rig.start("1", "n1/0")
    rig.report(1, 0.1)
    rig.report(2, 0.3)
    assert [effect.text for effect in rig.of(Noted)] == [
        "position 2 was trained again and differs: {'score': 0.2} then {'score': 0.3}"
    ]
    rig.report(3, 0.9)
    assert curve(rig, "1") == [(1, 0.1), (2, 0.2), (3, 0.9)]


def test_results_that_are_not_there_are_refused(rig: Rig) -> None:
    rig.x.earlier.update(earlier_of([EarlierTrial("old/3", {}, reports(1, 2))]))
    rig.command(AnswerJob("1", "old/3", 3))
    assert rig.job("1").state is JobState.PENDING
    assert rig.x.refusal == "job 'old/3' has reported up to 2, not 3"
    rig.command(AnswerJob("1", "older/3", 3))
    assert rig.x.refusal == "there is no job 'older/3'"


def test_a_target_that_an_earlier_result_reaches_ends_the_experiment() -> None:
    rig = Rig(earlier=EARLIER, max_position=4, target=0.7)
    rig.create()
    rig.create()
    rig.command(AnswerJob("1", "old/1", 4))
    assert rig.x.phase.value == "RUNNING"
    rig.command(AnswerJob("2", "old/2", 4))
    assert rig.x.phase.value != "RUNNING"
    assert rig.x.founder.reason == "job 2 reached the target 0.7 with 0.8 at 4"


def test_a_job_without_a_state_begins_anew_when_the_search_is_extended(rig: Rig) -> None:
    rig.command(AnswerJob("1", "old/1", 4))
    rig.feed(Updated(rig.now, "x", "longer", max_position=6))
    job = rig.job("1")
    assert (job.state, job.position, job.high_water) == (JobState.PENDING, 0, 4)
    rig.start("1", "n1/0")
    for position in range(1, 7):
        rig.report(position, round(position * 0.1, 3))
    assert curve(rig, "1") == [(position, round(position * 0.1, 3)) for position in range(1, 7)]
