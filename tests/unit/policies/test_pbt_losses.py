"""Tests of population based training after the loss of snapshots, on the engine core."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import JobState, RunEndReason, StreamId
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Answered, PolicyAnswered, Started
from hopyard_engine.policy_host.host import PolicyHost
from hopyard_policies.pbt import PbtPolicy
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


class Live(Rig):
    """An engine core with a population of four, each member on its own node; the better two are forked."""

    def __init__(self) -> None:
        self._host = PolicyHost(PbtPolicy(population=4, interval=2, resample=0, truncation=0.5))
        quiet = {"every_iteration": False, "ends_jobs": False, "statistics": False}
        super().__init__(capacity=1, jobs=4, space={"lr": {"uniform": [0, 100]}}, **quiet)
        for node in ("n2", "n3", "n4"):
            self.join(node)
        for number in range(1, 5):
            self.feed(Answered(self.now, StreamId("x"), f"create/{number}", {"lr": float(number)}))
        for number in range(1, 5):
            self.say(self.key(str(number)), Started(0))

    def answer(self, call: UpCall) -> PolicyAnswered:
        answered = self._host.answer(self.stream, call)
        assert isinstance(answered, PolicyAnswered), answered
        return answered

    def passes(self, name: str, score: float) -> None:
        """Let a member reach its first boundary, save, and continue in a second run."""
        self.report(2, score, name, at_until=True)
        self.ended(RunEndReason.UNTIL, 2, snapshot(2, f"of{name}"), name)
        assert self.job(name).attempt == 2


def test_a_copy_whose_parents_snapshot_is_lost_before_it_starts_is_made_once_more_from_another() -> None:
    rig = Live()
    for name, score in (("3", 0.3), ("1", 0.9), ("2", 0.8)):
        rig.passes(name, score)
    rig.report(2, 0.1, "4", at_until=True)
    first = rig.job("5")
    assert (rig.job("4").state, first.state) == (JobState.SUSPENDING, JobState.PENDING)
    assert first.origin is not None
    parent, other = first.origin[0], {"1": "2", "2": "1"}[first.origin[0]]
    rig.expire(rig.run(parent).ranks[0].node)
    assert (first.state, str(first.reason)) == (
        JobState.FAILED,
        "the snapshot it was forked from was lost before it was stored",
    )
    assert rig.job("6").origin == (other, 2)
    # The next free slot goes to the job with the least progress.
    rig.ended(RunEndReason.TERMINATED, 2, None, "4")
    assert (rig.job(parent).state, rig.job("6").state) == (JobState.STARTING, JobState.PENDING)


def test_when_no_snapshot_of_a_better_one_is_left_the_population_is_smaller() -> None:
    rig = Live()
    for name, score in (("3", 0.3), ("1", 0.9), ("2", 0.8)):
        rig.passes(name, score)
    rig.report(2, 0.1, "4", at_until=True)
    for name in ("1", "2"):
        rig.expire(rig.run(name).ranks[0].node)
    copies = [job for job in rig.stream.jobs.values() if job.forked]
    assert {job.state for job in copies} == {JobState.FAILED}
    # The two restart from position 0, and the third does not wait for them.
    assert [rig.job(name).position for name in ("1", "2", "3")] == [0, 0, 2]
    assert rig.job("3").state is JobState.STARTING
