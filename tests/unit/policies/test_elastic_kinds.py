"""Tests of elastic jobs on several kinds of hosts, with profiles of earlier experiments, and with a limit of running jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy import Policy
from hopyard.policy.testing import VirtualCluster
from hopyard.policy.vocabulary import JobState, RunEndReason, RunMode, StreamId
from hopyard_engine.core.events import Updated
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.halving import AshaPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy
from tests.unit.policies.test_elastic import FOUR, PROFILE, Users, second

pytestmark = pytest.mark.quick

EPYC = {f"m{number:02}": "EPYC" for number in range(1, 33)}


def ran(cluster: VirtualCluster) -> list[tuple[str, bool, str]]:
    """Run the cluster and return (job, whether the run is a profile, kinds of its slots by rank) of each run, in order of start."""
    cluster.run()
    return [
        (
            run.job,
            run.mode is RunMode.PROFILE,
            " ".join(cluster.slots[slot].hardware for slot in run.slots),
        )
        for run in sorted(cluster.runs, key=lambda run: (run.began, run.job))
    ]


def one_job(elastic: Mapping[str, Any], scaling: Mapping[str, Mapping[int, float]]) -> list[tuple[int, bool]]:
    """Return (number of slots, whether it is a profile) of each run of one job; a unit takes 1 s on any number of slots."""
    policy = DefaultPolicy(elastic={"pause": 0, **elastic})
    cluster = VirtualCluster(
        policy, slots=8, jobs=1, max_position=3, curve=second, hardware=EPYC, scaling=scaling, watch=True
    )
    return [(len(kinds.split()), profiled) for _, profiled, kinds in ran(cluster)]


# ------------------------------------------------------------------------------------------------------- measured earlier


def test_what_an_earlier_experiment_measured_is_not_measured_again() -> None:
    assert one_job({}, {"EPYC": PROFILE}) == [(4, False)]
    assert one_job({"most": 2}, {"EPYC": PROFILE}) == [(2, False)]


@pytest.mark.parametrize("make", [AshaPolicy, PopPolicy, PopPlusPolicy])
def test_all_policies_with_elastic_jobs_go_by_it(make: Any) -> None:
    policy: Policy = make(elastic={"pause": 0})
    cluster = VirtualCluster(
        policy, slots=8, jobs=1, max_position=4, curve=second, hardware=EPYC, scaling={"EPYC": PROFILE}
    )
    assert {(profiled, len(kinds.split())) for _, profiled, kinds in ran(cluster)} == {(False, 4)}
    assert policy.scales
    assert not make().scales


def test_it_is_measured_on_from_where_the_earlier_one_ended() -> None:
    assert one_job({"most": 4}, {"EPYC": {1: 8.0, 2: 4.4}}) == [(4, True), (4, False)]


def test_an_efficiency_of_its_own_decides_whether_more_are_tried() -> None:
    """Check with an earlier profile, in which four slots have an efficiency of 77 % and eight slots one of 62.5 %."""
    assert one_job({"efficiency": 0.9}, {"EPYC": {1: 8.0, 2: 4.4, 4: 2.6}}) == [(2, False)]
    assert one_job({"efficiency": 0.6, "most": 16}, {"EPYC": PROFILE}) == [(8, False)]


@pytest.mark.parametrize(
    ("elastic", "scaling"),
    [
        ({"most": 2}, {"Xeon": PROFILE}),  # A profile of another kind of host.
        ({"most": 2, "anew": True}, {"EPYC": PROFILE}),
        ({"most": 2}, {"EPYC": {2: 4.4}}),  # No second size to compare with.
    ],
)
def test_what_does_not_hold_here_is_measured(
    elastic: Mapping[str, Any], scaling: Mapping[str, Mapping[int, float]]
) -> None:
    assert one_job(elastic, scaling) == [(1, True), (2, True), (1, False)]


def test_a_given_profile_goes_before_all_that_was_measured() -> None:
    assert one_job({"profile": {1: 8.0, 2: 4.4}}, {"EPYC": PROFILE}) == [(2, False)]


# ------------------------------------------------------------------------------------------------------------ mixed hosts


def hosts(**kinds: int) -> dict[str, str]:
    """Return the kind of each slot, with the given number of slots of each kind, in order."""
    names = [kind for kind, count in kinds.items() for _ in range(count)]
    return {f"m{number:02}": kind for number, kind in enumerate(names, 1)}


def test_each_kind_has_its_own_profile() -> None:
    hardware = hosts(EPYC=4, Xeon=4)
    policy = DefaultPolicy(elastic={"pause": 0})
    scaling = {"EPYC": PROFILE, "Xeon": {1: 8.0, 2: 8.5}}
    cluster = VirtualCluster(policy, slots=8, jobs=2, max_position=3, curve=second, hardware=hardware, scaling=scaling)
    assert ran(cluster) == [("1", False, "EPYC EPYC EPYC EPYC"), ("2", False, "Xeon")]


def test_each_kind_is_measured_for_itself() -> None:
    policy = DefaultPolicy(elastic={"pause": 1000})
    cluster = VirtualCluster(policy, slots=4, jobs=1, max_position=3, curve=second, hardware=hosts(EPYC=2, Xeon=2))
    profiled = [kinds for _, measures, kinds in ran(cluster) if measures]
    assert profiled == ["EPYC", "EPYC EPYC", "Xeon", "Xeon Xeon"]


def test_the_smallest_gang_is_of_several_kinds_where_none_has_slots_enough() -> None:
    policy = DefaultPolicy(elastic={"profile": {2: 4.0}})
    cluster = VirtualCluster(policy, slots=2, jobs=1, max_position=3, curve=second, hardware=hosts(EPYC=1, Xeon=1))
    assert ran(cluster) == [("1", False, "EPYC Xeon")]


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(
    epyc=st.integers(0, 5),
    xeon=st.integers(0, 5),
    jobs=st.integers(1, 6),
    known=st.booleans(),
    make=st.sampled_from([DefaultPolicy, AshaPolicy, PopPolicy, PopPlusPolicy]),
    share=st.integers(1, 4),
)
def test_gangs_are_of_one_kind_and_all_jobs_come_to_their_ends(
    epyc: int, xeon: int, jobs: int, known: bool, make: Any, share: int
) -> None:
    slots = max(epyc + xeon, 1)
    scaling = {"EPYC": PROFILE} if known else {}
    policy: Policy = make(elastic={"pause": 0, "most": 4})
    hardware = hosts(EPYC=epyc, Xeon=xeon)
    cluster = VirtualCluster(
        policy, slots=slots, jobs=jobs, max_position=3, curve=second, hardware=hardware, scaling=scaling
    )
    cluster.at(1.5, cluster.set_share, share)
    assert all(len(set(kinds.split())) <= 1 for _, _, kinds in ran(cluster))
    assert all(not job.state.live for job in cluster.jobs.values())


# -------------------------------------------------------------------------------------------------------- a limit of jobs


@pytest.mark.parametrize(
    "make",
    [lambda: DefaultPolicy(elastic=FOUR), lambda: AshaPolicy(r=16, brackets=[0], elastic=FOUR)],
    ids=["default", "asha"],
)
def test_a_limit_of_jobs_is_none_of_slots(make: Any) -> None:
    users = Users(32)
    x = users.create("a", make(), jobs=8, max_position=16, concurrency=2, scales=True)
    assert (x.share, x.demand) == (8, 8)
    assert users.running() == [("a", 4)] * 2
    users.finish_one()
    assert users.running() == [("a", 4)] * 2


def test_who_trains_gets_what_nobody_else_may_use() -> None:
    """Check with a limit of two running jobs: later slots go to these two."""
    users = Users(2)
    policy = DefaultPolicy(elastic=FOUR)
    x = users.create("a", policy, jobs=8, max_position=256, concurrency=2, scales=True)
    assert users.running() == [("a", 1)] * 2
    users.join("m", 4)
    assert [run.ending for run in x.live.values()] == [RunEndReason.SUSPENDED] * 2
    users.leave()
    assert sorted(users.running()) == [("a", 2), ("a", 4)]
    assert {job.attempt for job in x.jobs.values() if job.run is not None} == {2}


def test_a_limit_that_changes_moves_jobs_and_slots() -> None:
    users = Users(8)
    policy = DefaultPolicy(elastic=FOUR)
    x = users.create("a", policy, jobs=8, max_position=256, scales=True)
    assert users.running() == [("a", 1)] * 8
    users.feed(Updated(users.now, StreamId("a"), "fewer", concurrency=2))
    assert [run.job for run in x.live.values() if run.ending is None] == ["1", "2"]
    users.leave()
    users.leave()  # The two running jobs get the slots that the others released.
    assert users.running() == [("a", 4)] * 2
    assert [name for name, job in x.jobs.items() if job.state is JobState.RUNNING or job.run] == ["1", "2"]
    users.feed(Updated(users.now, StreamId("a"), "more", cleared=("concurrency",)))
    users.finish_one()
    assert users.running() == [("a", 1)] * 4 + [("a", 4)]
