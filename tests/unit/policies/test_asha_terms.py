"""Tests of `asha` with few configurations, rungs that are not powers, a full bottom rung, several brackets, and extensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.policy import ExperimentView, JobState
from hopyard.policy.testing import HistoryEntry, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import CreateJob, RunEndReason, StartJob, StreamId
from hopyard_engine.core.events import StreamCreated
from hopyard_policies.halving import AshaPolicy
from hopyard_policies.halving.policy import HalvingPolicy
from tests.unit.core.rig import settings, snapshot
from tests.unit.policies.searching import Searching
from tests.unit.policies.test_asha import cluster_of, rows, rungs_of, standing

pytestmark = pytest.mark.quick


def all_are_promoted_who_may_be(policy: HalvingPolicy, cluster: VirtualCluster, eta: int) -> bool:
    """Return whether the best floor(|rung| / eta) jobs of each rung below the top of its bracket were promoted."""
    rungs = rungs_of(policy, cluster)
    followed = {(rung.bracket, rung.number - 1) for rung in rungs}
    return all(
        all(one.promoted for one in rung.standings[: len(rung.standings) // eta])
        for rung in rungs
        if (rung.bracket, rung.number) in followed
    )


@pytest.mark.parametrize(("n", "ends"), [(1, [1]), (2, [1, 4]), (3, [1, 4, 16])])
def test_with_fewer_configurations_than_brackets_the_first_ones_get_one_each(n: int, ends: list[int]) -> None:
    policy = AshaPolicy()
    assert f"{n} configurations are too few for 5 rungs" in policy.review(
        ExperimentView("accuracy", "max", 256, jobs_left=n)
    )
    cluster = cluster_of(policy := AshaPolicy(), jobs=n, max_position=256)
    cluster.run()
    assert sorted(job.high_water for job in cluster.jobs.values()) == ends
    assert [rung.width for rung in rungs_of(policy, cluster) if rung.number == 0] == [1] * n + [0] * (3 - n)
    assert cluster.over == "the policy has nothing left to do"


@pytest.mark.merge
@pytest.mark.parametrize(
    ("R", "r", "n", "rungs"), [(15, 1, 16, (4, 15)), (65, 1, 64, (1, 4, 16, 65)), (120, 16, 16, (30, 120))]
)
def test_the_top_rung_is_at_R_where_that_is_no_power(R: int, r: int, n: int, rungs: tuple[int, ...]) -> None:
    policy = AshaPolicy(r=r, brackets=[0])
    cluster = cluster_of(policy, {x: (x * 37 % 257) / 257 for x in range(1, n + 1)}, jobs=n, max_position=R, slots=4)
    cluster.run()
    assert tuple(rung.position for rung in rungs_of(policy, cluster)) == rungs
    assert {run.position for run in cluster.runs} == set(rungs)
    best = max(cluster.jobs.values(), key=lambda job: cluster.curve(job.id)[0].metrics["accuracy"])
    assert (best.state, best.high_water) == (JobState.COMPLETED, R)
    assert all_are_promoted_who_may_be(policy, cluster, 4)


@pytest.mark.merge
def test_the_infinite_horizon_has_no_short_last_step() -> None:
    """Check with jobs that may train to 65: the last rung is 64, and no job trains further."""
    policy = AshaPolicy(infinite=True)
    cluster = cluster_of(policy, {x: x / 257 for x in range(1, 257)}, jobs=256, max_position=65, slots=4)
    cluster.run()
    assert [rung.position for rung in rungs_of(policy, cluster)] == [1, 4, 16, 64]
    assert max(run.position for run in cluster.runs) == 64
    assert all_are_promoted_who_may_be(policy, cluster, 4)


def test_a_search_with_listed_rungs_by_hand() -> None:
    """Check one slot, eta 2 and rungs at 1, 4 and 6: job 4 is the best, then jobs 2, 3 and 1."""
    policy = AshaPolicy(eta=2, rungs=[1, 4, 6], brackets=[0])
    cluster = cluster_of(policy, {1: 0.1, 2: 0.3, 3: 0.2, 4: 0.4}, jobs=4, max_position=6, slots=1)
    cluster.run()
    assert [(run.job, run.start, run.position) for run in cluster.runs] == [
        ("1", 0, 1),
        ("2", 0, 4),  # It is promoted in memory, and waits at 4.
        ("3", 0, 1),  # Of three results one is promoted, which is job 2.
        ("4", 0, 6),  # Two of four are promoted, this one and job 2. At 4 it is the better of both.
    ]


def test_a_full_bottom_rung_grows_no_more_and_its_slots_are_free() -> None:
    """Check with two configurations, of which job 1 is slow: until it reports, no job can be promoted and none can start."""

    def curve(job: Mapping[str, Any], position: int) -> VirtualStep:
        return VirtualStep({"accuracy": -job["x"]}, seconds=5.0 if job["x"] == 1 else 1.0)

    cluster = VirtualCluster(AshaPolicy(eta=2, brackets=[0]), slots=2, jobs=2, max_position=4, curve=curve)
    history = cluster.run()
    assert rows(cluster) == [
        ("2", "m02", 0, 1, 0, 1),
        ("1", "m01", 0, 10, 0, 2),  # Promoted at once, by its own result.
    ]

    def wants(entry: HistoryEntry) -> bool:
        return any(isinstance(command, StartJob | CreateJob) for command in entry.commands)

    between = [entry for entry in history if 1 <= entry.moment.now < 5]
    assert between
    assert not any(map(wants, between))
    assert between[-1].demand == 1


def test_no_bracket_grows_while_another_one_has_somebody_to_promote() -> None:
    """Check with five configurations for bracket 0 and three for bracket 1, in the order 0 1 0 0 1.

    Job 2, in bracket 1, waits at 2 until job 5 reports.
    """
    policy = AshaPolicy(eta=2, brackets=[0, 1])
    cluster = cluster_of(policy, {x: 1 / x for x in range(1, 9)}, slots=1, jobs=8, max_position=4)
    cluster.run()
    starts = [(run.job, run.start) for run in cluster.runs]
    assert [start for job, start in starts if job == "2"] == [0, 2]
    assert starts.index(("2", 2)) == starts.index(("5", 0)) + 1, starts
    assert starts.index(("6", 0)) > starts.index(("2", 2)), starts
    assert all_are_promoted_who_may_be(policy, cluster, 2)


def test_a_running_experiment_that_is_extended_goes_on_with_wider_brackets() -> None:
    policy = AshaPolicy(eta=2, brackets=[0])
    cluster = cluster_of(policy)
    cluster.at(3.5, cluster.extend, 4)
    cluster.run()
    bottom = rungs_of(policy, cluster)[0]
    assert (bottom.width, len(bottom.standings)) == (12, 12)
    assert all_are_promoted_who_may_be(policy, cluster, 2)
    assert sum(run.position - run.start for run in cluster.runs) == sum(j.high_water for j in cluster.jobs.values())
    assert len(standing(policy, cluster)[0, 1]) >= 6


@pytest.mark.merge
def test_the_parts_of_a_running_experiment_are_divided_anew_when_it_is_extended() -> None:
    policy = AshaPolicy()
    cluster = cluster_of(policy, dict.fromkeys(range(1, 101), 0.5), slots=3, jobs=16, max_position=256)
    cluster.at(1.5, cluster.extend, 84)
    cluster.run()
    bottoms = [rung for rung in rungs_of(policy, cluster) if rung.number == 0]
    assert [(rung.width, len(rung.standings)) for rung in bottoms] == [(71, 71), (22, 22), (7, 7)]


# --------------------------------------------------------------------------------------------------------- on the core


def test_the_best_so_far_is_the_best_of_all_losses_also_between_rungs() -> None:
    """Check that a report below the bottom rung, which is at 4 in bracket 1, can be the best value."""
    rig = Searching(AshaPolicy(r=1, brackets=[1]), capacity=1, mode="min", max_position=16, jobs=4)
    rig.go_on()
    for position, loss in enumerate((0.9, math.nan, 0.1, 0.5), 1):
        rig.report(position, loss, at_until=position == 4)
    assert rig.stream.best == ("1", 3, 0.1)
    (rung, _) = rig.rungs()
    assert [(one.job, one.value) for one in rung.standings] == [("1", 0.5)]


def test_slots_that_the_tail_cannot_use_go_to_others_at_once() -> None:
    """Check with two configurations that have started: the first that waits at its rung releases its slot to the other experiment."""
    rig = Searching(AshaPolicy(eta=2, brackets=[0]), capacity=3, max_position=4, jobs=2)
    rig.go_on()
    rig.feed(StreamCreated(rig.now, StreamId("z"), settings()))
    z = rig.core.streams[StreamId("z")]
    assert (len(rig.stream.slots), len(z.slots)) == (2, 1)
    rig.report(1, 0.9, "1", at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1), name="1")
    assert rig.stream.demand == 1
    assert (len(rig.stream.slots), len(z.slots)) == (1, 2)
    rig.report(1, 0.1, "2", at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1), name="2")
    assert (rig.run("1").until, len(rig.stream.slots), rig.stream.demand) == (2, 1, 1)
