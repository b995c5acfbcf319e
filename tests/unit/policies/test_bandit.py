"""Tests of the bandit policy, against schedules computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from hopyard.policy import TERMINATE, IterationFinish, JobState
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import Hyperparameters, RunEndReason, StartJob
from hopyard_policies.bandit import BanditPolicy

pytestmark = pytest.mark.quick

Levels = Mapping[int, float | Sequence[float | None]]

UNTIL, TERMINATED, LOST = RunEndReason.UNTIL, RunEndReason.TERMINATED, RunEndReason.LOST


def levels(values: Levels) -> Any:
    """Return a curve on which configuration x reports `values[x]`: the same number always, or the items of a sequence in turn.

    None is a report without the metric.
    """

    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        found = values[int(hyperparameters["x"])]
        value = found[position - 1] if isinstance(found, Sequence) else found
        return VirtualStep({} if value is None else {"accuracy": value})

    return curve


def searched(policy: BanditPolicy, values: Levels, **changes: Any) -> VirtualCluster:
    """Return a cluster that ran the jobs of `values` to their end, by default one after the other on one slot with four units each."""
    terms: dict[str, Any] = {"slots": 1, "jobs": len(values), "max_position": 4}
    cluster = VirtualCluster(policy, curve=levels(values), **{**terms, **changes})
    cluster.run()
    return cluster


def runs(cluster: VirtualCluster) -> list[tuple[object, ...]]:
    """Return (job, slot, start time, end time, position, reason) of each run, in order of start."""
    logs = sorted(cluster.runs, key=lambda r: (r.began, r.slots))
    return [(r.job, r.slots[0], r.began, r.ended, r.position, r.reason) for r in logs]


def trained(cluster: VirtualCluster) -> dict[str, int]:
    """Return the last position of each job."""
    return {
        job.id: job.position if job.state is JobState.COMPLETED else job.high_water for job in cluster.jobs.values()
    }


def test_the_papers_numbers() -> None:
    # 0.5 * 1.5 = 0.75 is not above 0.9; 0.65 * 1.5 = 0.975 is.
    cluster = searched(BanditPolicy(), {1: 0.9, 2: 0.5, 3: 0.65}, max_position=25)
    assert runs(cluster) == [
        ("1", "m01", 0, 25, 25, UNTIL),
        ("2", "m01", 25, 35, 10, TERMINATED),
        ("3", "m01", 35, 60, 25, UNTIL),
    ]


def test_two_slots_fifo_and_no_idle_slot() -> None:
    # Job 2 is compared at 2 s, when job 1 has 0.9 (0.3 * 1.5 is less), and job 3 takes its slot at once. Job 3 fails only at its second
    # boundary: 0.62 is near enough to 0.9, but not to 1.0, which job 1 reaches at 3 s.
    values: Levels = {1: (0.9, 0.9, 1.0, 1.0), 2: 0.3, 3: 0.62, 4: 0.8, 5: 0.1}
    cluster = searched(BanditPolicy(evaluation_boundary=2), values, slots=2)
    assert runs(cluster) == [
        ("1", "m01", 0, 4, 4, UNTIL),
        ("2", "m02", 0, 2, 2, TERMINATED),
        ("3", "m02", 2, 4, 2, TERMINATED),
        ("4", "m01", 4, 8, 4, UNTIL),
        ("5", "m02", 4, 6, 2, TERMINATED),
    ]


def test_the_best_of_a_job_counts_and_not_its_last_value() -> None:
    cluster = searched(BanditPolicy(evaluation_boundary=2), {1: 0.9, 2: (0.7, 0.1, 0.1, 0.1)})
    assert trained(cluster) == {"1": 4, "2": 4}


@pytest.mark.parametrize(
    ("mode", "best", "goes_on", "ends"),
    [
        ("max", 0.75, 0.501, 0.5),  # 0.5 * 1.5 = 0.75 is not above 0.75
        ("max", -1.0, -1.499, -1.5),  # the mirror image of a loss
        ("max", 0.0, 0.0, -1e-9),
        ("max", 0.5, 0.4, -0.4),
        ("max", 0.5, 0.5, 0.0),
        ("min", 0.25, 0.374, 0.375),  # 0.375 is not below 0.25 * 1.5
        ("min", -0.75, -0.501, -0.5),
        ("min", 0.0, 0.0, 1e-9),
        ("min", -0.5, -0.4, 0.4),
        ("max", 5e-324, 5e-324, 0.0),
        ("max", 1e308, 0.7e308, -1e308),  # the gap overflows
    ],
)
def test_how_near_is_near_enough(mode: Literal["max", "min"], best: float, goes_on: float, ends: float) -> None:
    values = {1: best, 2: goes_on, 3: ends}
    cluster = searched(BanditPolicy(evaluation_boundary=2), values, mode=mode)
    assert trained(cluster) == {"1": 4, "2": 4, "3": 2}


def test_with_a_known_range_the_papers_rule_holds_for_normalized_values() -> None:
    # Rewards of LunarLander (section 6.3): multiples of 100, so that no normalized value is rounded. Without the range 9 of the 36
    # decisions are others.
    rewards = range(-500, 301, 100)
    pairs = [(best, own) for best in rewards for own in rewards if own < best]
    found, raw = {}, {}
    for best, own in pairs:
        values: Levels = {1: best, 2: own}
        policy = BanditPolicy(evaluation_boundary=2)
        found[best, own] = trained(searched(policy, values, low=-500, high=300))["2"] == 4
        raw[best, own] = trained(searched(BanditPolicy(evaluation_boundary=2), values))["2"] == 4
    rule = {(best, own): (own + 500) / 800 * 1.5 > (best + 500) / 800 for best, own in pairs}
    assert found == rule
    assert sum(raw[pair] != rule[pair] for pair in pairs) == 9


def test_with_a_known_range_an_error_is_judged_as_the_accuracy_is() -> None:
    # 0.25 * 1.5 = 0.375 is not below 0.4, but an accuracy of 0.6 is near enough to 0.75; an accuracy of 0.5 is not.
    values = {1: 0.25, 2: 0.4, 3: 0.5}
    cluster = searched(BanditPolicy(evaluation_boundary=2), values, mode="min", low=0, high=1)
    assert trained(cluster) == {"1": 4, "2": 4, "3": 2}


@pytest.mark.parametrize(
    ("best", "goes_on", "ends"),
    [
        (500, 200, 150),  # 1.25, 0.875 and 0.8125
        (-600, -640, -700),  # -0.125, -0.175 and -0.25: the gap must be below 0.0625
        (-400, -430, -600),  # 0.125, 0.0875 and -0.125
    ],
)
def test_values_beyond_the_range_follow_the_rule_for_factors(best: float, goes_on: float, ends: float) -> None:
    cluster = searched(BanditPolicy(evaluation_boundary=2), {1: best, 2: goes_on, 3: ends}, low=-500, high=300)
    assert trained(cluster) == {"1": 4, "2": 4, "3": 2}


def test_without_slack_only_those_as_good_as_the_best_go_on() -> None:
    values = {1: 0.5, 2: 0.499, 3: 0.5, 4: 0.6, 5: 0.5}
    cluster = searched(BanditPolicy(evaluation_boundary=2, epsilon=0), values)
    assert trained(cluster) == {"1": 4, "2": 2, "3": 4, "4": 4, "5": 2}


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_worst(mode: Literal["max", "min"], worst: float) -> None:
    # Job 1 continues, since no job has a better value; job 3 continues because of its one finite value.
    values: Levels = {1: worst, 2: 0.5, 3: (0.5, worst, worst, worst), 4: worst}
    cluster = searched(BanditPolicy(evaluation_boundary=2), values, mode=mode)
    assert trained(cluster) == {"1": 4, "2": 4, "3": 4, "4": 2}


def test_a_job_is_judged_when_it_has_reported_the_metric() -> None:
    # Job 2 has no value at 2, and 0.1 is too far from 0.9 at 3. Job 3 reports the metric in time, at its first position only.
    values: Levels = {1: 0.9, 2: (None, None, 0.1, 0.1), 3: (0.8, None, None, None), 4: (None, None, None, None)}
    cluster = searched(BanditPolicy(evaluation_boundary=2), values)
    assert trained(cluster) == {"1": 4, "2": 3, "3": 4, "4": 4}


def test_no_report_between_boundaries_waits() -> None:
    cluster = searched(BanditPolicy(evaluation_boundary=3), {1: 0.5, 2: 0.5}, max_position=8)
    starts = [c for entry in cluster.history for c in entry.commands if isinstance(c, StartJob)]
    assert [(start.until, start.allowed) for start in starts] == [(8, 3), (8, 3)]
    finishes = [entry for entry in cluster.history if isinstance(entry.call, IterationFinish)]
    up_to = [entry.decision.up_to for entry in finishes if entry.decision is not None and entry.moment.now <= 8]
    assert up_to == [6, 8]  # No decision is requested between the boundaries or at the end.


def test_a_boundary_that_no_report_meets_is_judged_at_the_next_report() -> None:
    cluster = searched(BanditPolicy(evaluation_boundary=4), {1: 0.9, 2: 0.1}, interval=3, max_position=12)
    assert runs(cluster) == [
        ("1", "m01", 0, 4, 12, UNTIL),
        ("2", "m01", 4, 6, 6, TERMINATED),
    ]


def test_a_job_that_trains_again_is_not_judged_again() -> None:
    # Job 1 passes its boundary at 2 and is lost before it saves at its end. By then job 2 has long been better.
    policy = BanditPolicy(evaluation_boundary=2)
    cluster = VirtualCluster(
        policy, slots=2, jobs=2, max_position=4, curve=levels({1: 0.5, 2: (0.5, 0.5, 0.9, 0.9)}), snapshot_every=0
    )
    cluster.at(3.5, cluster.lose_run, "1")
    cluster.run()
    assert runs(cluster) == [
        ("1", "m01", 0, 3.5, 3, LOST),
        ("2", "m02", 0, 4, 4, UNTIL),
        ("1", "m01", 3.5, 7.5, 4, UNTIL),
    ]


def test_a_boundary_at_which_a_run_took_no_decision_is_made_up_for() -> None:
    # Job 2 reaches its boundary at 2 during its suspension. Resumed, it is compared at its next report, not at 4.
    policy = BanditPolicy(evaluation_boundary=2)
    cluster = VirtualCluster(policy, slots=1, jobs=2, max_position=8, curve=levels({1: 0.9, 2: 0.1}))
    cluster.at(9.5, cluster.pause)
    cluster.at(12, cluster.resume)
    cluster.run()
    assert runs(cluster) == [
        ("1", "m01", 0, 8, 8, UNTIL),
        ("2", "m01", 8, 10, 2, RunEndReason.SUSPENDED),
        ("2", "m01", 12, 13, 3, TERMINATED),
    ]


def test_training_that_ends_by_itself_at_a_boundary_is_complete() -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        last = hyperparameters["x"] == 2 and position == 2
        return VirtualStep({"accuracy": 0.1 if hyperparameters["x"] == 2 else 0.9}, finished=last)

    cluster = VirtualCluster(BanditPolicy(evaluation_boundary=2), slots=1, jobs=2, max_position=4, curve=curve)
    cluster.run()
    assert [job.state for job in cluster.jobs.values()] == [JobState.COMPLETED, JobState.COMPLETED]


def test_an_extended_experiment_goes_on_by_the_same_rule() -> None:
    policy = BanditPolicy(evaluation_boundary=3)
    cluster = searched(policy, {1: (0.9,) * 8, 2: (0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8)})
    cluster.at(cluster.now + 1, cluster.extend, 0, 8)
    cluster.run()
    assert trained(cluster) == {"1": 8, "2": 8}
    assert not any(entry.decision == TERMINATE for entry in cluster.history)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"evaluation_boundary": 0}, "evaluation_boundary is 0; it must be a whole number of at least 1"),
        ({"evaluation_boundary": 2.5}, r"evaluation_boundary is 2\.5; it must be a whole number"),
        ({"evaluation_boundary": True}, r"evaluation_boundary is True; it must be a whole number"),
        ({"epsilon": True}, "epsilon is True; it must be a finite number"),
        ({"epsilon": -0.1}, r"epsilon is -0\.1; it must be a finite number of at least 0"),
        ({"epsilon": math.nan}, "epsilon is nan; it must be a finite number"),
        ({"epsilon": math.inf}, "epsilon is inf; it must be a finite number"),
        ({"epsilon": "half"}, "epsilon is 'half'; it must be a finite number"),
        ({"ahead": -1}, "ahead is -1; it must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BanditPolicy(**parameters)
