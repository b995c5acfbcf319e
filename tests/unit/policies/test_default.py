"""Tests of the default policy, against schedules computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hopyard.policy import CONTINUE, CommandError, IterationFinish, JobState
from hopyard.policy.testing import Delays, TrainingFailed, VirtualCluster, VirtualStep, counting, replay
from hopyard.policy.vocabulary import (
    AmendRun,
    CreateJob,
    ExperimentChange,
    Hyperparameters,
    RunEndReason,
    StartJob,
    SuspendJob,
)
from hopyard_policies.default import DefaultPolicy
from tests.unit.policies.test_default_conformance import TestBarrier as BarrierSuite

pytestmark = pytest.mark.quick

UNTIL, LOST, SUSPENDED = RunEndReason.UNTIL, RunEndReason.LOST, RunEndReason.SUSPENDED


def paced(seconds: Mapping[int, float]) -> Any:
    """Return a curve on which configuration x takes `seconds[x]` seconds for each iteration."""

    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        return VirtualStep({"accuracy": position / 10}, seconds[int(hyperparameters["x"])])

    return curve


def runs(cluster: VirtualCluster) -> list[tuple[object, ...]]:
    """Return (job, slot, start time, first position, end time, last position, reason) of each run, in order of start."""
    logs = sorted(cluster.runs, key=lambda r: (r.began, r.slots))
    return [(r.job, r.slots[0], r.began, r.start, r.ended, r.position, r.reason) for r in logs]


def commands(cluster: VirtualCluster, kind: type) -> list[Any]:
    return [command for entry in cluster.history for command in entry.commands if isinstance(command, kind)]


def test_greedy_two_slots_four_jobs() -> None:
    cluster = VirtualCluster(DefaultPolicy(), slots=2, jobs=4, max_position=3, curve=paced({1: 1, 2: 2.5, 3: 1, 4: 1}))
    cluster.run()
    assert runs(cluster) == [
        ("1", "m01", 0, 0, 3, 3, UNTIL),
        ("2", "m02", 0, 0, 7.5, 3, UNTIL),
        ("3", "m01", 3, 0, 6, 3, UNTIL),
        ("4", "m01", 6, 0, 9, 3, UNTIL),
    ]
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    # The only commands are to create and to start jobs, and no run waits for a decision before its end.
    assert {type(c) for entry in cluster.history for c in entry.commands} == {CreateJob, StartJob}
    assert all(start.allowed == 3 and start.until == 3 for start in commands(cluster, StartJob))


@pytest.mark.parametrize(("ahead", "finished_at"), [(2, 6), (0, 7)])
def test_jobs_created_ahead_spare_waiting_for_the_generator(ahead: int, finished_at: float) -> None:
    cluster = VirtualCluster(
        DefaultPolicy(ahead=ahead),
        slots=1,
        jobs=2,
        max_position=2,
        curve=paced({1: 1, 2: 3}),
        delays=Delays(create=1),
    )
    cluster.run()
    # 1 s for the first configuration, 2 s for job 1, 1 s more for the generator unless it was called ahead, 6 s for job 2.
    assert cluster.now == finished_at + 3


def test_only_a_few_jobs_are_created_ahead() -> None:
    cluster = VirtualCluster(DefaultPolicy(ahead=2), slots=3, jobs=50)
    cluster.run(until=0.5)
    assert len(cluster.jobs) == 5


def test_lost_and_failed_runs_start_again_from_what_was_saved() -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        if hyperparameters["x"] == 2 and position == 2:
            raise TrainingFailed("ValueError")
        return VirtualStep({"accuracy": 0.5})

    cluster = VirtualCluster(DefaultPolicy(), slots=2, jobs=2, curve=curve, snapshot_every=1, max_failures=1)
    cluster.at(2.5, cluster.lose_run, "1")
    cluster.run()
    assert runs(cluster) == [
        ("1", "m01", 0, 0, 2.5, 2, LOST),
        ("2", "m02", 0, 0, 1, 1, RunEndReason.FAILED),
        ("2", "m02", 1, 1, 1, 1, RunEndReason.FAILED),
        ("1", "m01", 2.5, 2, 3.5, 3, UNTIL),
    ]
    assert cluster.jobs["2"].state is JobState.FAILED


def test_barrier_with_fewer_slots_than_jobs() -> None:
    cluster = VirtualCluster(
        DefaultPolicy(barrier=True), slots=2, jobs=3, max_position=2, curve=paced({1: 1, 2: 3, 3: 1})
    )
    cluster.run()
    assert runs(cluster) == [
        # Round 1: job 1 is saved at once, since job 3 waits; job 3 is parked, since no job waits then.
        ("1", "m01", 0, 0, 1, 1, UNTIL),
        ("2", "m02", 0, 0, 6, 2, UNTIL),
        # Round 2 starts at 3 s: jobs 2 and 3 continue in memory; job 1 gets the slot of job 3 when job 3 has finished it.
        ("3", "m01", 1, 0, 4, 2, UNTIL),
        ("1", "m01", 4, 1, 5, 2, UNTIL),
    ]


def test_barrier_with_a_slot_for_each_job_saves_nothing_on_the_way() -> None:
    cluster = VirtualCluster(
        DefaultPolicy(barrier=True, epoch=2), slots=3, jobs=3, max_position=5, curve=paced({1: 1, 2: 2, 3: 1})
    )
    cluster.run()
    # Rounds end at positions 2, 4, 5 and take as long as job 2: 4, 4 and 2 s; there is no barrier after the last.
    assert runs(cluster) == [
        ("1", "m01", 0, 0, 9, 5, UNTIL),
        ("2", "m02", 0, 0, 10, 5, UNTIL),
        ("3", "m03", 0, 0, 9, 5, UNTIL),
    ]
    assert [set(job.saves) for job in cluster.virtual_jobs.values()] == [{5}, {5}, {5}]
    assert {(c.job, c.until) for c in commands(cluster, AmendRun)} == {(j, u) for j in "123" for u in (4, 5)}
    assert not commands(cluster, SuspendJob)


def test_barrier_in_cohorts_of_two() -> None:
    cluster = VirtualCluster(DefaultPolicy(barrier=True, width=2), slots=4, jobs=4, max_position=2)
    cluster.run()
    assert [(job, began, ended) for job, _, began, _, ended, _, _ in runs(cluster)] == [
        ("1", 0, 2),
        ("2", 0, 2),
        ("3", 2, 4),
        ("4", 2, 4),
    ]


def test_a_parked_job_gives_its_slot_to_one_that_lost_its_own() -> None:
    cluster = VirtualCluster(DefaultPolicy(barrier=True), slots=2, jobs=2, max_position=2, curve=paced({1: 1, 2: 3}))
    cluster.at(2, cluster.lose_slot, "m02")
    cluster.run()
    assert runs(cluster) == [
        ("1", "m01", 0, 0, 2, 1, SUSPENDED),
        ("2", "m02", 0, 0, 2, 0, LOST),
        ("2", "m01", 2, 0, 8, 2, UNTIL),
        ("1", "m01", 8, 1, 9, 2, UNTIL),
    ]


def test_a_job_that_rewinds_does_not_close_a_barrier_that_it_had_passed() -> None:
    cluster = VirtualCluster(DefaultPolicy(barrier=True), slots=2, jobs=2, max_position=3)
    cluster.at(1.5, cluster.lose_run, "1")  # In round 2, without a snapshot.
    cluster.run()
    # Job 1 trains rounds 1 and 2 again in one run, until 3.5 s; job 2 waits for it from 2 s.
    assert runs(cluster) == [
        ("1", "m01", 0, 0, 1.5, 1, LOST),
        ("2", "m02", 0, 0, 4.5, 3, UNTIL),
        ("1", "m01", 1.5, 0, 4.5, 3, UNTIL),
    ]


def test_a_job_that_fails_for_good_opens_the_barrier() -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        if hyperparameters["x"] == 2 and position == 2:
            raise TrainingFailed("ValueError")
        return VirtualStep({"accuracy": 0.5}, 1 if hyperparameters["x"] == 1 else 4)

    cluster = VirtualCluster(DefaultPolicy(barrier=True), slots=2, jobs=2, curve=curve, max_failures=0)
    cluster.run()
    assert runs(cluster) == [("1", "m01", 0, 0, 6, 3, UNTIL), ("2", "m02", 0, 0, 4, 1, RunEndReason.FAILED)]


def test_round_one_waits_for_all_configurations_or_the_end_of_the_generator() -> None:
    cluster = VirtualCluster(
        DefaultPolicy(barrier=True, ahead=0),
        slots=2,
        jobs=9,
        max_position=3,
        generator=lambda made: counting(made) if made < 3 else None,
    )
    cluster.run()
    second_round = [
        e.moment.now for e in cluster.history if isinstance(e.call, IterationFinish) and e.call.position == 2
    ]
    assert len(cluster.jobs) == 3
    assert min(second_round) == 3  # Two jobs in the first second, the third in the next; then round 2.


def test_a_smaller_share_takes_parked_slots_first() -> None:
    cluster = VirtualCluster(
        DefaultPolicy(barrier=True), slots=3, jobs=3, max_position=2, curve=paced({1: 1, 2: 1, 3: 5})
    )
    cluster.at(2, cluster.set_share, 1)
    cluster.run()
    assert [(j, began, ended, reason) for j, _, began, _, ended, _, reason in runs(cluster)][:3] == [
        ("1", 0, 2, SUSPENDED),
        ("2", 0, 2, SUSPENDED),
        ("3", 0, 10, UNTIL),
    ]


@pytest.mark.merge
@pytest.mark.parametrize("seed", range(60))
def test_no_job_is_ahead_of_the_barrier(seed: int) -> None:
    """Check under random faults that no job trains in a round before all unfinished jobs have reported the end of the round before."""
    cluster = BarrierSuite().eventful(seed)
    for entry in cluster.run():
        if isinstance(entry.call, ExperimentChange) and entry.call.change == "extended":
            break  # New jobs are behind the jobs that run at that moment.
        if isinstance(entry.call, IterationFinish) and not entry.call.repeated:
            before = entry.call.position - 1
            behind = [j.id for j in entry.moment.jobs.values() if not j.state.ended and j.high_water < before]
            assert not behind, f"{entry}: jobs {behind} have not finished round {before}"


def test_a_run_that_is_ending_already_is_not_amended() -> None:
    cluster = VirtualCluster(DefaultPolicy(barrier=True), slots=1, jobs=1, max_position=2)
    entry = next(e for e in cluster.run() if isinstance(e.call, IterationFinish))
    assert entry.commands
    jobs = {"1": replace(entry.moment.jobs["1"], state=JobState.SUSPENDING)}
    ending = replace(entry, moment=replace(entry.moment, jobs=jobs))
    again = replay(DefaultPolicy(barrier=True), [ending])[0]
    assert (again.decision, again.commands) == (CONTINUE, ())


def test_demand_is_what_can_be_used() -> None:
    greedy = VirtualCluster(DefaultPolicy(), slots=2, jobs=6)
    greedy.run()
    demands = [entry.demand for entry in greedy.history]
    assert demands[0] == 6
    assert demands[-1] == 0
    barrier = VirtualCluster(DefaultPolicy(barrier=True, width=3), slots=2, jobs=6)
    barrier.run()
    assert max(entry.demand or 0 for entry in barrier.history) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epoch": 0}, "epoch is 0; it must be at least 1"),
        ({"barrier": True, "width": 0}, "width is 0; it must be at least 1"),
        ({"ahead": -1}, "ahead is -1; it must be at least 0"),
        ({"ahead": None}, "ahead is None; it must be a whole number"),
        ({"ahead": float("nan")}, "ahead is nan; it must be a whole number"),
        ({"ahead": "1e9"}, "ahead is '1e9'; it must be a whole number"),
        ({"barrier": True, "width": 1.5}, "width is 1.5; it must be a whole number"),
        ({"width": 3}, "width is the number of jobs in a round; it needs barrier: true"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        DefaultPolicy(**arguments)
    assert not isinstance(raised.value, CommandError)
