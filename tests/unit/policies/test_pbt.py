"""Tests of population based training, against schedules computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.policy import ENDLESS, ExperimentView, IterationFinish, JobState, RunEnd
from hopyard.policy.testing import Delays, TrainingFailed, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import Command, CreateJob, ForkJob, Hyperparameters, RunEndReason
from hopyard.space import Space
from hopyard_policies.pbt import PbtPolicy

pytestmark = pytest.mark.quick

SPACE = Space.from_dict({"x": {"uniform": [0, 100]}, "width": {"choice": [16, 32, 64]}})
UNTIL, TERMINATED = RunEndReason.UNTIL, RunEndReason.TERMINATED


def levels(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    """Return a step whose metric is the `x` of the configuration, at all positions."""
    return VirtualStep({"accuracy": float(hyperparameters["x"])})


def searched(policy: PbtPolicy, values: Mapping[int, float], **changes: Any) -> VirtualCluster:
    """Return a cluster that ran a population to its end, by default on one slot to position 4.

    The metric of member n is `values[n]`.
    """
    cluster = prepared(policy, values, **changes)
    cluster.run()
    return cluster


def prepared(policy: PbtPolicy, values: Mapping[int, float], **changes: Any) -> VirtualCluster:
    """Return the cluster of `searched` before it runs."""
    terms: dict[str, Any] = {"slots": 1, "jobs": len(values), "max_position": 4, "curve": levels, "space": SPACE}
    terms["generator"] = lambda made: {"x": values[made + 1], "width": 32} if made < len(values) else None
    return VirtualCluster(policy, **{**terms, **changes})


def five(**changes: Any) -> PbtPolicy:
    """Return a policy with a population of five that adapts every two positions and never resamples a hyperparameter."""
    return PbtPolicy(**{"population": 5, "interval": 2, "resample": 0, "frozen": ["width"], **changes})


def runs(cluster: VirtualCluster) -> list[tuple[object, ...]]:
    """Return (job, start time, end time, first position, last position, reason) of each run."""
    return [(r.job, r.began, r.ended, r.start, r.position, r.reason) for r in cluster.runs]


def copies(cluster: VirtualCluster) -> dict[str, tuple[str, int]]:
    """Return the parent and the position of each fork."""
    return {job.id: (job.parent, job.fork_position) for job in cluster.jobs.values() if job.parent}


def test_the_worst_of_five_goes_on_as_a_changed_copy_of_the_best() -> None:
    # On one slot, each trains to 2 in turn. Job 5 is the last; it is the worst fifth of five, and job 2 the best fifth.
    cluster = searched(five(), {1: 50, 2: 90, 3: 70, 4: 30, 5: 10})
    assert runs(cluster) == [
        ("1", 0, 2, 0, 2, UNTIL),
        ("2", 2, 4, 0, 2, UNTIL),
        ("3", 4, 6, 0, 2, UNTIL),
        ("4", 6, 8, 0, 2, UNTIL),
        ("5", 8, 10, 0, 2, TERMINATED),
        ("1", 10, 12, 2, 4, UNTIL),
        ("2", 12, 14, 2, 4, UNTIL),
        ("3", 14, 16, 2, 4, UNTIL),
        ("4", 16, 18, 2, 4, UNTIL),
        ("6", 18, 20, 2, 4, UNTIL),
    ]
    child = cluster.jobs["6"]
    assert copies(cluster) == {"6": ("2", 2)}
    assert child.hyperparameters["width"] == 32
    assert child.hyperparameters["x"] in (90 * 0.8, 100)  # 108 is above the upper bound.
    # Its curve starts with that of its parent, and it ends at the same position as its parent.
    assert [point.metrics["accuracy"] for point in cluster.curve("6")[:2]] == [90, 90]
    assert [point.position for point in cluster.curve("6")] == [1, 2, 3, 4]


def test_who_comes_first_is_judged_when_the_others_are_there() -> None:
    # Job 1 is the worst, but the first: at 2 there is no other to compare with. When it reaches 4, the others have reported at 2, the
    # last boundary that all have passed; job 2 reaches 4 later, so the fork starts at 2.
    cluster = searched(five(), {1: 10, 2: 90, 3: 70, 4: 30, 5: 50}, max_position=6)
    assert copies(cluster) == {"6": ("2", 2)}
    assert [(r.ended, r.position) for r in cluster.runs if r.job == "1"] == [(2, 2), (12, 4)]


def test_one_replaced_member_does_not_make_the_next_one_the_worst() -> None:
    # Job 1 is replaced at 4. Its fork has not reported yet when job 4, the second worst, reaches 4.
    cluster = searched(five(), {1: 10, 2: 90, 3: 70, 4: 30, 5: 50}, max_position=6)
    assert cluster.jobs["4"].state is JobState.COMPLETED


def test_nobody_gives_way_to_its_equal() -> None:
    cluster = searched(five(), dict.fromkeys(range(1, 6), 50.0), max_position=6)
    assert copies(cluster) == {}
    assert {job.state for job in cluster.jobs.values()} == {JobState.COMPLETED}


@pytest.mark.parametrize("worst", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_worst(worst: float) -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        value = float(hyperparameters["x"])
        return VirtualStep({"accuracy": worst if value == 95 else value})

    assert copies(searched(five(), {1: 50, 2: 90, 3: 70, 4: 30, 5: 95}, curve=curve)) == {"6": ("2", 2)}


def test_minimising_copies_the_smallest() -> None:
    assert copies(searched(five(), {1: 50, 2: 10, 3: 70, 4: 30, 5: 90}, mode="min")) == {"6": ("2", 2)}


def test_the_best_without_a_snapshot_is_not_copied() -> None:
    # All report at 2 s, job 5 last and worst; saving takes 1 s, so no snapshot exists yet. At 4 all have a snapshot of 2.
    cluster = searched(
        five(), {1: 50, 2: 90, 3: 70, 4: 30, 5: 10}, slots=5, max_position=6, delays=Delays(save=1.0), keep_latest=1
    )
    assert copies(cluster) == {"6": ("2", 2)}
    assert [(r.ended, r.position) for r in cluster.runs if r.job == "5"] == [(3, 2), (5, 4)]


def test_a_copy_that_has_not_saved_is_copied_from_its_parent() -> None:
    # Of two members the worse is replaced. At 2 no snapshot exists yet. At 4 job 2 is replaced by a fork of job 1 from 2, which becomes
    # better. That fork is still saving when job 1 reaches 6 (9 s), so the next fork starts from the snapshot that the first one started
    # from.
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        x = hyperparameters["x"]
        return VirtualStep({"accuracy": x - hyperparameters.get("off", 0)}, seconds=1.1 if x == 90 else 1)

    cluster = prepared(
        PbtPolicy(population=2, interval=2, resample=0, truncation=0.5),
        {1: 50, 2: 50},
        slots=2,
        max_position=8,
        space=Space.from_dict({"x": {"choice": [50, 90]}}),
        generator=lambda made: [{"x": 50}, {"x": 50, "off": 10}][made],
        curve=curve,
        delays=Delays(save=1.5),
    )
    cluster.run(until=9.1)
    assert copies(cluster) == {"3": ("1", 2), "4": ("1", 2)}
    assert [cluster.jobs[job].hyperparameters["x"] for job in ("1", "3", "4")] == [50, 90, 50]
    assert cluster.jobs["1"].state is JobState.TERMINATED


def test_no_member_trains_more_than_the_lag_ahead_of_the_slowest() -> None:
    # Two slots; job 1 takes ten times as long. With a lag of 4 the other member trains to 4 and waits until job 1 has passed 2.
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        return VirtualStep({"accuracy": 0.5}, seconds=10 if hyperparameters["x"] == 1 else 1)

    policy = PbtPolicy(population=2, interval=2, lag=4)
    cluster = searched(policy, {1: 1, 2: 2}, slots=2, max_position=8, curve=curve)
    assert [(r.began, r.position) for r in cluster.runs if r.job == "2"] == [(0, 2), (2, 4), (20, 6), (40, 8)]
    assert [(r.began, r.position) for r in cluster.runs if r.job == "1"] == [(0, 2), (20, 4), (40, 6), (60, 8)]


def test_a_new_population_begins_when_a_slot_would_idle() -> None:
    # Two slots and populations of two, whose second members have to wait for the first, which is three times as slow.
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        return VirtualStep({"accuracy": 0.5}, seconds=3 if hyperparameters["x"] == 1 else 1)

    policy = PbtPolicy(population=2, interval=1, lag=1)
    cluster = searched(policy, {1: 1, 2: 2, 3: 3, 4: 4}, slots=2, max_position=2, curve=curve)
    assert [(r.job, r.began, r.position) for r in sorted(cluster.runs, key=lambda r: (r.began, r.job))] == [
        ("1", 0, 1),
        ("2", 0, 1),
        ("3", 1, 1),
        ("4", 2, 1),
        ("1", 3, 2),
        ("2", 3, 2),
        ("3", 4, 2),
        ("4", 5, 2),
    ]


def test_with_slots_enough_the_jobs_are_one_population() -> None:
    cluster = searched(PbtPolicy(population=4, interval=2), {n: float(n) for n in range(1, 5)}, slots=4)
    assert [entry.moment.now for entry in cluster.history for c in entry.commands if isinstance(c, CreateJob)] == [
        0
    ] * 4


def test_members_are_drawn_again_until_half_is_above_random_guessing() -> None:
    # Of four members two may remain poor. Jobs 1 and 2 stay; jobs 3 and 4 are replaced by 5 and 6, and 6, which is poor too, by 7.
    values = {1: 5.0, 2: 6.0, 3: 7.0, 4: 10.0, 5: 60.0, 6: 8.0, 7: 50.0}
    policy = PbtPolicy(population=4, interval=2, truncation=0)
    cluster = searched(policy, values, kill_threshold=10.0)
    ended = [job.id for job in cluster.jobs.values() if job.state is JobState.TERMINATED]
    assert ended == ["3", "4", "6"]
    assert {job.high_water for job in cluster.jobs.values() if job.id in ended} == {2}


def test_without_further_jobs_poor_members_stay() -> None:
    policy = PbtPolicy(population=4, interval=2, truncation=0)
    cluster = searched(policy, {1: 1, 2: 2, 3: 3, 4: 4}, kill_threshold=10.0)
    assert {job.state for job in cluster.jobs.values()} == {JobState.COMPLETED}


def test_a_refused_copy_is_made_once_more_elsewhere() -> None:
    # The two best can be parents. The fork of one is refused, so the other one is used.
    refused: list[ForkJob] = []

    def refuse(command: Command) -> str:
        if isinstance(command, ForkJob) and not refused:
            refused.append(command)
            return "the snapshot was lost"
        return ""

    cluster = searched(five(truncation=0.4), {1: 50, 2: 90, 3: 70, 4: 60, 5: 10}, refuse=refuse)
    made = [(c.parent, c.position) for e in cluster.history for c in e.commands if isinstance(c, ForkJob)]
    assert made[0] == (refused[0].parent, refused[0].position)
    assert set(made[:2]) == {("2", 2), ("3", 2)}
    assert copies(cluster)["6"] == made[1]


def test_a_member_that_fails_leaves_its_population_smaller() -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        if hyperparameters["x"] == 10 and position == 3:
            raise TrainingFailed("ValueError")
        return levels(hyperparameters, position)

    cluster = searched(five(), {1: 10, 2: 90, 3: 70, 4: 30, 5: 50}, max_position=8, curve=curve, max_failures=0)
    assert cluster.jobs["1"].state is JobState.FAILED
    # Four are left, and a fifth of four is less than one member.
    assert copies(cluster) == {}


def test_a_run_that_is_lost_behind_a_boundary_is_not_judged_there_again() -> None:
    # Job 5 passes 2 as the second best. It is lost before it saves, and reaches 2 again after the others.
    cluster = prepared(five(), {1: 50, 2: 90, 3: 70, 4: 30, 5: 85}, slots=5, max_position=6, delays=Delays(save=0.5))
    cluster.at(2.2, cluster.lose_run, "5")
    cluster.run()
    judged = [e.moment.now for e in cluster.history if isinstance(e.call, IterationFinish) and e.call.job == "5"]
    lost = [
        e.call.position for e in cluster.history if isinstance(e.call, RunEnd) and e.call.reason is RunEndReason.LOST
    ]
    assert lost == [2]
    assert judged[:2] == [2.0, 4.2]
    assert cluster.jobs["5"].state is JobState.COMPLETED


def test_the_defaults_follow_from_the_length_of_a_job() -> None:
    cluster = searched(PbtPolicy(population=2), {1: 1, 2: 1}, max_position=90, slots=2)
    assert {(r.position - r.start) for r in cluster.runs} == {3}


def test_no_interval_by_default_is_longer_than_the_lag() -> None:
    # A thirtieth of the length would be 3. An extension must not increase it either, since the lag cannot be changed then.
    cluster = searched(PbtPolicy(population=2, lag=2), {1: 1, 2: 1}, max_position=90, slots=2)
    assert {(r.position - r.start) for r in cluster.runs} == {2}


@pytest.mark.parametrize(
    ("policy", "changes", "said"),
    [
        (five(), {"space": None}, "it must know the search space"),
        (
            five(frozen=["widht"]),
            {},
            r"frozen names 'widht', which is not a parameter of the space \(did you mean width",
        ),
        (PbtPolicy(), {"max_position": ENDLESS}, r"pbt needs stop\.max_iterations, or policy.interval"),
    ],
)
def test_what_it_needs_to_know_is_said_at_once(policy: PbtPolicy, changes: dict[str, Any], said: str) -> None:
    """Check that unusable terms are refused at the creation of the experiment.

    If the creation did not check, the start of the search refuses them.
    """
    terms = ExperimentView("accuracy", "max", **{"max_position": 4, "jobs_left": 8, "space": SPACE, **changes})
    with pytest.raises(ValueError, match=said):
        policy.review(terms)
    with pytest.raises(ValueError, match=said):
        searched(policy, {1: 1}, **changes)


def test_terms_that_it_can_serve_need_no_word() -> None:
    terms = ExperimentView("accuracy", "max", ENDLESS, jobs_left=8, space=SPACE)
    assert five(frozen=["width"]).review(terms) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"population": 1}, "population is 1; it must be a whole number of at least 2"),
        ({"interval": 0}, "interval is 0; it must be a whole number of at least 1"),
        ({"interval": 5, "lag": 4}, "lag is 4; it must be a whole number of at least 5"),
        ({"truncation": 0.6}, "truncation is 0.6; it must be in 0..0.5"),
        ({"truncation": True}, "truncation is True"),
        ({"resample": -0.1}, r"resample is -0.1; it must be in 0..1"),
        ({"resample": math.nan}, "resample is nan"),
        ({"frozen": "width"}, "frozen is 'width'; it must be a list"),
        ({"frozen": [1]}, "frozen is .1.; it must be a list"),
    ],
)
def test_impossible_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PbtPolicy(**given)
