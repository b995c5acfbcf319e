"""Tests of training outside the tuner's trials: requests of clients, and further training of the best configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import ENDLESS, JobState
from hopyard.policy.testing import UpCallView, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import Hyperparameters
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import simulate

from .searches import Coarse, steps, value

pytestmark = pytest.mark.quick


def change(at: int, to: float = 0.2) -> Hyperparameters:
    """Return a configuration whose learning rate is 0.1 up to position `at`, then `to`."""
    return {"lr": steps([at], [0.1, to])}


SPACE = (change(4), change(6), change(8))


def curve(given: Hyperparameters, position: int) -> VirtualStep:
    """Return a step of one second whose metric depends only on the state."""
    return VirtualStep({"accuracy": value(given, position)}, seconds=1.0)


def made(policy: StageTreePolicy, slots: int = 1, **terms: Any) -> VirtualCluster:
    """Return a cluster with three trials of ten positions that differ from 4, 6 and 8 on."""
    return VirtualCluster(
        policy,
        slots=slots,
        curve=curve,
        generator=lambda number: SPACE[number],
        **{"jobs": 3, "max_position": 10, **terms},
    )


def trained(cluster: VirtualCluster) -> Mapping[str, int]:
    """Return the number of positions that the runs of each job trained."""
    found = dict.fromkeys(cluster.jobs, 0)
    for run in cluster.runs:
        found[run.job] += run.position - run.start
    return found


def test_what_is_known_is_answered_at_once_and_without_a_run() -> None:
    cluster = made(StageTreePolicy())
    # One slot trains the trials one after the other; at 19.5 s the last one is nearly complete.
    cluster.at(19.5, cluster.request, "a", change(4), 3)
    cluster.at(19.5, cluster.request, "b", SPACE[2], 8)
    cluster.run(19.5)
    answered = [cluster.jobs[name] for name in ("4", "5")]
    assert [(job.state, job.position) for job in answered] == [(JobState.COMPLETED, 3), (JobState.COMPLETED, 8)]
    assert [point.position for point in cluster.curve("5")] == list(range(1, 9))
    assert cluster.curve("5")[-1].metrics["accuracy"] == value(SPACE[2], 8)
    cluster.run()
    assert trained(cluster)["4"] == trained(cluster)["5"] == 0


@pytest.mark.parametrize("slots", [1, 3])
def test_what_is_not_known_is_trained_from_the_shared_prefix(slots: int) -> None:
    asked = {"lr": steps([6, 7], [0.1, 0.2, 0.4])}  # The same as the second trial up to 7.
    cluster = made(StageTreePolicy(save_every=1), slots)
    cluster.at(0.5, cluster.request, "a", asked, 9)
    cluster.run()
    ends = [(job.state, job.position) for job in cluster.jobs.values()]
    assert sorted(ends, key=lambda end: end[1]) == [(JobState.COMPLETED, 9)] + 3 * [(JobState.COMPLETED, 10)]
    whole = {(p, value(each, p)) for each in SPACE for p in range(1, 11)} | {(p, value(asked, p)) for p in range(1, 10)}
    assert sum(trained(cluster).values()) == len(whole)


def test_the_same_configuration_further_goes_on_where_it_was() -> None:
    cluster = made(StageTreePolicy(save_every=1), slots=2, jobs=1, max_position=40)
    asked = {"lr": 0.3}
    cluster.at(0.5, cluster.request, "a", asked, 3)
    cluster.at(15.0, cluster.request, "b", asked, 7)
    cluster.at(15.0, cluster.request, "c", asked, 5)
    cluster.run()
    own = {job.id: job for job in cluster.jobs.values() if job.hyperparameters == asked}
    assert sorted(job.position for job in own.values()) == [3, 5, 7]
    assert all(job.state is JobState.COMPLETED for job in own.values())
    assert sum(trained(cluster)[name] for name in own) == 7


def test_requests_do_not_concern_the_tuner() -> None:
    """Check that requests neither appear in the rungs of `sha` nor reduce the number of its trials."""
    found = []
    for asks in (False, True):
        policy = StageTreePolicy(tuner={"name": "sha", "eta": 2, "r": 2}, save_every=1)
        cluster = made(policy, slots=3, max_position=8, jobs=3)
        if asks:
            cluster.at(1.5, cluster.request, "a", {"lr": 0.7}, 8)
        cluster.run()
        last = cluster.history[-1]
        rungs = policy.rungs(UpCallView(last.moment, last.call)) or ()
        found.append([(rung.position, sorted(standing.value for standing in rung.standings)) for rung in rungs])
        assert len(cluster.jobs) == 3 + asks
        if asks:
            (job,) = [job for job in cluster.jobs.values() if job.hyperparameters == {"lr": 0.7}]
            assert (job.state, job.position) == (JobState.COMPLETED, 8)
    assert found[0] == found[1]


def test_what_is_requested_is_shown_as_waiting_and_then_as_reused() -> None:
    policy = StageTreePolicy()
    cluster = made(policy, jobs=1)
    cluster.at(2.5, cluster.request, "a", change(2, 0.3), 5)
    cluster.at(2.5, cluster.request, "b", change(8), 6)
    cluster.run(3.5)

    def shown() -> dict[tuple[int, int, tuple[str, ...]], tuple[str, int]]:
        last = cluster.history[-1]
        stages = policy.stages(UpCallView(last.moment, last.call))
        return {(stage.start, stage.end, stage.trials): (stage.state.value, stage.reused) for stage in stages}

    before = shown()
    assert before[2, 5, ("2",)] == ("waiting", 0)
    cluster.run()
    assert {key: found for key, found in shown().items() if "2" in key[2]} == {
        (0, 2, ("1", "2", "3")): ("done", 1),  # Requested after 2 was passed, so trained again.
        (2, 5, ("2",)): ("done", 0),
    }


def test_a_request_survives_lost_runs_and_a_pause() -> None:
    cluster = made(StageTreePolicy(save_every=2), slots=2)
    cluster.at(0.5, cluster.request, "a", {"lr": 0.5}, 9)
    for time, job in ((3.2, "1"), (5.2, "4"), (7.2, "4")):
        cluster.at(time, cluster.lose_run, job)
    cluster.at(8.0, cluster.pause)
    cluster.at(12.0, cluster.resume)
    cluster.run()
    assert {(job.state, job.position) for job in cluster.jobs.values()} == {
        (JobState.COMPLETED, 9),
        (JobState.COMPLETED, 10),
    }


@pytest.mark.parametrize("tuner", ["default", {"name": "sha", "eta": 2, "r": 5}, {"name": "asha", "eta": 2, "r": 5}])
def test_the_best_trains_further_from_its_end(tuner: Any) -> None:
    cluster = made(StageTreePolicy(tuner=tuner, train_best_further=5), slots=2, jobs=3)
    cluster.run()
    (further,) = [job for job in cluster.jobs.values() if job.id not in ("1", "2", "3")]
    ends = {
        job.id: cluster.curve(job.id)[-1].metrics["accuracy"] for job in cluster.jobs.values() if job.position == 10
    }
    best = max(ends, key=lambda name: ends[name])
    assert further.hyperparameters == cluster.jobs[best].hyperparameters
    assert (further.state, further.position) == (JobState.COMPLETED, 15)
    assert [point.position for point in cluster.curve(further.id)] == list(range(1, 16))
    assert cluster.curve(further.id)[-1].metrics["accuracy"] == value(further.hyperparameters, 15)
    assert trained(cluster)[further.id] == 5


def test_after_an_extension_the_best_trains_further_anew() -> None:
    cluster = made(StageTreePolicy(train_best_further=2))
    cluster.run()
    assert len(cluster.jobs) == 4
    cluster.extend(max_position=14)
    cluster.run()
    assert [job.position for job in cluster.jobs.values()] == [14, 14, 14, 12, 16]
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())


def test_what_trains_further_is_none_of_the_experiments_jobs_in_the_core_either() -> None:
    workload = Coarse(value, SPACE, 10)
    workload.beyond = 5
    found = simulate(workload, "stage_tree", slots=2, parameters={"train_best_further": 5}, details=True)
    assert found.reason == "all jobs ended"
    assert found.states == dict.fromkeys("1234", "COMPLETED")
    assert found.curves is not None
    assert [position for _, position, _ in found.curves["4"]] == [11, 12, 13, 14, 15]


def test_without_an_end_there_is_nothing_beyond_it() -> None:
    workload = Coarse(value, SPACE, ENDLESS)
    with pytest.raises(InvalidInput, match=r"train_best_further needs stop\.max_iterations"):
        simulate(workload, "stage_tree", slots=1, parameters={"train_best_further": 1})
    with pytest.raises(ValueError, match="train_best_further is -1"):
        StageTreePolicy(train_best_further=-1)
