"""Tests of the median stopping rule, against schedules computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from hopyard.policy import IterationFinish, JobState
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import Hyperparameters, StartJob
from hopyard_policies.median import MedianPolicy

pytestmark = pytest.mark.quick

Levels = Mapping[int, float | Sequence[float | None]]


def levels(values: Levels) -> Any:
    """Return a curve on which configuration x reports `values[x]`: the same number always, or the items of a sequence in turn.

    None is a report without the metric.
    """

    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        found = values[int(hyperparameters["x"])]
        value = found[position - 1] if isinstance(found, Sequence) else found
        return VirtualStep({} if value is None else {"accuracy": value})

    return curve


def searched(policy: MedianPolicy, values: Levels, **changes: Any) -> VirtualCluster:
    """Return a cluster that ran the jobs of `values` to their end, by default one after the other on one slot with four units each."""
    terms: dict[str, Any] = {"slots": 1, "jobs": len(values), "max_position": 4}
    cluster = VirtualCluster(policy, curve=levels(values), **{**terms, **changes})
    cluster.run()
    return cluster


def trained(cluster: VirtualCluster) -> dict[str, int]:
    """Return the last position of each job, negative if it was terminated."""
    return {
        job.id: -job.high_water if job.state is JobState.TERMINATED else job.high_water for job in cluster.jobs.values()
    }


def rule(**changes: Any) -> MedianPolicy:
    return MedianPolicy(**{"evaluation_boundary": 2, "least_jobs": 1, **changes})


def test_the_best_is_held_against_the_median_of_the_running_averages() -> None:
    # At 2 the averages are 0.3, 0.5 and 0.6. Job 4 has an average of 0.35, but its best is 0.5, which is not worse than the median. For
    # job 5 the median of 0.3, 0.35, 0.5 and 0.6 is 0.425, and its best, 0.42, is below.
    values: Levels = {
        1: (0.2, 0.4, 0.5, 0.6),
        2: (0.4, 0.6, 0.7, 0.8),
        3: (0.6, 0.6, 0.6, 0.6),
        4: (0.5, 0.2, 0.9, 0.9),
        5: (0.42, 0.4, 0.9, 0.9),
    }
    assert trained(searched(rule(), values)) == {"1": 4, "2": 4, "3": 4, "4": 4, "5": -2}


def test_the_last_boundary_is_the_end_and_judges_nobody() -> None:
    values: Levels = {1: 0.5, 2: (0.5, 0.5, 0.1, 0.1)}
    assert trained(searched(rule(evaluation_boundary=4), values)) == {"1": 4, "2": 4}


def test_one_that_was_ended_still_counts_where_it_was_judged() -> None:
    # Job 2 ends at 2, with 0.1. For job 3 the median is that of 0.5 and 0.1: 0.3; without job 2 it would be 0.5.
    assert trained(searched(rule(), {1: 0.5, 2: 0.1, 3: 0.3, 4: 0.29})) == {"1": 4, "2": -2, "3": 4, "4": -2}


def test_later_boundaries_have_medians_of_their_own() -> None:
    values: Levels = {1: (0.1, 0.1, 0.9, 0.9, 0.9, 0.9), 2: 0.4}
    # At 2 the median is 0.1, at 4 it is (0.1 + 0.1 + 0.9 + 0.9) / 4 = 0.5.
    assert trained(searched(rule(), values, max_position=6)) == {"1": 6, "2": -4}


def test_nobody_is_judged_before_enough_others_came_as_far() -> None:
    values = {1: 0.9, 2: 0.1, 3: 0.1, 4: 0.05, 5: 0.05}
    # Job 4 is the first with three others to compare with: 0.9, 0.1, 0.1.
    assert trained(searched(rule(least_jobs=3), values)) == {"1": 4, "2": 4, "3": 4, "4": -2, "5": -2}


def test_nobody_is_judged_in_the_grace() -> None:
    assert trained(searched(rule(evaluation_boundary=1, grace=3), {1: 0.9, 2: 0.1})) == {"1": 4, "2": -3}
    assert trained(searched(rule(grace=3), {1: 0.9, 2: 0.1})) == {"1": 4, "2": 4}


def test_minimising_is_the_mirror_image() -> None:
    values = {1: 0.5, 2: 0.9, 3: 0.7, 4: 0.71}
    assert trained(searched(rule(), values, mode="min")) == {"1": 4, "2": -2, "3": 4, "4": -2}


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_worst(mode: Literal["max", "min"], worst: float) -> None:
    # The averages of jobs 1 and 4 are rated worst. With two of these and two of 0.5 the median is not finite and terminates no job; for
    # job 6 it is 0.5, because of a third 0.5, and job 6 has no finite value. Job 4 is compared by its best finite value.
    values: Levels = {1: worst, 2: 0.5, 3: 0.5, 4: (0.5, worst, 0.5, 0.5), 5: 0.5, 6: worst}
    assert trained(searched(rule(), values, mode=mode)) == {"1": 4, "2": 4, "3": 4, "4": 4, "5": 4, "6": -2}


def test_reports_without_the_metric_are_ignored() -> None:
    # At 2 the averages are 0.5, 0.5 and 0.5. Job 4 reports its first value at 3, and is judged there.
    values: Levels = {1: (None, 0.5, 0.5, 0.5), 2: (0.5, None, 0.5, 0.5), 3: 0.5, 4: (None, None, 0.4, 0.4), 5: 0.4}
    assert trained(searched(rule(), values)) == {"1": 4, "2": 4, "3": 4, "4": -3, "5": -2}


@pytest.mark.parametrize("value", [0.1, 0.7, -0.1, 1e308, -1e308, 5e-324])
def test_equal_jobs_are_never_worse_than_each_other(value: float) -> None:
    found = searched(rule(evaluation_boundary=3), dict.fromkeys(range(1, 7), value), max_position=7)
    assert set(trained(found).values()) == {7}


def test_no_report_between_boundaries_waits() -> None:
    cluster = searched(rule(evaluation_boundary=3), {1: 0.5, 2: 0.5}, max_position=8)
    starts = [c for entry in cluster.history for c in entry.commands if isinstance(c, StartJob)]
    assert [(start.until, start.allowed) for start in starts] == [(8, 3), (8, 3)]
    finishes = [entry for entry in cluster.history if isinstance(entry.call, IterationFinish)]
    assert [entry.decision.up_to for entry in finishes if entry.decision is not None] == [6, 8, 6, 8]


def test_a_boundary_that_no_report_meets_is_judged_at_the_next_report() -> None:
    found = searched(rule(evaluation_boundary=4), {1: 0.9, 2: 0.1}, interval=3, max_position=12)
    assert trained(found) == {"1": 12, "2": -6}


def test_a_job_that_trains_again_is_not_judged_again() -> None:
    # Job 1 is the first to pass its boundary at 2, and is lost at 3.5; when it reaches 2 again, job 2 is better.
    cluster = VirtualCluster(rule(), slots=2, jobs=2, max_position=4, curve=levels({1: 0.5, 2: 0.9}))
    cluster.at(3.5, cluster.lose_run, "1")
    cluster.run()
    assert trained(cluster) == {"1": 4, "2": 4}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evaluation_boundary": 0}, "evaluation_boundary is 0; it must be a whole number of at least 1"),
        ({"evaluation_boundary": True}, "evaluation_boundary is True"),
        ({"grace": -1}, "grace is -1; it must be a whole number of at least 0"),
        ({"least_jobs": 0}, "least_jobs is 0; it must be a whole number of at least 1"),
        ({"least_jobs": 2.5}, "least_jobs is 2.5"),
        ({"ahead": -1}, "ahead is -1"),
    ],
)
def test_impossible_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MedianPolicy(**given)
