"""Tests of the policy `mop`: which model trains on which partition, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy import Data, JobState, RunMode, capabilities_of
from hopyard.policy.testing import Delays, VirtualCluster, VirtualStep, difference, replay
from hopyard.policy.vocabulary import Hyperparameters, StartJob
from hopyard_policies.mop import MopPolicy
from tests.unit.policies.mop.rig import check_epochs, placed, planned, ring, trained

pytestmark = pytest.mark.quick


def paced(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    """Return a step of 1 + x % 3 seconds for configuration x."""
    return VirtualStep({"accuracy": position / 100}, 1.0 + int(hyperparameters["x"]) % 3, examples=50)


def made(data: Data, policy: MopPolicy | None = None, **terms: Any) -> VirtualCluster:
    given: dict[str, Any] = {
        "jobs": 4,
        "max_position": 2 * len(data.train),
        "curve": paced,
        "data": data,
        "watch": True,
    }
    return VirtualCluster(policy or MopPolicy(), **{**given, **terms})


def starts(cluster: VirtualCluster, mode: RunMode = RunMode.TRAIN) -> list[StartJob]:
    commands = [command for entry in cluster.history for command in entry.commands]
    return [command for command in commands if isinstance(command, StartJob) and command.mode is mode]


def test_each_model_visits_each_partition_once_an_epoch_and_no_unit_is_preemptible() -> None:
    data = ring(3)
    cluster = made(data, slots=3)
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, data)
    assert len(starts(cluster)) == 4 * 6
    for command in starts(cluster):
        (slot,) = command.slots
        assert command.inputs[slot] == f"train/{int(slot[1:]) - 1}"
        assert not command.preemptible
        assert command.until is not None


def test_the_store_gets_each_unit_by_default() -> None:
    assert capabilities_of(MopPolicy()).ship_every == 1


def test_slots_are_never_idle_while_models_wait() -> None:
    cluster = made(ring(2), slots=2, jobs=6, curve=lambda job, _: VirtualStep({"accuracy": 0.5}, 1.0))
    cluster.run()
    assert cluster.now == pytest.approx(6 * 4 / 2)


def test_models_are_evaluated_by_parts_once_an_epoch_and_completed_afterwards() -> None:
    data = ring(2, parts=3)
    cluster = made(data, slots=2, jobs=2)
    cluster.run()
    found = [(c.job, c.inputs[c.slots[0]]) for c in starts(cluster, RunMode.EVALUATE)]
    assert sorted(found) == sorted(2 * [(job, f"eval/{part}") for job in ("1", "2") for part in range(3)])
    for job in cluster.virtual_jobs.values():
        assert job.view.state is JobState.COMPLETED
        assert sorted(job.parts) == [(position, f"eval/{part}") for position in (2, 4) for part in range(3)]


@pytest.mark.parametrize("barrier", [True, False])
def test_with_a_barrier_nobody_begins_an_epoch_before_all_have_ended_the_one_before(barrier: bool) -> None:
    cluster = made(ring(2), MopPolicy(barrier=barrier), slots=2, jobs=2)
    cluster.run()
    ends = [run.ended for run in cluster.runs if run.start < 2 and run.position <= 2]
    begins = [run.began for run in cluster.runs if run.start >= 2 and run.position > 2]
    assert (min(begins) >= max(ends)) is barrier


def test_only_so_many_train_at_a_time() -> None:
    cluster = made(ring(2), MopPolicy(configurations=2), slots=2, jobs=5)
    cluster.run()
    open_jobs = [sum(not job.state.ended for job in entry.moment.jobs.values()) for entry in cluster.history]
    assert max(open_jobs) == 2
    assert len(cluster.jobs) == 5


def test_a_lost_unit_is_trained_on_a_replica() -> None:
    data = ring(3, replicas=2)
    cluster = made(data, slots=3)
    cluster.at(2.5, cluster.lose_slot, "m02")
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, data)


def test_without_a_replica_it_waits_until_the_node_is_back() -> None:
    data = ring(3)
    cluster = made(data, slots=3)
    cluster.at(2.5, cluster.lose_slot, "m02")
    cluster.at(500.0, cluster.join_slot, "m02")
    cluster.run(until=400.0)
    assert not cluster.over
    # All units that do not need the lost node are complete.
    assert all(job.position == 2 or job.state.ended for job in cluster.jobs.values())
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, data)


def test_a_model_that_goes_back_trains_the_same_partitions_again() -> None:
    data = ring(3, replicas=3)
    cluster = made(data, slots=3, jobs=3, delays=Delays(store=5.0))
    for moment in (4.4, 9.3):
        cluster.at(moment, cluster.lose_slot, "m01")
        cluster.at(moment + 1.0, cluster.join_slot, "m01")
    cluster.run()
    first: dict[tuple[str, int], str] = {}
    repeated = 0
    for command in starts(cluster):
        assert command.until is not None
        visit, partition = (command.job, command.until), command.inputs[command.slots[0]]
        job_reached = max(
            (r.position for r in cluster.runs if r.job == command.job and r.position >= command.until), default=0
        )
        if visit in first and job_reached:
            repeated += first[visit] == partition
        first.setdefault(visit, partition)
    assert repeated
    check_epochs(cluster, data)


@pytest.mark.parametrize("alike", [True, False])
def test_a_model_that_goes_back_is_evaluated_again_if_it_was_trained_otherwise(alike: bool) -> None:
    """Check with two nodes that are lost and return one after the other: the model first trains the partition that is available."""
    cluster = made(placed([[1], [2]], [[1, 2]]), slots=2, jobs=1, delays=Delays(store=1000.0), max_position=4)
    before: list[str] = []

    def die() -> None:
        visits = trained(cluster)["1"]
        before.extend(visits[position] for position in (0, 1))
        for name in ("m01", "m02"):
            cluster.lose_slot(name)
        first, second = (f"m{int(partition[-1]) + 1:02}" for partition in (before if alike else reversed(before)))
        cluster.at(cluster.now + 1.0, cluster.join_slot, first)
        cluster.at(cluster.now + 20.0, cluster.join_slot, second)

    cluster.at(6.5, die)  # Each of the two units and the evaluation takes 2 s.
    cluster.run()
    after = [trained(cluster)["1"][position] for position in (0, 1)]
    assert (after == before) is alike
    assert len(starts(cluster, RunMode.EVALUATE)) == (2 if alike else 3)


def test_uneven_slots_are_learned() -> None:
    """Check that slow models start first once times are known, so that the last runs are not only those of slow models."""
    speeds = {1: 1.0, 2: 1.0, 3: 6.0, 4: 1.0}
    cluster = made(
        ring(2), slots=2, curve=lambda job, _: VirtualStep({"accuracy": 0.5}, speeds[int(job["x"])]), max_position=8
    )
    cluster.run()
    slowest = 8 * 6.0
    assert cluster.now <= slowest + 2.0


@pytest.mark.merge
def test_the_same_up_calls_give_the_same_answers() -> None:
    for scheduler, barrier in (("longest", False), ("randomized", True)):
        cluster = made(ring(3, replicas=2, parts=2), MopPolicy(scheduler, None, barrier), slots=3, jobs=5)
        cluster.at(3.5, cluster.lose_slot, "m01")
        cluster.at(9.5, cluster.join_slot, "m01")
        history = cluster.run()
        assert not difference(history, replay(MopPolicy(scheduler, None, barrier), history))


def test_an_experiment_without_partitions_is_told_what_it_lacks() -> None:
    cluster = VirtualCluster(MopPolicy(), slots=1, jobs=1)
    with pytest.raises(
        ValueError, match="mop sends jobs to partitioned data, and the experiment names none; register some"
    ):
        cluster.run()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scheduler": "fastest"}, "scheduler is 'fastest'; it must be one of longest, randomized, milp"),
        ({"configurations": 0}, "configurations is 0; it must be a whole number of at least 1"),
        ({"barrier": "yes"}, "barrier is 'yes'; it must be true or false"),
        ({"scheduler": "milp", "barrier": False}, "barrier is false; milp plans an epoch of all configurations"),
        ({"pilot": 1}, "pilot is 1; it must be true or false"),
        ({"gang_below": 1.5}, "gang_below is 1.5; it must be a number from 0 to 1"),
        ({"gang_below": True}, "gang_below is True; it must be a number from 0 to 1"),
        ({"plan_seconds": 0}, "plan_seconds is 0; it must be a number of seconds above 0, up to 86400"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MopPolicy(**parameters)


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_lost_each_epoch_visits_each_partition_once(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 4))
    number = st.integers(1, slots)
    holders = data.draw(st.lists(st.sets(number, min_size=1, max_size=3), min_size=1, max_size=4))
    parts = data.draw(st.lists(st.sets(number, min_size=1), max_size=2))
    partitioned = placed([sorted(h) for h in holders], [sorted(h) for h in parts])
    policy = MopPolicy(
        data.draw(st.sampled_from(["longest", "randomized", "milp"])),
        data.draw(st.sampled_from([None, 2])),
        data.draw(st.sampled_from([None, True])),
        pilot=data.draw(st.booleans()),
    )
    delays = Delays(
        store=data.draw(st.sampled_from([0.0, 3.0])),
        save=data.draw(st.sampled_from([0.0, 0.5])),
        answer=data.draw(st.sampled_from([0.0, 2.0])),
    )
    cluster = made(
        partitioned,
        policy,
        slots=slots,
        jobs=data.draw(st.integers(1, 5)),
        delays=delays,
        max_losses=100,
        respond=planned,
    )
    for moment in data.draw(st.lists(st.floats(0.0, 30.0), max_size=4)):
        what = data.draw(st.sampled_from(["run", "slot", "share"]))
        if what == "run":
            cluster.at(moment, cluster.lose_run, str(data.draw(st.integers(1, 5))))
        elif what == "slot":
            name = f"m{data.draw(number):02}"
            cluster.at(moment, cluster.lose_slot, name)
            cluster.at(moment + data.draw(st.floats(0.1, 20.0)), cluster.join_slot, name)
        else:
            # A share between 0 and all may consist of slots whose nodes have no data that is still needed; mop then waits.
            cluster.at(moment, cluster.set_share, data.draw(st.sampled_from([0, slots])))
            cluster.at(moment + 7.0, cluster.set_share, slots)
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, partitioned)
    busy: dict[tuple[str, str], float] = {}
    for run in sorted(cluster.runs, key=lambda run: (run.began, run.ended)):
        for owner in (("job", run.job), ("slot", run.slots[0])):
            assert busy.get(owner, 0.0) <= run.began
            busy[owner] = run.ended
    assert set(trained(cluster)) == set(cluster.jobs)
