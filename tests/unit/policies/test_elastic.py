"""Tests of elastic jobs, by hand: the number of slots at the start, during training, and with other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.policy import Policy
from hopyard.policy.testing import Delays, TrainingFailed, VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import ExperimentId, JobState, RunEndReason, RunKey, StreamId
from hopyard_engine.core.events import Ended, ExperimentJoined, Operated, SnapshotStored, Started
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.elastic import Elastic, Scaling
from hopyard_policies.halving import AshaPolicy
from hopyard_simulator import Costs, CurveWorkload, simulate
from tests.unit.core.rig import settings, snapshot
from tests.unit.core.test_gangs import Bench

pytestmark = pytest.mark.quick

PROFILE = {1: 8.0, 2: 4.4, 4: 2.6, 8: 1.6}
"""A scaling profile with efficiencies 1, 0.91, 0.77 and 0.625."""

FOUR = {"profile": PROFILE, "pause": 0}


# ---------------------------------------------------------------------------------------------------------------- profile


@pytest.mark.parametrize(
    ("profile", "efficiency", "sizes"),
    [
        (PROFILE, 0.75, (1, 2, 4)),
        (PROFILE, 0.625, (1, 2, 4, 8)),
        (PROFILE, 0.92, (1,)),
        ({4: 2.0, 8: 1.2}, 0.75, (4, 8)),  # Efficiency is relative to the smallest gang.
        ({1: 8.0, 2: 8.5, 4: 2.0}, 0.75, (1, 4)),  # Two are slower than one, four are not.
        ({1: 8.0, 2: 3.0, 3: 3.2}, 0.75, (1, 2)),  # Three are efficient enough, but slower than two.
    ],
)
def test_a_job_trains_on_gangs_of_the_profile_that_are_efficient(
    profile: Mapping[int, float], efficiency: float, sizes: tuple[int, ...]
) -> None:
    assert Scaling(profile, efficiency).sizes == sizes


@pytest.mark.parametrize(
    ("weights", "slots", "sizes"),
    [
        ([1] * 8, 32, [4] * 8),
        ([1] * 8, 16, [2] * 8),
        ([1] * 8, 12, [2, 2, 2, 2, 1, 1, 1, 1]),
        ([1] * 8, 20, [4, 4, 2, 2, 2, 2, 2, 2]),
        ([1] * 8, 3, [1, 1, 1, 0, 0, 0, 0, 0]),
        ([1] * 8, 0, [0] * 8),
        # A second slot saves 3.6 s a unit, a third and fourth 0.9 s each: a job with more than 4 times as much left gets these first.
        ([1, 5], 5, [1, 4]),
        ([1, 3], 5, [2, 2]),  # Two further slots for the second would pay, but only one is left.
        ([1, 3], 6, [2, 4]),
        ([], 8, []),
    ],
)
def test_slots_are_divided_by_what_a_further_one_saves(weights: list[float], slots: int, sizes: list[int]) -> None:
    assert Scaling(PROFILE, 0.75).divide(weights, slots) == sizes


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (4, r"elastic: found 4; it must be a mapping, which may have profile, efficiency, pause, most, anew"),
        ({"anew": "yes"}, r"elastic.anew is 'yes'; it may be true where there is no profile"),
        ({"anew": True, "profile": PROFILE}, r"elastic.anew is True; it may be true where there is no profile"),
        ({"most": 0}, r"elastic.most is 0; it must be a whole number of at least 1"),
        (
            {"profile": PROFILE, "kappa": 4},
            r"elastic has no option kappa; it may have profile, efficiency, pause, most, anew",
        ),
        ({"profile": {}}, r"elastic.profile is {}; it must be seconds by number of slots"),
        ({"profile": [8.0]}, r"elastic.profile is \[8.0\]; it must be seconds"),
        ({"profile": {0: 1.0}}, r"elastic.profile has 0: 1.0; it must be a number of slots"),
        ({"profile": {1: 0.0}}, r"elastic.profile has 1: 0.0;"),
        ({"profile": {1: 1.0, "1": 2.0}}, r"elastic.profile has '1': 2.0; .*each once"),
        ({"profile": PROFILE, "efficiency": 0}, r"elastic.efficiency is 0; it must be a number above 0, up to 1"),
        ({"profile": PROFILE, "pause": -1}, r"elastic.pause is -1; it must be a number of seconds of at least 0"),
        ({"profile": PROFILE, "pause": True}, r"elastic.pause is True"),
        ({"most": 10_001}, r"elastic.most is 10001; it must be at most 10000"),
        ({"profile": {2: 4.0, 4: 2.2}, "most": 1}, r"elastic.most is 1; with this profile it must be at least 2"),
        ({1: 8.0, "kappa": 4}, r"elastic has no option 1, kappa; it may have"),
        ({"profile": {10_001: 1.0}}, r"elastic.profile has 10001: 1.0; it must be a number of slots, up to 10000"),
        ({"profile": {"9" * 5000: 1.0}}, r"elastic.profile has '9{29}\.\.\.: 1.0;"),
        ({"profile": {1: 10**400}}, r"elastic.profile has 1: 10{29}\.\.\.;"),
    ],
)
def test_options_that_are_wrong(option: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Elastic(option)


def test_a_profile_may_have_come_as_json_and_is_cut_at_the_most() -> None:
    for option in ({"profile": {"1": 8, "2": 4.4}}, {"profile": PROFILE, "most": 3}):
        cluster = VirtualCluster(DefaultPolicy(elastic=option), slots=8, jobs=1, max_position=3, curve=second)
        cluster.run()
        assert [run[1] for run in gangs(cluster)] == [2]


def test_a_barrier_is_no_place_for_it() -> None:
    with pytest.raises(ValueError, match="elastic is for jobs that train on by themselves; leave it out, or barrier"):
        DefaultPolicy(barrier=True, elastic=FOUR)


# --------------------------------------------------------------------------------------------------------- virtual cluster


def second(hyperparameters: Mapping[str, Any], position: int) -> VirtualStep:
    return VirtualStep({"accuracy": position / 100}, 1.0)


def gangs(cluster: VirtualCluster) -> list[tuple[str, int, float, float, int]]:
    """Return (job, number of slots, start time, end time, last position) of each run, in order of start."""
    return [
        (r.job, len(r.slots), r.began, r.ended, r.position)
        for r in sorted(cluster.runs, key=lambda r: (r.began, r.job))
    ]


def test_few_jobs_share_all_slots_and_many_get_one_each() -> None:
    few = VirtualCluster(DefaultPolicy(elastic=FOUR), slots=8, jobs=2, max_position=3, curve=second)
    few.run()
    assert gangs(few) == [("1", 4, 0, 3, 3), ("2", 4, 0, 3, 3)]
    many = VirtualCluster(DefaultPolicy(elastic=FOUR), slots=3, jobs=6, max_position=3, curve=second)
    many.run()
    assert [run[1] for run in gangs(many)] == [1] * 6


def test_slots_that_come_free_go_to_who_trains_if_it_pays() -> None:
    def slots(pause: float) -> list[tuple[str, int, float, float, int]]:
        cluster = VirtualCluster(
            DefaultPolicy(elastic={"profile": PROFILE, "pause": pause}),
            slots=1,
            jobs=1,
            max_position=20,
            curve=second,
            delays=Delays(start=0.5),
        )
        cluster.at(5.0, cluster.join_slot, "m02")
        cluster.run()
        return gangs(cluster)

    # At 5 s it has reported position 4: 16 units take 57.6 s less on two slots. It changes at its next boundary, 5.5 s.
    assert slots(57.0) == [("1", 1, 0, 5.5, 5), ("1", 2, 5.5, 21.0, 20)]
    assert slots(58.0) == [("1", 1, 0, 20.5, 20)]


def test_jobs_make_room_for_each_other_when_the_share_becomes_smaller() -> None:
    cluster = VirtualCluster(DefaultPolicy(elastic=FOUR), slots=8, jobs=2, max_position=6, curve=second, grace=100)
    cluster.at(2.5, cluster.set_share, 5)
    cluster.run(until=3.5)
    # One and four would use all slots, but save less time.
    assert [len(job.slots) for job in cluster.jobs.values()] == [2, 2]
    cluster.set_share(2)
    cluster.run()
    assert {len(run.slots) for run in cluster.runs if run.began >= 4} == {1}
    assert {job.state for job in cluster.jobs.values()} == {JobState.COMPLETED}


def test_a_gang_has_at_least_the_slots_of_the_smallest_profile() -> None:
    policy = DefaultPolicy(elastic={"profile": {2: 4.0, 4: 2.2}})
    cluster = VirtualCluster(policy, slots=5, jobs=3, max_position=2, curve=second)
    cluster.run()
    assert [run[:3] for run in gangs(cluster)] == [("1", 2, 0), ("2", 2, 0), ("3", 4, 2)]


def test_asha_trains_the_top_of_its_ladder_on_what_the_bottom_needs_no_more() -> None:
    policy = AshaPolicy(eta=2, r=1, brackets=[0], elastic=FOUR)

    def better(given: Mapping[str, Any], position: int) -> VirtualStep:
        return VirtualStep({"accuracy": float(given["x"])}, 1.0)

    cluster = VirtualCluster(policy, slots=4, jobs=4, max_position=4, curve=better)
    cluster.run()
    assert [len(run.slots) for run in cluster.runs if run.began == 0] == [1, 1, 1, 1]
    last = max(cluster.runs, key=lambda run: run.ended)
    assert (len(last.slots), last.position, last.reason) == (4, 4, RunEndReason.UNTIL)


# ------------------------------------------------------------------------------------------------------------- fair shares


class Users(Bench):
    """A test bench with experiments of several users, in which suspended runs leave only when the test calls `leave`."""

    def leave(self) -> None:
        """Let all runs that are to end reach their boundaries, one after the other, each after one further unit."""
        while leaving := [
            (x.id, run) for x in self.core.streams.values() for run in x.live.values() if run.ending is not None
        ]:
            name, run = leaving[0]
            self.now += 1.0
            position = run.start + 1
            saved = snapshot(position, f"{name}.{run.job}.{position}")
            for index in range(len(run.ranks)):
                key = RunKey(name, run.job, run.attempt, index)
                self._say(key, Started(run.start))
                self._say(key, Ended(RunEndReason.SUSPENDED, position, None if index else saved))
                if index == 0:
                    self._say(key, SnapshotStored(position, saved.sha256))


@pytest.mark.parametrize(
    "make",
    [lambda: AshaPolicy(r=16, brackets=[0], elastic=FOUR), lambda: DefaultPolicy(elastic=FOUR)],
    ids=["asha", "default"],
)
def test_the_papers_example_of_fair_shares(make: Any) -> None:
    """Check the example of section 5.3 of the ASHA paper.

    On 32 slots, 8 configurations train on 4 each; then a second user has demand for 64.
    """
    users = Users(32)
    first = users.create("a", make(), jobs=8, max_position=256)
    assert (first.share, first.demand) == (32, 32)
    assert users.running() == [("a", 4)] * 8

    second = users.create("b", make(), jobs=16, max_position=256)
    assert second.demand == 64
    assert (first.share, second.share) == (16, 16)
    assert all(run.ending is RunEndReason.SUSPENDED for run in first.live.values())
    users.leave()
    assert [run for run in users.running() if run[0] == "a"] == [("a", 2)] * 8
    assert sum(ranks for name, ranks in users.running() if name == "b") == 16
    assert {job.attempt for job in first.jobs.values()} == {2}
    assert {job.run.start for job in first.jobs.values() if job.run is not None} == {1}


def test_what_a_paused_experiment_of_a_group_was_to_get_is_for_the_others() -> None:
    users = Users(1)
    x = users.create("a", DefaultPolicy(elastic=FOUR), jobs=1, max_position=256, scales=True)
    users.join("m", 3)
    assert [run.ending for run in x.live.values()] == [RunEndReason.SUSPENDED]
    users.feed(
        ExperimentJoined(users.now, StreamId("a"), ExperimentId("b"), settings(jobs=1, max_position=256, scales=True))
    )
    users.feed(Operated(users.now, StreamId("a"), "pause", experiment=ExperimentId("a")))
    users.leave()
    assert [(run.job, len(run.ranks)) for run in x.live.values()] == [("2", 4)]


# -------------------------------------------------------------------------------------------------------------- simulation


def hours(policy: type[Policy] | str, parameters: Mapping[str, Any]) -> tuple[float, float]:
    """Return the duration of a search and the used part of its 8 slots.

    It has 8 configurations of up to 16 units, of which one runs alone for long.
    """
    lengths = [4, 4, 4, 4, 4, 4, 4, 16]
    workload = CurveWorkload(
        lambda given, position: float(given["x"]), [{"x": x, "of": of} for x, of in enumerate(lengths)], 16, seconds=8.0
    )
    result = simulate(
        workload,
        policy,
        slots=8,
        parameters=parameters,
        costs=Costs(start=1),
        speedup=lambda n: PROFILE[1] / PROFILE[n],
    )
    return result.time, result.utilisation


def test_a_simulated_gang_trains_as_fast_as_is_said() -> None:
    assert hours("default", {}) == (129.0, 1.0)
    time, _ = hours("default", {"elastic": {"profile": {4: 2.6}}})  # Two at a time, four times.
    assert time == pytest.approx(4 * (1 + 16 * 2.6))


# -------------------------------------------------------------------------------------------------------------- measuring


def runs(jobs: int, slots: int, **option: Any) -> list[tuple[str, int, int, str]]:
    """Return (job, number of slots, units, reason) of each run of a search whose jobs train 4 units, in order of start."""
    workload = CurveWorkload(lambda given, position: 0.5, [{"x": x} for x in range(jobs)], 4, seconds=8.0)
    result = simulate(
        workload,
        "default",
        slots=slots,
        parameters={"elastic": {"pause": 1000, **option}},
        costs=Costs(start=1),
        speedup=lambda n: PROFILE[1] / PROFILE[n],
        details=True,
    )
    gangs: dict[tuple[float, str], list[tuple[int, str]]] = {}
    for run in result.runs or ():
        gangs.setdefault((run.start, run.job), []).append((run.trained, run.reason))
    return [(job, len(ranks), max(ranks)[0], ranks[0][1]) for (_, job), ranks in sorted(gangs.items())]


def test_a_job_is_profiled_on_more_and_more_slots_before_it_starts() -> None:
    """Check that profiling ends at eight slots, with an efficiency of 62.5 %, and that four slots are chosen."""
    assert runs(1, 32) == [("1", size, 0, "UNTIL") for size in (1, 2, 4, 8)] + [("1", 4, 4, "UNTIL")]
    assert runs(1, 32, most=2) == [("1", 1, 0, "UNTIL"), ("1", 2, 0, "UNTIL"), ("1", 2, 4, "UNTIL")]
    assert runs(1, 3)[-1] == ("1", 2, 4, "UNTIL")


def test_nothing_is_measured_with_slots_that_others_wait_for() -> None:
    assert runs(3, 3) == [(str(job), 1, 4, "UNTIL") for job in (1, 2, 3)]


def test_a_program_that_cannot_be_profiled_trains_on_one_slot() -> None:
    calls: list[int] = []

    def broken(given: Mapping[str, Any], position: int) -> VirtualStep:
        calls.append(position)
        if len(calls) == 1:
            raise TrainingFailed("there is no profile()")
        return VirtualStep({"accuracy": 0.5}, 1.0)

    cluster = VirtualCluster(DefaultPolicy(elastic={}), slots=4, jobs=1, max_position=3, curve=broken, max_failures=0)
    cluster.run()
    assert [run[1] for run in gangs(cluster)] == [1, 1]
    assert cluster.jobs["1"].state is JobState.COMPLETED


def test_a_profile_that_is_lost_again_and_again_is_given_up() -> None:
    cluster = VirtualCluster(
        DefaultPolicy(elastic={}), slots=4, jobs=1, max_position=3, curve=second, delays=Delays(start=1)
    )
    for moment in (0.5, 1.0, 1.5):
        cluster.at(moment, cluster.lose_run, "1")
    cluster.run()
    assert [(run[1], run[4]) for run in gangs(cluster)] == [(1, 0)] * 3 + [(1, 3)]
