"""Tests of `mop` with tuners: their decisions, and that each model still visits each partition once an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy import Cluster, Decision, IterationFinish, JobState, Policy, RunEnd, RunMode
from hopyard.policy.testing import Delays, VirtualCluster, VirtualStep, difference, replay
from hopyard.policy.testing.view import UpCallView
from hopyard.policy.vocabulary import AllocateJobs, ForkJob, Hyperparameters, StartJob
from hopyard.space import Space
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.halving import AshaPolicy, HyperbandPolicy, ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.mop import MopPolicy
from hopyard_policies.mop.tuner_slots import AHEAD
from tests.unit.policies.mop.rig import check_epochs, placed, ring

SPACE = Space.from_dict({"x": {"int": [1, 40]}})
TUNERS: Mapping[str, Mapping[str, Any]] = {
    "default": {"name": "default"},
    "asha": {"name": "asha", "eta": 3, "r": 1},
    "sha": {"name": "sha", "eta": 2, "r": 1},
    "hyperband": {"name": "hyperband", "eta": 3},
    "median": {"name": "median", "evaluation_boundary": 1, "least_jobs": 2},
    "pbt": {"name": "pbt", "population": 4, "interval": 1, "truncation": 0.5},
}


def good(hyperparameters: Hyperparameters, epoch: float) -> float:
    """Return the accuracy after a number of epochs; each configuration has its own rate, and larger is better."""
    return float((int(hyperparameters["x"]) * 7 % 11 + 1) / 12 * (1 - 0.7**epoch))


def searching(
    tuner: Mapping[str, Any] | str | None, partitions: int = 3, epochs: int = 9, **terms: Any
) -> VirtualCluster:
    """Return a cluster with `mop` and a tuner, one partition per slot, and 1 to 3 seconds per unit."""
    own = {name: terms.pop(name) for name in ("barrier", "configurations", "scheduler") if name in terms}

    def curve(given: Hyperparameters, position: int) -> VirtualStep:
        return VirtualStep({"accuracy": good(given, position / partitions)}, 1.0 + int(given["x"]) % 3, examples=50)

    given: dict[str, Any] = {
        "slots": partitions,
        "jobs": 9,
        "max_position": epochs * partitions,
        "curve": curve,
        "data": ring(partitions, parts=1),
        "space": SPACE,
        "watch": True,
    }
    return VirtualCluster(MopPolicy(tuner=tuner, **own), **{**given, **terms})


def alone(policy: Policy, epochs: int = 9, slots: int = 3, **terms: Any) -> VirtualCluster:
    """Return a cluster that runs the same search with the tuner as its policy.

    One position is one epoch, and all configurations are equally fast.
    """

    def curve(given: Hyperparameters, position: int) -> VirtualStep:
        return VirtualStep({"accuracy": good(given, position)}, 1.0)

    return VirtualCluster(policy, **{"slots": slots, "jobs": 9, "max_position": epochs, "curve": curve, **terms})


def ends(cluster: VirtualCluster, units: int = 1) -> dict[str, tuple[str, int]]:
    """Return the final state of each job and the number of its epochs."""
    return {job.id: (job.state.value, job.position // units) for job in cluster.jobs.values()}


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("tuner", TUNERS)
def test_epochs_stay_whole_whatever_a_tuner_decides(tuner: str, barrier: bool) -> None:
    cluster = searching(TUNERS[tuner], barrier=barrier)
    history = cluster.run()
    check_epochs(cluster, ring(3, parts=1))
    assert max(job.position for job in cluster.jobs.values()) > 3
    assert all(job.position % 3 == 0 for job in cluster.jobs.values())
    again = MopPolicy(tuner=TUNERS[tuner], barrier=barrier)
    assert not difference(history, replay(again, history))


@pytest.mark.parametrize(
    ("tuner", "policy"),
    [
        ("sha", ShaPolicy(eta=2, r=1, width=9)),
        ("hyperband", HyperbandPolicy(eta=3)),
        ("median", MedianPolicy(evaluation_boundary=1, least_jobs=2)),
    ],
)
def test_with_a_barrier_it_is_the_search_of_task_parallelism(tuner: str, policy: Policy) -> None:
    """Check that jobs end in the same states at the same epochs with nine slots and nine configurations at a time."""
    quick = alone(policy, slots=9)
    quick.run()
    own = {**TUNERS[tuner], **({"width": 9} if tuner == "sha" else {})}
    slow = searching(own, configurations=9, barrier=True)
    slow.run()
    if (
        tuner == "median"
    ):  # Early jobs are compared with fewer others, so the order of creation decides; here the best come first.
        assert [end for end in ends(slow, 3).values() if end == ("COMPLETED", 9)]
    else:
        assert ends(slow, 3) == ends(quick)


def test_asha_with_a_barrier_promotes_the_best_of_all_at_a_rung() -> None:
    cluster = searching({"name": "asha", "eta": 3, "r": 1, "brackets": [0]}, configurations=9, barrier=True)
    cluster.run()
    values = {job.id: good(job.hyperparameters, 1) for job in cluster.jobs.values()}
    best = sorted(values, key=lambda job: -values[job])
    came = {job.id: job.position // 3 for job in cluster.jobs.values()}
    assert [came[job] for job in best] == [9, 3, 3, 1, 1, 1, 1, 1, 1]


def test_asha_on_one_place_decides_as_alone_on_one_slot() -> None:
    """Check that jobs end the same with one configuration at a time, since their order is then fixed."""
    quick = alone(AshaPolicy(eta=3, r=1, ahead=0), slots=1)
    quick.run()
    slow = searching({"name": "asha", "eta": 3, "r": 1, "ahead": 0}, configurations=1)
    slow.run()
    assert ends(slow, 3) == ends(quick)


@pytest.mark.parametrize("barrier", [False, True])
def test_one_that_is_ended_frees_its_place_at_once_and_with_a_barrier_at_the_end_of_the_round(barrier: bool) -> None:
    cluster = searching({"name": "asha", "eta": 3, "r": 1}, configurations=3, jobs=6, barrier=barrier)
    cluster.run()
    fourth = min(run.began for run in cluster.runs if run.job == "4")
    ends = [run.ended for run in cluster.runs if run.job in ("1", "2", "3") and run.position == 3]
    assert len([end for end in ends if end <= fourth]) >= (len(ends) if barrier else 1)
    assert (fourth >= max(ends)) is barrier


@pytest.mark.parametrize(("tuner", "most"), [(None, 9), ({"name": "asha", "r": 1, "ahead": 0}, AHEAD * 3)])
def test_how_many_train_at_a_time_if_nothing_is_said(tuner: Mapping[str, Any] | None, most: int) -> None:
    cluster = searching(tuner, epochs=1)
    cluster.run()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for run in cluster.runs:
        first.setdefault(run.job, run.began)
        last[run.job] = run.ended
    assert max(sum(first[job] <= at < last[job] for job in first) for at in first.values()) == most


@pytest.mark.parametrize("tuner", [None, TUNERS["asha"]])
def test_a_number_of_configurations_beyond_all_bounds_stands_for_all(tuner: Mapping[str, Any] | None) -> None:
    assert not difference(searching(tuner, configurations=10**7).run(), searching(tuner, configurations=9).run())


def test_copies_of_pbt_begin_where_the_better_one_stood_at_the_end_of_an_epoch() -> None:
    cluster = searching(TUNERS["pbt"], jobs=4, keep_latest=0)
    cluster.run()
    forks = [command for entry in cluster.history for command in entry.commands if isinstance(command, ForkJob)]
    assert forks
    assert all(fork.position % 3 == 0 for fork in forks)
    check_epochs(cluster, ring(3, parts=1))
    saves = {(c.job, c.until) for e in cluster.history for c in e.commands if isinstance(c, StartJob) and c.snapshot_at}
    assert {(fork.parent, fork.position) for fork in forks} <= saves


def test_a_tuner_hears_of_an_epoch_when_it_is_evaluated() -> None:
    """Check that each epoch is evaluated on all parts exactly once before the tuner decides."""
    cluster = searching(TUNERS["sha"], data=ring(3, parts=3), jobs=8)
    cluster.run()
    calls = [entry.call for entry in cluster.history]
    evaluated = Counter(
        (call.job, call.position) for call in calls if isinstance(call, RunEnd) and call.mode is RunMode.EVALUATE
    )
    for job in cluster.jobs.values():
        assert {position for name, position in evaluated if name == job.id} == set(range(3, job.position + 1, 3))
    assert set(evaluated.values()) == {3}


class Listening(DefaultPolicy):
    """A tuner that records its reports."""

    every_iteration = True
    heard: ClassVar[dict[str, list[tuple[int, float]]]] = {}

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        self.heard.setdefault(event.job, []).append((event.position, event.report.metrics["accuracy"]))
        assert [point.position for point in cluster.curve(event.job)][-1] == event.position
        assert cluster.jobs[event.job].max_position == 4
        return super().on_iteration_finish(cluster, event)


@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("barrier", [False, True])
def test_a_tuner_hears_of_each_epoch_once_and_in_order(parts: int, barrier: bool) -> None:
    Listening.heard = {}
    cluster = searching(
        f"{__name__}:Listening", epochs=4, barrier=barrier, data=ring(3, parts=parts), delays=Delays(save=0.5)
    )
    cluster.run()
    assert Listening.heard.keys() == cluster.jobs.keys()
    for job, heard in Listening.heard.items():
        assert [epoch for epoch, _ in heard] == [1, 2, 3, 4]
        values = [good(cluster.jobs[job].hyperparameters, epoch) for epoch in range(1, 5)]
        assert [value for _, value in heard] == pytest.approx(values)


def test_rungs_are_shown_in_units() -> None:
    policy = MopPolicy(tuner={"name": "asha", "eta": 3, "r": 1, "brackets": [0]})
    cluster = searching(None)
    cluster.policy = policy
    cluster.run()
    rungs = policy.rungs(UpCallView(cluster.history[-1].moment, AllocateJobs())) or ()
    assert [rung.position for rung in rungs] == [3, 9, 27]


@pytest.mark.parametrize(
    ("tuner", "message"),
    [
        ("mop", "tuner is mop itself"),
        (3, "it must be a policy's name"),
        ({"name": "asha", "eta": 1}, "tuner asha: eta is 1"),
        (
            {"name": "asha", "elastic": {}},
            "tuner asha chooses on how many slots its trials train; .*leave out elastic",
        ),
    ],
)
def test_wrong_tuners_are_refused(tuner: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MopPolicy(tuner=tuner)


def test_the_terms_are_looked_at_in_epochs() -> None:
    terms = searching(None, epochs=4).terms
    with pytest.raises(
        ValueError, match=r"tuner asha \(counts epochs, of 3 units each here.* to it\): r is 5, which is beyond"
    ):
        MopPolicy(tuner={"name": "asha", "r": 5}).review(terms)
    assert MopPolicy().review(terms) == ""


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_lost_each_epoch_visits_each_partition_once_under_every_tuner(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 3))
    number = st.integers(1, slots)
    holders = data.draw(st.lists(st.sets(number, min_size=1), min_size=1, max_size=3))
    parts = data.draw(st.lists(st.sets(number, min_size=1), max_size=1))
    partitioned = placed([sorted(h) for h in holders], [sorted(h) for h in parts])
    cluster = searching(
        TUNERS[data.draw(st.sampled_from(sorted(TUNERS)))],
        partitions=len(holders),
        epochs=4,
        barrier=data.draw(st.booleans()),
        configurations=data.draw(st.sampled_from([None, 1, 3])),
        scheduler=data.draw(st.sampled_from(["longest", "randomized"])),
        slots=slots,
        data=partitioned,
        jobs=data.draw(st.integers(1, 6)),
        delays=Delays(
            store=data.draw(st.sampled_from([0.0, 3.0])),
            save=data.draw(st.sampled_from([0.0, 0.5])),
            create=data.draw(st.sampled_from([0.0, 0.7])),
        ),
        keep_latest=data.draw(st.sampled_from([0, 2])),
        max_losses=100,
    )
    for moment in data.draw(st.lists(st.floats(0.0, 30.0), max_size=3)):
        if data.draw(st.booleans()):
            cluster.at(moment, cluster.lose_run, str(data.draw(st.integers(1, 6))))
        else:
            name = f"m{data.draw(number):02}"
            cluster.at(moment, cluster.lose_slot, name)
            cluster.at(moment + data.draw(st.floats(0.1, 20.0)), cluster.join_slot, name)
    cluster.run()
    check_epochs(cluster, partitioned)
    assert all(job.state is not JobState.FAILED or job.parent for job in cluster.jobs.values())
    busy: dict[tuple[str, str], float] = {}
    for run in sorted(cluster.runs, key=lambda run: (run.began, run.ended)):
        for owner in (("job", run.job), ("slot", run.slots[0])):
            assert busy.get(owner, 0.0) <= run.began
            busy[owner] = run.ended
