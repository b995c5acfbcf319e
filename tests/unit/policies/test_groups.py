"""Tests of built-in policies on a group with a paused experiment: its jobs get no slot and block no other job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from hopyard.policy import Policy
from hopyard.policy.vocabulary import ExperimentId, JobState, RunEndReason, StreamId
from hopyard_engine.core.events import ExperimentJoined, Operated
from hopyard_engine.core.state.entities import Job
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_policies.halving import AshaPolicy, HyperbandPolicy, ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.pbt import PbtPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy
from hopyard_policies.stage_tree.policy import StageTreePolicy
from tests.unit.policies.searching import Searching

pytestmark = pytest.mark.quick

R = 4


class Group(Searching):
    """An engine core with one policy for experiment x and experiment y of the same group; both train to position 4."""

    def __init__(self, policy: Policy, *, slots: int, x: int, y: int, weight: float = 1.0) -> None:
        terms: dict[str, Any] = {"max_position": R, "space": {"lr": {"uniform": [0, 100]}}}
        super().__init__(policy, capacity=slots, jobs=x, **terms)
        self.feed(
            ExperimentJoined(
                self.now, StreamId("x"), ExperimentId("y"), replace(self.stream.settings, jobs=y, weight=weight)
            )
        )
        self.go_on()

    def act(self, action: Literal["pause", "resume", "stop"], member: str) -> None:
        """Apply a user's action to an experiment, and suspend the runs that it ends."""
        self.feed(Operated(self.now, StreamId("x"), action, ExperimentId(member)))
        for run in list(self.stream.live.values()):
            if run.ending is not None:
                self.ended(RunEndReason.SUSPENDED, run.position, name=run.job)
        self.go_on()

    def of_member(self, member: str, *states: JobState) -> list[Job]:
        """Return the jobs of an experiment that are in one of the states."""
        return [job for job in self.stream.jobs.values() if job.experiment.id == member and job.state in states]


MAKERS: list[Callable[[], Policy]] = [
    DefaultPolicy,
    lambda: DefaultPolicy(barrier=True),
    BanditPolicy,
    EarlyTermPolicy,
    MedianPolicy,
    PopPolicy,
    PopPlusPolicy,
    lambda: AshaPolicy(eta=2),
    lambda: ShaPolicy(eta=2),
    lambda: HyperbandPolicy(eta=2),
    lambda: PbtPolicy(population=2, interval=2),
    StageTreePolicy,
    lambda: StageTreePolicy(tuner={"name": "asha", "eta": 2}),
    lambda: StageTreePolicy(tuner={"name": "sha", "eta": 2}),
]
NAMES = [
    *("default", "barrier", "bandit", "earlyterm", "median", "pop", "pop_plus", "asha", "sha", "hyperband", "pbt"),
    *("stage_tree", "stage_tree+asha", "stage_tree+sha"),
]


@pytest.mark.parametrize("make", MAKERS, ids=NAMES)
def test_no_slot_is_wanted_for_what_is_paused(make: Callable[[], Policy]) -> None:
    rig = Group(make(), slots=2, x=1, y=6)
    assert len(rig.of_member("x", JobState.RUNNING)) == len(rig.of_member("y", JobState.RUNNING)) == 1
    before = rig.stream.demand
    assert before is not None
    assert before > 2
    rig.act("pause", "y")
    assert len(rig.of_member("y", JobState.PENDING)) > 0
    assert rig.stream.demand == 1
    assert len(rig.stream.slots) == 1, "the other one is for others"
    rig.act("resume", "y")
    assert rig.stream.demand == before
    assert len(rig.of_member("y", JobState.RUNNING)) == 1


@pytest.mark.parametrize("make", MAKERS, ids=NAMES)
def test_the_slots_of_what_is_paused_are_for_the_others(make: Callable[[], Policy]) -> None:
    """Check with an experiment y that has nearly all jobs created ahead when it is paused."""
    rig = Group(make(), slots=4, x=4, y=40, weight=10.0)
    rig.act("pause", "y")
    assert len(rig.of_member("x", JobState.RUNNING)) == 4
    assert rig.stream.conversation.refusal is None, "nobody tries to start what is paused"


def test_nobody_of_what_is_paused_is_promoted() -> None:
    """Check with job 2 of experiment y, which becomes promotable while y is paused, and is promoted when y resumes.

    Job 4 also belongs to y.
    """
    rig = Group(AshaPolicy(eta=2, brackets=[0]), slots=2, x=1, y=3)
    rig.report(1, 0.9, "2", at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, name="2")
    rig.go_on()
    assert rig.job("3").state is JobState.RUNNING
    rig.feed(Operated(rig.now, StreamId("x"), "pause", ExperimentId("y")))
    rig.report(1, 0.1, "3", at_until=True)
    rig.ended(RunEndReason.SUSPENDED, 1, name="3")
    assert rig.stream.demand == 1
    assert rig.stream.conversation.refusal is None
    rig.act("resume", "y")
    assert rig.job("2").attempt == 2
    assert rig.run("2").until == 2
