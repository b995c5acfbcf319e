"""Tests of `asha` and `async_hyperband` on a virtual cluster, against schedules computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hopyard.policy import ENDLESS, ExperimentView, JobState
from hopyard.policy.rungs import Rung
from hopyard.policy.testing import Delays, TrainingFailed, UpCallView, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import AmendRun, RunEndReason
from hopyard_policies.halving import AshaPolicy, AsyncHyperbandPolicy, HyperbandPolicy, ShaPolicy
from hopyard_policies.halving.policy import HalvingPolicy

pytestmark = pytest.mark.quick

Row = tuple[str, str, float, float, int, int]

VALUES = {1: 0.1, 2: 0.5, 3: 0.3, 4: 0.9, 5: 0.2, 6: 0.8, 7: 0.7, 8: 0.6, 9: 0.0, 10: 0.0, 11: 0.0, 12: 0.0}


def cluster_of(policy: HalvingPolicy, values: Mapping[int, float] = VALUES, **terms: Any) -> VirtualCluster:
    given: dict[str, Any] = {"slots": 2, "jobs": 8, "max_position": 4}
    return VirtualCluster(
        policy, curve=lambda job, _: VirtualStep({"accuracy": values[job["x"]]}), **{**given, **terms}
    )


def rows(cluster: VirtualCluster) -> list[Row]:
    """Return (job, slot, start time, end time, first position, last position) of each run, in order of their ends."""
    return [(run.job, run.slots[0], run.began, run.ended, run.start, run.position) for run in cluster.runs]


def rungs_of(policy: HalvingPolicy, cluster: VirtualCluster) -> tuple[Rung, ...]:
    """Return the rungs of the policy after the last up-call."""
    last = cluster.history[-1]
    return policy.rungs(UpCallView(last.moment, last.call))


def standing(policy: HalvingPolicy, cluster: VirtualCluster) -> dict[tuple[int, int], list[str]]:
    """Return the jobs that have reported at each rung, the best first, by (bracket, rung)."""
    return {(rung.bracket, rung.number): [s.job for s in rung.standings] for rung in rungs_of(policy, cluster)}


def test_two_slots_eight_configurations() -> None:
    """Check a schedule with eta 2 and rungs at 1, 2 and 4.

    Job 4 is promoted twice without suspension; job 6 waits at 2 until the result of job 7 promotes it.
    """
    policy = AshaPolicy(eta=2, brackets=[0])
    cluster = cluster_of(policy)
    cluster.run()
    assert rows(cluster) == [
        ("1", "m01", 0, 1, 0, 1),
        ("2", "m02", 0, 2, 0, 2),  # The better of two is promoted without suspension.
        ("3", "m01", 1, 2, 0, 1),
        ("5", "m01", 2, 3, 0, 1),
        ("6", "m01", 3, 5, 0, 2),
        ("4", "m02", 2, 6, 0, 4),
        ("7", "m01", 5, 7, 0, 2),
        ("8", "m02", 6, 8, 0, 2),  # It keeps its slot; job 6 takes the slot that job 7 releases.
        ("6", "m01", 7, 9, 2, 4),
    ]
    assert standing(policy, cluster) == {
        (0, 0): ["4", "6", "7", "8", "2", "3", "5", "1"],
        (0, 1): ["4", "6", "7", "8", "2"],
        (0, 2): ["4", "6"],
    }
    # The others wait at their rungs, since further configurations could still promote them.
    left = [job.id for job in cluster.jobs.values() if job.state is JobState.SUSPENDED]
    assert left == ["1", "2", "3", "5", "7", "8"]


def test_the_tail_hands_slots_over_at_once() -> None:
    """Check that the demand covers only jobs that can train once job 8, the last one, has started."""
    cluster = cluster_of(AshaPolicy(eta=2, brackets=[0]))
    history = cluster.run()
    at_the_end_of_8 = [entry for entry in history if entry.moment.now == 8][-1]
    assert at_the_end_of_8.demand == 1
    assert history[-1].demand == 0
    assert cluster.over == "the policy has nothing left to do"


def held(cluster: VirtualCluster, *jobs: str) -> VirtualCluster:
    """Schedule a user's pause of the jobs before the first report, and return the cluster."""
    for job in jobs:
        cluster.at(0.5, partial(cluster.virtual_jobs[job].change, state=JobState.HELD))
    return cluster


def test_no_slot_is_wanted_for_jobs_that_a_person_has_paused() -> None:
    cluster = cluster_of(AshaPolicy(eta=2, brackets=[0]), slots=1, jobs=3)
    cluster.run(until=0.2)
    history = held(cluster, "2", "3").run()
    assert cluster.jobs["1"].state is JobState.SUSPENDED
    assert history[-1].demand == 0


def test_jobs_that_a_person_has_paused_are_not_ready_ones() -> None:
    cluster = cluster_of(AshaPolicy(eta=2, brackets=[0]), slots=1, jobs=8)
    cluster.run(until=0.2)
    held(cluster, "2", "3").run(until=1.5)
    assert {job.id: job.state for job in cluster.jobs.values()} == {
        "1": JobState.SUSPENDED,
        **dict.fromkeys("23", JobState.HELD),
        "4": JobState.RUNNING,
        **dict.fromkeys("56", JobState.PENDING),
    }


def test_an_extended_experiment_widens_its_brackets_and_promotes_who_waits() -> None:
    """Check that four worse configurations promote job 3, the sixth of twelve, and then job 7, the third of six at the next rung.

    No training is repeated.
    """
    policy = AshaPolicy(eta=2, brackets=[0])
    cluster = cluster_of(policy)
    cluster.run()
    cluster.at(20, cluster.extend, 4)
    cluster.run()
    assert [row for row in rows(cluster)[9:] if int(row[0]) <= 8] == [
        ("3", "m01", 22, 23, 1, 2),
        ("7", "m01", 23, 25, 2, 4),
    ]


def test_no_bracket_has_less_room_than_it_holds_after_an_extension() -> None:
    """Check with more rungs, for which configurations are divided again: bracket 1 would get fewer than it has."""
    policy = AshaPolicy(eta=3)
    cluster = cluster_of(policy, dict.fromkeys(range(1, 40), 0.5), jobs=27, max_position=9)
    cluster.run()
    cluster.at(cluster.now + 1, cluster.extend, 1, 81)
    cluster.run()
    bottoms = [rung for rung in rungs_of(policy, cluster) if rung.number == 0]
    widths = [rung.width or 0 for rung in bottoms]
    assert sum(widths) == 28
    assert all(len(rung.standings) == width for rung, width in zip(bottoms, widths, strict=True)), bottoms


def test_a_lost_run_is_queued_again_before_anything_new() -> None:
    policy = AshaPolicy(eta=2, brackets=[0])
    cluster = cluster_of(policy, jobs=4)
    cluster.at(0.5, cluster.lose_run, "2")
    cluster.run()
    assert [row for row in rows(cluster) if row[0] in "12"] == [
        ("2", "m02", 0, 0.5, 0, 0),
        ("1", "m01", 0, 1, 0, 1),
        ("2", "m02", 0.5, 2.5, 0, 2),
    ]


def test_a_promoted_job_that_is_lost_goes_on_from_its_snapshot_at_the_rung() -> None:
    """Check with job 2, which is suspended at its first rung, promoted by the result of job 4, and lost before its second rung."""
    values = {1: 0.1, 2: 0.5, 3: 0.3, 4: 0.2}
    policy = AshaPolicy(eta=4, brackets=[0], r=2)
    cluster = cluster_of(policy, values, jobs=4, max_position=8, slots=1)
    cluster.at(9.5, cluster.lose_run, "2")
    cluster.run()
    assert [row for row in rows(cluster) if row[0] == "2"] == [
        ("2", "m01", 2, 4, 0, 2),
        ("2", "m01", 8, 9.5, 2, 3),
        ("2", "m01", 9.5, 15.5, 2, 8),
    ]


def test_a_job_that_is_promoted_in_memory_and_lost_goes_back_one_rung() -> None:
    """Check with job 4 of `test_two_slots_eight_configurations`, which is lost at 5.5 s, on its way from 2 to 4."""
    cluster = cluster_of(AshaPolicy(eta=2, brackets=[0]))
    cluster.at(5.5, cluster.lose_run, "4")
    cluster.run()
    assert [row for row in rows(cluster) if row[0] == "4"] == [
        ("4", "m02", 2, 5.5, 0, 3),
        ("4", "m02", 5.5, 7.5, 2, 4),
    ]
    # It had passed the rungs at 1 and 2 in this run, and saved at both.
    saves = [command for entry in cluster.history for command in entry.commands if isinstance(command, AmendRun)]
    assert [(save.job, save.until, save.snapshot_at) for save in saves[:3]] == [
        ("2", 2, (1,)),
        ("4", 2, (1,)),
        ("4", 4, (2,)),
    ]


@pytest.mark.parametrize("policy", [ShaPolicy, HyperbandPolicy, AsyncHyperbandPolicy])
def test_each_policy_saves_at_the_rungs_that_jobs_pass_in_memory(policy: type[HalvingPolicy]) -> None:
    cluster = cluster_of(policy(eta=2, brackets=[0]), jobs=4, slots=1)
    commands = [command for entry in cluster.run() for command in entry.commands]
    passed = [(command.job, command.snapshot_at) for command in commands if isinstance(command, AmendRun)]
    assert passed
    assert all(position in cluster.virtual_jobs[job].saves for job, (position,) in passed)


def test_a_result_stands_though_the_run_is_lost_while_it_saves() -> None:
    """Check that a result counts once if its run is lost while it saves. The job starts again only when it is promoted."""
    values = {1: 0.9, 2: 0.1, 3: 0.1, 4: 0.1}
    cluster = cluster_of(AshaPolicy(eta=4, brackets=[0]), values, slots=1, jobs=4, delays=Delays(save=1.0))
    cluster.at(1.5, cluster.lose_run, "1")
    cluster.run()
    mine = [(run.start, run.position, run.reason) for run in cluster.runs if run.job == "1"]
    assert mine == [(0, 1, RunEndReason.LOST), (0, 4, RunEndReason.UNTIL)]


def test_a_failed_configuration_is_worst_and_counts() -> None:
    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        if job["x"] == 1:
            raise TrainingFailed("ValueError")
        return VirtualStep({"accuracy": -5.0})

    policy = AshaPolicy(eta=2, brackets=[0])
    cluster = VirtualCluster(policy, slots=1, jobs=2, max_position=2, curve=curve, max_failures=0)
    cluster.run()
    assert standing(policy, cluster) == {(0, 0): ["2", "1"], (0, 1): ["2"]}


def test_values_that_are_not_finite_are_never_promoted() -> None:
    for value in (math.nan, math.inf, -math.inf):
        cluster = cluster_of(AshaPolicy(eta=2, brackets=[0]), dict.fromkeys(VALUES, value))
        cluster.run()
        assert {run.position for run in cluster.runs} == {1}


@pytest.mark.parametrize("interval", [2, 3, 5])
def test_reports_need_not_fall_on_rungs(interval: int) -> None:
    """Check that the result at a rung is the first report at or beyond it. A job beyond the next rung also has its result there."""
    values = {(x, position): x + position / 100 for x in (1, 2, 3, 4) for position in range(1, 17)}
    policy = AshaPolicy(eta=4, brackets=[0])
    cluster = VirtualCluster(
        policy,
        slots=1,
        jobs=4,
        max_position=16,
        interval=interval,
        curve=lambda job, position: VirtualStep({"accuracy": values[job["x"], position]}),
    )
    cluster.run()
    found = rungs_of(policy, cluster)
    first = next(position for position in range(1, 17) if position >= 1 and position % interval == 0)
    assert [s.value for s in found[0].standings] == [values[x, first] for x in (4, 3, 2, 1)]
    second = next(position for position in range(4, 17) if position % interval == 0)
    assert [(s.job, s.value) for s in found[1].standings] == [("4", values[4, second])]


def test_training_that_ends_early_has_its_last_value_there() -> None:
    """Check that job 2, whose program finishes at 2, is complete, and is the best of its rung and of the next."""
    policy = AshaPolicy(eta=2, brackets=[0], r=2)
    cluster = VirtualCluster(
        policy,
        slots=1,
        jobs=4,
        max_position=8,
        curve=lambda job, position: VirtualStep(
            {"accuracy": VALUES[job["x"]]}, finished=job["x"] == 2 and position == 2
        ),
    )
    cluster.run()
    assert cluster.jobs["2"].state is JobState.COMPLETED
    assert standing(policy, cluster)[0, 1] == ["4", "2"]


def test_without_parameters_it_runs_the_three_standard_brackets() -> None:
    policy = AshaPolicy()
    cluster = cluster_of(policy, {x: x / 100 for x in range(1, 17)}, slots=3, jobs=16, max_position=256)
    cluster.run()
    found = rungs_of(policy, cluster)
    assert [(rung.bracket, rung.position) for rung in found] == [
        *((0, position) for position in (1, 4, 16, 64, 256)),
        *((1, position) for position in (4, 16, 64, 256)),
        *((2, position) for position in (16, 64, 256)),
    ]
    assert [rung.width for rung in found if rung.number == 0] == [12, 3, 1]
    assert [len(rung.standings) for rung in found if rung.number == 0] == [12, 3, 1]


def test_brackets_grow_side_by_side_the_cheap_ones_first() -> None:
    """Check that the next configuration goes to the bracket that is furthest behind its part of 8, 3 and 1."""
    policy = AshaPolicy()
    cluster = cluster_of(policy, dict.fromkeys(range(1, 17), 0.5), slots=16, jobs=16, max_position=256)
    history = cluster.run()
    bottoms = [command.until for entry in history for command in entry.commands if hasattr(command, "until")]
    assert bottoms[:16] == [1, 1, 1, 1, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1, 4, 16]


def test_infinite_horizon_goes_up_as_far_as_there_are_configurations() -> None:
    policy = AshaPolicy(eta=2, infinite=True)
    values = {x: 1 / x for x in range(1, 33)}
    cluster = cluster_of(policy, values, slots=1, jobs=16, max_position=1_000)
    cluster.run()
    best = max(cluster.jobs.values(), key=lambda job: job.position)
    assert (best.position, best.state) == (16, JobState.SUSPENDED)
    cluster.at(cluster.now + 1, cluster.extend, 16)
    cluster.run()
    assert cluster.jobs["1"].position == 32


def test_async_hyperband_loops_through_its_brackets() -> None:
    """Check with eta 2 and rungs at 1, 2, 4, for which Hyperband's brackets have 4, 3 and 3 configurations."""
    policy = AsyncHyperbandPolicy(eta=2)
    values = dict.fromkeys(range(1, 31), 0.0)
    cluster = cluster_of(policy, values, slots=25, jobs=25)
    history = cluster.run()
    bottoms = [command.until for entry in history for command in entry.commands if hasattr(command, "until")]
    loop = [1, 1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert bottoms[:25] == loop + loop + loop[:5]
    found = rungs_of(policy, cluster)
    assert [rung.width for rung in found if rung.number == 0] == [12, 7, 6]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eta": 1}, "eta is 1; it must be a whole number of at least 2"),
        ({"eta": 2.5}, "eta is 2.5; it must be a whole number of at least 2"),
        ({"rungs": 0}, "rungs is 0; it must be a whole number of at least 1"),
        ({"r": 0}, "r is 0; it must be a whole number of at least 1"),
        ({"r": 1, "rungs": 3}, "rungs is 3 and r is 1; give one of them"),
        ({"r": 1, "rungs": [1, 4]}, r"rungs is \[1, 4\] and r is 1; give one of them"),
        ({"rungs": [4, 1]}, "or a list of 1 to 64 ascending positions"),
        ({"rungs": "all"}, "rungs is 'all'; it must be a whole number of at least 1"),
        ({"r": 2, "rungs": 5}, "rungs is 5 and r is 2; give one of them"),
        ({"infinite": True, "rungs": 3}, "rungs is 3, but the infinite horizon has no top rung"),
        ({"infinite": True, "rungs": 3, "r": 2}, "rungs is 3, but the infinite horizon has no top rung"),
        ({"brackets": []}, "must be a list of early-stopping rates"),
        ({"brackets": [0, 0]}, "can be there once"),
        ({"brackets": 0}, "must be a list of early-stopping rates, not how many brackets there are"),
        ({"infinite": 1}, "it must be true or false"),
        ({"ahead": -1}, "ahead is -1"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AshaPolicy(**parameters)


def test_a_bracket_that_the_ladder_has_no_rung_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"brackets is \[0, 4\], but the rungs are at 1, 2, 4: .* the largest is 2"):
        cluster_of(AshaPolicy(eta=2, brackets=[0, 4])).run()


@pytest.mark.parametrize(
    ("policy", "jobs", "R", "widths"),
    [
        (AshaPolicy(), 16, 256, "12 + 3 + 1, and to bring one to the top they need 256 or 64 or 16"),
        (AshaPolicy(), 256, 256, ""),
        (AshaPolicy(rungs=3), 16, 256, ""),
        (AshaPolicy(), 1, 1, "stop.max_iterations is 1, which gives one rung at the end"),
        (AshaPolicy(), 16, 3, "stop.max_iterations is 3, which gives one rung at the end"),
        (AshaPolicy(eta=3), 3, 3, ""),
        (
            AshaPolicy(r=12, brackets=[0]),
            16,
            16,
            "r is 12 and stop.max_iterations is 16, which gives one rung at the end",
        ),
        (AshaPolicy(r=12, brackets=[0]), 16, 16, "use an r of at most 4"),
        (AshaPolicy(r=2, brackets=[0]), 16, 3, "use at least 8 iterations"),
        (AshaPolicy(r=5, infinite=True), 16, 16, ""),
        (AshaPolicy(rungs=1), 16, 16, ""),
        (AshaPolicy(rungs=[16]), 16, 16, ""),
        (
            AshaPolicy(rungs=[5, 9, 16]),
            3,
            16,
            "they need 16 or 4, and nothing is promoted with fewer than 4; use at least ",
        ),
        (AshaPolicy(rungs=[5, 9, 16]), 20, 16, ""),
        (AshaPolicy(infinite=True), 16, 256, ""),
        (AshaPolicy(), ENDLESS, 256, ""),
        (AsyncHyperbandPolicy(), 300, 256, ""),
        (AsyncHyperbandPolicy(), 255, 256, "255 + 0 + 0 + 0 + 0"),
        (ShaPolicy(), 255, 256, "255 configurations are too few for 5 rungs at eta 4: the brackets get 255,"),
        (ShaPolicy(), 256, 256, ""),
        (HyperbandPolicy(eta=2), 3, 4, "3 + 0 + 0"),
    ],
)
def test_too_few_configurations_for_the_rungs_are_told_of(
    policy: HalvingPolicy, jobs: int, R: int, widths: str
) -> None:
    said = policy.review(ExperimentView("accuracy", "max", R, jobs_left=jobs))
    assert widths in said
    assert bool(said) is bool(widths)


def test_an_experiment_that_does_not_say_R_is_refused() -> None:
    terms = ExperimentView("accuracy", "max", ENDLESS, jobs_left=8)
    for policy in (AshaPolicy(), ShaPolicy()):
        with pytest.raises(ValueError, match=r"stop\.max_iterations, which is not given: give it, or r"):
            policy.review(terms)
    assert AshaPolicy(infinite=True).review(terms) == ""
    assert AshaPolicy(r=3, brackets=[0]).review(replace(terms, jobs_left=ENDLESS)) == ""


def test_a_least_training_beyond_the_end_is_refused() -> None:
    terms = ExperimentView("accuracy", "max", 16, jobs_left=8)
    with pytest.raises(ValueError, match=r"r is 20, which is beyond stop.max_iterations, 16"):
        AshaPolicy(r=20, brackets=[0]).review(terms)
    assert AshaPolicy(r=16, brackets=[0]).review(terms) == ""
