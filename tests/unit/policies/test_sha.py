"""Tests of `sha`, `hyperband` and `bohb` on a virtual cluster, against schedules computed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hopyard.policy import ENDLESS, JobState, Policy
from hopyard.policy.testing import TrainingFailed, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import RunEndReason
from hopyard_policies.halving import BohbPolicy, HyperbandPolicy, ShaPolicy
from hopyard_policies.stage_tree.policy import StageTreePolicy
from tests.unit.core.rig import snapshot
from tests.unit.policies.searching import Searching
from tests.unit.policies.test_asha import VALUES, cluster_of, rows, rungs_of, standing

pytestmark = pytest.mark.quick


def test_a_rung_waits_for_all_its_results_and_then_ends_who_does_not_go_on() -> None:
    """Check with eta 2 and rungs at 1, 2 and 4.

    Job 4 completes the first rung and continues in memory; at the second it waits for job 2.
    """
    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, jobs=4, max_position=4)
    cluster.run()
    assert rows(cluster) == [
        ("1", "m01", 0, 1, 0, 1),
        ("2", "m02", 0, 1, 0, 1),
        ("3", "m01", 1, 2, 0, 1),
        ("4", "m02", 1, 3, 0, 2),
        ("2", "m01", 2, 3, 1, 2),
        ("4", "m02", 3, 5, 2, 4),
    ]
    assert standing(policy, cluster) == {(0, 0): ["4", "2", "3", "1"], (0, 1): ["4", "2"], (0, 2): ["4"]}
    ended = {job.id: job.state for job in cluster.jobs.values()}
    assert ended == {"4": JobState.COMPLETED, **dict.fromkeys("123", JobState.TERMINATED)}
    assert cluster.over == "all jobs ended"


def test_who_trains_to_the_end_in_memory_is_completed() -> None:
    """Check that job 2, which completes the first rung and continues in memory to the top, is completed."""
    cluster = cluster_of(ShaPolicy(eta=2), jobs=2, slots=1, max_position=2)
    cluster.run()
    assert rows(cluster) == [("1", "m01", 0, 1, 0, 1), ("2", "m01", 1, 3, 0, 2)]
    assert {job.id: job.state for job in cluster.jobs.values()} == {"1": JobState.TERMINATED, "2": JobState.COMPLETED}


def test_a_program_that_ends_by_itself_at_a_rung_is_completed() -> None:
    """Check that job 2, whose program finishes at the first rung, is completed although it is not promoted."""

    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        return VirtualStep({"accuracy": -job["x"]}, finished=job["x"] == 2)

    cluster = VirtualCluster(ShaPolicy(eta=2), slots=1, jobs=2, max_position=2, curve=curve)
    cluster.run()
    assert {job.id: job.state for job in cluster.jobs.values()} == dict.fromkeys("12", JobState.COMPLETED)


def test_a_new_bracket_begins_when_a_slot_would_idle() -> None:
    """Check with a slow job 1: while its rung waits for it, the other slot starts the next bracket."""

    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        return VirtualStep({"accuracy": VALUES[job["x"]]}, seconds=5.0 if job["x"] == 1 else 1.0)

    policy = ShaPolicy(eta=2, width=2)
    cluster = VirtualCluster(policy, slots=2, jobs=4, max_position=2, curve=curve)
    cluster.run()
    assert rows(cluster) == [
        ("2", "m02", 0, 1, 0, 1),
        ("3", "m02", 1, 2, 0, 1),
        ("4", "m02", 2, 4, 0, 2),  # The better job of the second bracket.
        ("1", "m01", 0, 5, 0, 1),
        ("2", "m01", 5, 6, 1, 2),
    ]


def test_a_failed_configuration_is_worst_and_nobody_waits_for_it() -> None:
    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        if job["x"] == 1:
            raise TrainingFailed("ValueError")
        return VirtualStep({"accuracy": math.nan if job["x"] == 2 else -1.0})

    policy = ShaPolicy(eta=2, width=4)
    cluster = VirtualCluster(policy, slots=1, jobs=4, max_position=2, curve=curve, max_failures=0)
    cluster.run()
    assert standing(policy, cluster) == {
        (0, 0): ["3", "4", "1", "2"],
        (0, 1): ["4", "3"],
    }  # Job 4 completed the rung and continued at once.


def test_a_lost_run_is_trained_again_before_its_rung_is_decided() -> None:
    cluster = cluster_of(ShaPolicy(eta=2), jobs=2, max_position=2)
    cluster.at(0.5, cluster.lose_run, "2")
    cluster.run()
    assert rows(cluster) == [
        ("2", "m02", 0, 0.5, 0, 0),
        ("1", "m01", 0, 1, 0, 1),
        ("2", "m02", 0.5, 2.5, 0, 2),
    ]


def test_a_rung_does_not_wait_for_a_job_that_a_person_has_paused() -> None:
    """Check with job 1 paused at 0.5 s: job 2 continues without it. Job 1 is resumed, reaches its rung too late, and is terminated."""
    policy = ShaPolicy(eta=2, width=2)
    cluster = cluster_of(policy, jobs=2, slots=1, max_position=4)

    def pause() -> None:
        cluster.lose_run("1")
        cluster.virtual_jobs["1"].change(state=JobState.HELD)

    def resume() -> None:
        cluster.virtual_jobs["1"].change(state=JobState.PENDING)
        cluster._wake()

    cluster.at(0.5, pause)
    cluster.at(2, resume)
    cluster.run()
    assert rows(cluster) == [("1", "m01", 0, 0.5, 0, 0), ("2", "m01", 0.5, 2.5, 0, 2), ("1", "m01", 2.5, 3.5, 0, 1)]
    assert {job.state for job in cluster.jobs.values()} == {JobState.TERMINATED}


def test_a_loser_that_a_person_has_paused_ends_when_it_is_resumed() -> None:
    """Check with job 1, which reports at its rung, is paused, and is not promoted when the rung is decided."""
    cluster = cluster_of(ShaPolicy(eta=2, width=2), jobs=2, slots=1, max_position=4)

    def pause() -> None:
        assert cluster.jobs["1"].state is JobState.SUSPENDED
        cluster.virtual_jobs["1"].change(state=JobState.HELD)

    def resume() -> None:
        assert cluster.jobs["2"].position == 1
        cluster.virtual_jobs["1"].change(state=JobState.SUSPENDED)
        cluster._wake()

    cluster.at(1.5, pause)
    cluster.at(2.5, resume)
    cluster.run()
    assert rows(cluster) == [("1", "m01", 0, 1, 0, 1), ("2", "m01", 1, 3, 0, 2)]
    assert {job.state for job in cluster.jobs.values()} == {JobState.TERMINATED}


@pytest.mark.parametrize("state", [JobState.HELD, JobState.TERMINATED])
def test_who_is_paused_or_ended_while_there_is_no_slot_holds_nobody_up(state: JobState) -> None:
    """Check with job 1, which waits at its rung for job 2, whose slot is lost."""
    cluster = cluster_of(ShaPolicy(eta=2), jobs=2, slots=1, max_position=2)

    def act() -> None:
        cluster.virtual_jobs["2"].change(state=state)

    cluster.at(1.5, cluster.lose_slot, "m01")
    cluster.at(3, act)
    cluster.at(3.5, cluster.extend)  # A change that makes an up-call, such as more time.
    cluster.at(4, cluster.join_slot, "m02")
    cluster.run()
    assert rows(cluster)[-1] == ("1", "m02", 4, 5, 1, 2)


@pytest.mark.parametrize("make", [lambda: ShaPolicy(eta=2), lambda: StageTreePolicy(tuner={"name": "sha", "eta": 2})])
def test_a_bracket_waits_for_a_configuration_that_is_there_and_was_not_told_of_yet(make: Callable[[], Policy]) -> None:
    """Check with job 2, which gets its configuration while the policy answers an up-call about job 1: the bracket still takes both."""
    rig = Searching(make(), capacity=1, max_position=2, jobs=2)
    rig.propose("1")
    rig.begin()
    rig.hold = True
    rig.report(1, 0.9, "1", at_until=True)
    rig.propose("2")
    rig.release()
    assert rig.job("1").state is JobState.SUSPENDING
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1), name="1")
    rig.begin()
    assert rig.rungs()[0].width == 2
    rig.report(1, 0.1, "2", at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1), name="2")
    assert [rig.job(name).state for name in ("1", "2")] == [JobState.STARTING, JobState.TERMINATED]


def bottoms(policy: ShaPolicy, cluster: VirtualCluster) -> list[tuple[int | None, int]]:
    """Return the width and the number of results of the bottom rung of each bracket."""
    return [(rung.width, len(rung.standings)) for rung in rungs_of(policy, cluster) if rung.number == 0]


def test_one_bracket_has_all_configurations() -> None:
    """Check six configurations with eta 2: 6 train to 1, 3 to 2 and 1 to 4."""
    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, jobs=6, max_position=4)
    cluster.run()
    assert rows(cluster) == [
        *((str(job), f"m0{2 - job % 2}", (job - 1) // 2, (job + 1) // 2, 0, 1) for job in range(1, 6)),
        ("6", "m02", 2, 4, 0, 2),  # It decides the rung, and is promoted in memory. Jobs 4 and 2 are promoted with it.
        ("4", "m01", 3, 4, 1, 2),
        ("2", "m02", 4, 5, 1, 2),  # Slot m01 is not needed and is given back.
        ("4", "m02", 5, 7, 2, 4),
    ]
    assert [(rung.width, len(rung.standings)) for rung in rungs_of(policy, cluster)] == [(6, 6), (3, 3), (1, 1)]
    assert all(job.state.ended for job in cluster.jobs.values())


def test_slots_that_one_bracket_cannot_use_are_free() -> None:
    """Check with a slow job 1: from 3 s all other jobs have reported, and the bracket wants one slot until 5 s."""

    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        return VirtualStep({"accuracy": VALUES[job["x"]]}, seconds=5.0 if job["x"] == 1 else 1.0)

    cluster = VirtualCluster(ShaPolicy(eta=2), slots=2, jobs=4, max_position=2, curve=curve)
    history = cluster.run()
    assert rows(cluster) == [
        ("2", "m02", 0, 1, 0, 1),
        ("3", "m02", 1, 2, 0, 1),
        ("4", "m02", 2, 3, 0, 1),
        ("1", "m01", 0, 5, 0, 1),
        ("4", "m01", 5, 6, 1, 2),
        ("2", "m02", 5, 6, 1, 2),
    ]
    assert [entry.demand for entry in history if entry.moment.now == 3][-1] == 1


@pytest.mark.merge
def test_one_bracket_is_that_of_table_1_of_hippo() -> None:
    """Check n 448, eta 4 and rungs at 15, 60 and 120: 448 configurations train to 15, 112 to 60 and 28 to 120."""
    policy = ShaPolicy(eta=4, rungs=[15, 60, 120])
    values = {x: (x * 37 % 449) / 449 for x in range(1, 449)}
    cluster = cluster_of(policy, values, slots=40, jobs=448, max_position=120, interval=15)
    cluster.run()
    assert [(rung.position, rung.width, len(rung.standings)) for rung in rungs_of(policy, cluster)] == [
        (15, 448, 448),
        (60, 112, 112),
        (120, 28, 28),
    ]
    best = sorted(values, key=values.__getitem__)[-28:]
    assert {int(job.id) for job in cluster.jobs.values() if job.state is JobState.COMPLETED} == set(best)


def test_brackets_of_a_width_have_so_many_configurations_and_the_last_one_what_is_left() -> None:
    policy = ShaPolicy(eta=2, width=4)
    cluster = cluster_of(policy, jobs=6, max_position=4)
    cluster.run()
    assert bottoms(policy, cluster) == [(4, 4), (2, 2)]
    assert all(job.state.ended for job in cluster.jobs.values())


def test_without_a_limit_on_jobs_brackets_have_the_least_width() -> None:
    """Check with a generator that has six configurations, which the policy does not know: brackets of eta^2 = 4."""

    def generator(index: int) -> dict[str, int] | None:
        return {"x": index + 1} if index < 6 else None

    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, jobs=ENDLESS, max_position=4, generator=generator)
    cluster.run()
    assert bottoms(policy, cluster) == [(4, 4), (2, 2)]


def test_more_jobs_join_the_bracket_while_its_bottom_rung_is_not_decided() -> None:
    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, jobs=4, slots=1, max_position=2)
    cluster.at(3.5, cluster.extend, 2)
    cluster.run()
    assert bottoms(policy, cluster) == [(6, 6)]
    cluster.at(cluster.now + 1, cluster.extend, 2)
    cluster.run()
    assert bottoms(policy, cluster) == [(6, 6), (2, 2)]


def test_a_bracket_of_all_ends_though_one_configuration_never_joins_it() -> None:
    """Check with four jobs of which job 4 is ended by a person before it starts: three results decide the rung."""
    policy = ShaPolicy(eta=3)
    cluster = cluster_of(policy, jobs=4, slots=1, max_position=3)
    cluster.at(2.5, lambda: cluster.virtual_jobs["4"].change(state=JobState.TERMINATED))
    cluster.run()
    assert bottoms(policy, cluster) == [(3, 3)]
    assert [job.id for job in cluster.jobs.values() if job.state is JobState.COMPLETED] == ["2"]


@pytest.mark.merge
def test_an_extended_experiment_gets_new_brackets_and_further_rungs() -> None:
    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, jobs=2, max_position=2)
    cluster.run()
    assert cluster.jobs["2"].state is JobState.COMPLETED
    cluster.at(10, cluster.extend, 2)
    cluster.run()
    assert {job.id for job in cluster.jobs.values() if job.state is JobState.COMPLETED} == {"2", "4"}


def test_who_has_trained_beyond_the_next_rung_stands_there_at_once() -> None:
    """Check with reports at 3, 6 and 8 only: of the rungs at 1, 2, 4 and 8, the first two are passed at once."""
    policy = ShaPolicy(eta=2)
    cluster = cluster_of(policy, slots=1, interval=3, max_position=8)
    cluster.run()
    assert standing(policy, cluster)[0, 1] == ["4", "6", "7", "8"]
    assert {job.id: job.high_water for job in cluster.jobs.values()} == {**dict.fromkeys("123578", 3), "6": 6, "4": 8}


def test_several_brackets_begin_one_after_the_other_again_and_again() -> None:
    """Check with rungs at 1, 2 and 4 and eta 2: brackets of 4 and 2 configurations start at rungs 1 and 2."""
    policy = ShaPolicy(eta=2, brackets=[1, 0])
    cluster = cluster_of(policy, dict.fromkeys(range(1, 13), 0.5), slots=12, jobs=12)
    history = cluster.run()
    bottoms = [command.until for entry in history for command in entry.commands if hasattr(command, "until")]
    assert bottoms[:12] == [1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2]
    assert [len(rung.standings) for rung in rungs_of(policy, cluster)] == [4, 2, 1, 2, 1, 4, 2, 1, 2, 1]


def test_hyperband_loops_through_brackets() -> None:
    """Check with rungs at 1, 2 and 4 and eta 2: brackets of 4, 3 and 3 configurations start at rungs 1, 2 and 4."""
    policy = HyperbandPolicy(eta=2)
    cluster = cluster_of(policy, dict.fromkeys(range(1, 15), 0.5), slots=14, jobs=14)
    history = cluster.run()
    bottoms = [command.until for entry in history for command in entry.commands if hasattr(command, "until")]
    assert bottoms[:14] == [1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 1, 1, 1, 1]
    assert [(rung.position, rung.width) for rung in rungs_of(policy, cluster)] == [
        *((1, 4), (2, 2), (4, 1)),
        *((2, 3), (4, 1)),
        (4, 3),
        *((1, 4), (2, 2), (4, 1)),
    ]


def test_bohb_schedules_as_sha_with_brackets_of_the_least_width() -> None:
    sha, bohb = (cluster_of(policy) for policy in (ShaPolicy(eta=2, width=4), BohbPolicy(eta=2)))
    assert [entry.answer for entry in sha.run()] == [entry.answer for entry in bohb.run()]


@pytest.mark.parametrize("width", [0, 1.5, "4"])
def test_impossible_widths_are_refused(width: Any) -> None:
    with pytest.raises(ValueError, match="it must be a whole number of at least 1"):
        ShaPolicy(width=width)
