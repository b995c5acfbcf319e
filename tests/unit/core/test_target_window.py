"""Tests of `target_over`: a target for the mean of a job's last reports."""

from __future__ import annotations

import math

import pytest

from hopyard.policy.vocabulary import ExperimentState, ForkJob, JobState, Report, RunEndReason, StreamId
from hopyard_engine.core.events import Operated, Reports, Updated
from hopyard_engine.core.state.curve import LearningCurve
from hopyard_engine.core.state.stream import Stream
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick

NAN, INF = math.nan, math.inf


def training(**terms: object) -> Rig:
    rig = Rig(**terms)  # type: ignore[arg-type]
    rig.create()
    rig.start("1")
    return rig


def reports(rig: Rig, *values: float, name: str = "1") -> int | None:
    """Report these values at 1, 2, ...; return the position at which the experiment began to end, or None."""
    for position, value in enumerate(values, 1):
        rig.report(position, value, name=name)
        if rig.stream.state is not ExperimentState.RUNNING:
            return position
    return None


@pytest.mark.parametrize(
    ("values", "over", "solved_at"),
    [
        ((250.0, 100.0, 260.0), 1, 1),
        ((250.0, 150.0, 190.0), 2, 2),  # (250 + 150) / 2 = 200: as good as the target.
        ((250.0, 100.0, 260.0, 150.0), 2, 4),  # Means: 175, 180, 205.
        ((300.0, 300.0), 3, None),  # Two reports are too few.
        ((100.0, 300.0, 199.0, 101.0), 3, 4),  # 199.67, then (300 + 199 + 101) / 3 = 200.
        ((300.0, NAN, 300.0, 299.0), 2, 4),  # A window with NaN has no mean.
        ((300.0, INF, 300.0, -INF, 300.0, 100.0), 2, 6),
        ((300.0, NAN, 300.0, 300.0), 3, None),
        ((1e308, 1e308, 1e308), 3, 3),  # The sum overflows, the mean does not.
    ],
)
def test_the_mean_of_the_last_reports_reaches_the_target(
    values: tuple[float, ...], over: int, solved_at: int | None
) -> None:
    assert reports(training(target=200.0, target_over=over), *values) == solved_at


def test_a_mean_of_equal_values_is_that_value() -> None:
    """Check values whose floating-point sum is inexact: 0.1 + 0.1 + 0.1 is not 0.3."""
    assert reports(training(target=0.1, target_over=3), 0.1, 0.1, 0.1) == 3
    assert reports(training(target=0.1, target_over=3, mode="min"), 0.1, 0.1, 0.1) == 3


def test_a_metric_to_minimise() -> None:
    assert reports(training(target=0.5, target_over=2, mode="min"), 0.2, 0.9, 0.3, 0.7) == 4


def test_the_end_says_what_was_reached_and_completes_the_winner() -> None:
    rig = training(target=200.0, target_over=2)
    assert reports(rig, 150.0, 250.0) == 2
    assert str(rig.stream.reason) == "job 1 reached the target 200 with 200 as the mean of 2 reports at 2"
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.stored(2)
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)


def test_a_winner_is_who_reached_it_at_any_time_not_who_has_the_best_report() -> None:
    rig = training(target=200.0, target_over=2)
    rig.create()
    rig.start("2", "n1/1")
    rig.report(1, 900.0, name="2")
    assert reports(rig, 100.0, 300.0) == 2
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.ended(RunEndReason.TERMINATED, 1, name="2")
    rig.stored(2)
    assert [rig.job(name).state for name in ("1", "2")] == [JobState.COMPLETED, JobState.TERMINATED]


def test_reports_without_the_metric_do_not_count() -> None:
    rig = training(target=200.0, target_over=2)
    rig.report(1, 300.0)
    rig.say(rig.key(), Reports((Report(2, {"loss": 1.0}),)))
    assert rig.stream.state is ExperimentState.RUNNING
    rig.report(3, 100.0)
    assert str(rig.stream.state) == "ExperimentState.ENDING"


def test_several_reports_in_one_message_are_taken_one_by_one() -> None:
    rig = training(target=200.0, target_over=2)
    values = enumerate([100.0, 300.0, 900.0], 1)
    rig.say(rig.key(), Reports(tuple(Report(position, {"score": value}) for position, value in values)))
    assert str(rig.stream.reason).endswith("with 200 as the mean of 2 reports at 2")


def test_what_is_trained_again_counts_once() -> None:
    """Check that reports which a job repeats after a loss do not enter the window a second time."""
    rig = training(target=200.0, target_over=2)
    rig.report(1, 250.0)
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    rig.report(1, 250.0)
    assert rig.stream.state is ExperimentState.RUNNING
    rig.report(2, 150.0)
    assert str(rig.stream.state) == "ExperimentState.ENDING"


def test_a_forked_job_goes_on_from_its_ancestors_reports() -> None:
    rig = training(target=200.0, target_over=2)
    rig.report(1, 250.0)
    rig.taken(1)
    rig.stored(1)
    rig.command(ForkJob("2", "1", 1, {"lr": 0.1}))
    rig.start("2", "n1/1")
    rig.report(2, 150.0, name="2")
    assert str(rig.stream.reason).startswith("job 2 reached")


def test_a_forks_ancestor_counts_up_to_where_it_forked() -> None:
    rig = training(target=200.0, target_over=3)
    assert reports(rig, 100.0, 200.0) is None
    rig.taken(2)
    rig.stored(2)
    rig.report(3, 250.0)  # The fork starts before this one.
    rig.command(ForkJob("2", "1", 2, {"lr": 0.1}))
    rig.start("2", "n1/1")
    rig.report(3, 290.0, name="2")  # (100 + 200 + 290) / 3 < 200
    assert rig.stream.state is ExperimentState.RUNNING
    rig.report(4, 110.0, name="2")
    assert str(rig.stream.reason) == "job 2 reached the target 200 with 200 as the mean of 3 reports at 4"


def test_a_report_is_judged_without_a_copy_of_the_whole_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = training(target=200.0, target_over=2)
    assert reports(rig, 100.0, 100.0) is None
    monkeypatch.delattr(Stream, "curve")
    monkeypatch.delattr(LearningCurve, "upto")
    rig.report(3, 300.0)
    assert str(rig.stream.reason).startswith("job 1 reached")


def test_a_target_that_is_moved_is_compared_with_all_means() -> None:
    rig = training(target=201.0, target_over=2)
    assert reports(rig, 500.0, -100.0, 260.0) is None  # Means: 200, 80.
    rig.feed(Updated(rig.now, StreamId("x"), "u", target=200.5))
    assert rig.stream.state is ExperimentState.RUNNING
    rig.feed(Updated(rig.now, StreamId("x"), "v", target=200.0))
    assert str(rig.stream.reason) == "job 1 reached the target 200 with 200 as the mean of 2 reports at 2"


def test_a_mean_that_was_reached_during_a_pause_counts_when_it_is_over() -> None:
    rig = training(target=200.0, target_over=2)
    rig.report(1, 300.0)
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.report(2, 100.0)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.stored(2)
    assert rig.stream.state is ExperimentState.PAUSED
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)
