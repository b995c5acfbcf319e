"""Tests of the pilot phase of `mop`: which jobs are profiled on which slots, and how the times are used."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hopyard.policy import JobState, RunMode
from hopyard.policy.testing import TrainingFailed, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import ApplicationStat, Hyperparameters, StartJob
from hopyard_policies.mop import MopPolicy
from tests.unit.policies.mop.rig import check_epochs, ring

pytestmark = pytest.mark.quick


def paced(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    return VirtualStep({"accuracy": position / 100}, 1.0 + int(hyperparameters["x"]), examples=50)


def made(**changes: Any) -> VirtualCluster:
    terms: dict[str, Any] = {
        "slots": 3,
        "jobs": 5,
        "max_position": 6,
        "curve": paced,
        "data": ring(3),
        "watch": True,
    }
    return VirtualCluster(MopPolicy(pilot=True), **{**terms, **changes})


def starts(cluster: VirtualCluster, mode: RunMode) -> list[tuple[float, StartJob]]:
    return [
        (entry.moment.now, command)
        for entry in cluster.history
        for command in entry.commands
        if isinstance(command, StartJob) and command.mode is mode
    ]


def test_each_job_is_profiled_once_and_one_of_them_everywhere_before_anything_trains() -> None:
    cluster = made()
    cluster.run()
    profiled = Counter(command.job for _, command in starts(cluster, RunMode.PROFILE))
    assert sorted(profiled.values()) == [1, 1, 1, 1, 3]
    (everywhere,) = [job for job, count in profiled.items() if count == 3]
    slots = {command.slots for _, command in starts(cluster, RunMode.PROFILE) if command.job == everywhere}
    assert slots == {("m01",), ("m02",), ("m03",)}
    order = [command.mode for entry in cluster.history for command in entry.commands if isinstance(command, StartJob)]
    assert RunMode.TRAIN not in order[: sum(profiled.values())]
    check_epochs(cluster, ring(3))
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())


def test_a_profile_is_told_and_recorded_nowhere() -> None:
    cluster = made()
    cluster.run()
    told = [entry.call for entry in cluster.history if isinstance(entry.call, ApplicationStat)]
    assert {stat.mode for stat in told} == {RunMode.PROFILE}
    assert {(stat.job, stat.report.metrics["seconds"]) for stat in told} == {
        (job.id, 1.0 + int(job.hyperparameters["x"])) for job in cluster.jobs.values()
    }
    for job in cluster.jobs:
        assert [point.position for point in cluster.curve(job)] == [1, 2, 3, 4, 5, 6]


def test_known_times_let_the_longest_begin_first() -> None:
    cluster = made(slots=2, data=ring(2), jobs=4, max_position=2)
    cluster.run()
    _, first = starts(cluster, RunMode.TRAIN)[0]
    assert int(cluster.jobs[first.job].hyperparameters["x"]) == max(
        int(job.hyperparameters["x"]) for job in cluster.jobs.values()
    )


def test_a_program_that_cannot_be_profiled_trains_all_the_same() -> None:
    def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        if curve.profiled:  # type: ignore[attr-defined]
            return paced(hyperparameters, position)
        raise TrainingFailed("it does not define profile()")

    curve.profiled = False  # type: ignore[attr-defined]
    cluster = made(curve=curve, max_failures=0)
    cluster.run(until=0.5)
    curve.profiled = True  # type: ignore[attr-defined]
    cluster.run()
    assert len(starts(cluster, RunMode.PROFILE)) <= 3
    check_epochs(cluster, ring(3))


def test_a_profile_that_says_nothing_is_not_made_again() -> None:
    cluster = made(curve=lambda hyperparameters, position: VirtualStep({"accuracy": position / 100}, 0.0, examples=50))
    cluster.run()
    assert sum(Counter(command.job for _, command in starts(cluster, RunMode.PROFILE)).values()) == 5 + 2
    check_epochs(cluster, ring(3))


@pytest.mark.parametrize("moment", [0.0, 0.2, 4.0])
def test_a_slot_that_is_lost_and_comes_back_holds_nothing_up(moment: float) -> None:
    cluster = made(max_losses=20)
    cluster.at(moment, cluster.lose_slot, "m02")
    cluster.at(moment + 5.0, cluster.join_slot, "m02")
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, ring(3))
