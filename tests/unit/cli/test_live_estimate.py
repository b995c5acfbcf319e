"""Tests of the estimate of the time left in the live view."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from hopyard.cli.live.estimate import CompletionEstimate, RemainingWork, rounded

pytestmark = pytest.mark.quick


def left_over_time(
    every: float, jobs: int, length: int, *, pace_factor: float = 1.0, until: float = math.inf
) -> list[tuple[float, float | None]]:
    """Return (time, time left) at and between reports of `jobs` jobs that all report at the same moments, `every` seconds apart.

    From half of the training on, the interval is multiplied by `pace_factor`.
    """
    estimate, shown, now = CompletionEstimate(), list[tuple[float, float | None]](), 0.0
    for job in range(jobs):
        estimate.observe(str(job), 0, now)
    for position in range(1, length + 1):
        interval = every * (pace_factor if position > length / 2 else 1.0)
        shown += [(now + interval * part / 4, estimate.left(now + interval * part / 4)) for part in range(1, 4)]
        now += interval
        if now > until:
            break
        for job in range(jobs):
            if estimate.observe(str(job), position, now):
                rest = float(length - position)
                estimate.measure(RemainingWork((jobs - job - 1) * (rest + 1) + (job + 1) * rest, rest + 1, jobs), now)
        shown.append((now, estimate.left(now)))
    return shown


@pytest.mark.parametrize("every", [0.1, 0.7, 3.0, 90.0, 1800.0])
@pytest.mark.parametrize("jobs", [1, 4])
def test_with_a_constant_pace_the_time_left_never_rises(every: float, jobs: int) -> None:
    shown = [(now, left) for now, left in left_over_time(every, jobs, 100) if left is not None]
    assert len(shown) > 100
    for (_, before), (_, after) in pairwise(shown):
        assert after <= before + 1e-6
        assert rounded(after) <= rounded(before)
    # It is also right: the training takes 100 intervals.
    assert all(left == pytest.approx(100 * every - now, abs=2.5 * every + 1) for now, left in shown)


def test_between_reports_the_time_left_decreases_by_one_second_each_second_whatever_the_pace_becomes() -> None:
    estimate = CompletionEstimate()
    for second in range(10):
        if estimate.observe("1", second, float(second)):
            estimate.measure(RemainingWork(100 - second, 100 - second, 1), float(second))
    lefts = [estimate.left(9 + tenth / 10) for tenth in range(950)]
    assert lefts[0] == pytest.approx(91)
    assert all(
        after == pytest.approx(max(0.0, before - 0.1))
        for before, after in pairwise(lefts)
        if before is not None and after is not None
    )


def test_a_slower_pace_moves_the_end_gradually() -> None:
    before, *_, after = [left for now, left in left_over_time(1.0, 1, 400, pace_factor=2.0, until=205) if now >= 200]
    assert before is not None
    assert after is not None
    # At half the pace 195 iterations take 390 s. One report moves the estimate only part of the way.
    assert before < after < 300


def test_the_last_job_takes_as_long_as_one_job_trains() -> None:
    estimate = CompletionEstimate()
    for second in range(10):
        for job in ("1", "2"):
            if estimate.observe(job, second, float(second)):
                estimate.measure(RemainingWork(iterations=50, longest=50, running=2), float(second))
    # Both jobs together train two iterations a second, but the job with 50 left trains only one.
    assert estimate.left(9.0) == pytest.approx(50)


def test_there_is_no_estimate_without_measurements_or_against_the_evidence() -> None:
    estimate = CompletionEstimate()
    assert estimate.left(0.0) is None
    assert not estimate.observe("1", 500, 0.0)  # what was trained before the first observation is no progress
    assert not estimate.observe("1", 501, 1.0)  # the first report begins the first interval
    assert not estimate.observe("1", 502, 1.5)  # an interval takes at least one second
    for second in range(2, 6):
        assert estimate.left(float(second)) is None or second > 4
        assert estimate.observe("1", 501 + second, float(second))
        estimate.measure(RemainingWork(10, 10, 1), float(second))
    assert estimate.left(5.0) is not None
    assert estimate.left(20.0) == 0.0
    assert estimate.left(30.0) is None  # overdue: the pace is not what was measured
    estimate.interrupt()
    assert estimate.left(5.0) is None


def test_lost_progress_is_trained_again() -> None:
    estimate = CompletionEstimate()
    for now, position in enumerate([0, 1, 2, 3, 4]):
        if estimate.observe("1", position, float(now)):
            estimate.measure(RemainingWork(10 - position, 10 - position, 1), float(now))
    assert not estimate.observe("1", 2, 4.5)
    assert estimate.observe("1", 3, 5.0)
    estimate.measure(RemainingWork(7, 7, 1), 5.0)
    assert estimate.left(5.0) == pytest.approx(7)


def test_estimates_are_rounded_up_to_what_they_are_worth() -> None:
    assert [rounded(seconds) for seconds in (0, 4, 5.1, 61, 595, 601, 3599, 3601)] == [
        5,
        5,
        10,
        70,
        600,
        660,
        3600,
        3900,
    ]
    tenths = [rounded(tenth / 10) for tenth in range(0, 80_000, 7)]
    assert tenths == sorted(tenths)
