"""Tests of the view of a policy during one up-call, and of the checks of its answers."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import Cluster, Policy
from hopyard.policy.vocabulary import AllocateJobs, CreateJob, StreamId
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import JobHeld, PolicyAnswered, PolicyFailed
from hopyard_engine.policy_host import PolicyHost
from hopyard_policies.default import DefaultPolicy
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


def offered(policy: Policy) -> PolicyAnswered | PolicyFailed:
    """Return the answer to an up-call with two idle slots in an experiment of two jobs."""
    rig = Rig(jobs=2)
    return PolicyHost(policy).answer(rig.stream, UpCall(StreamId("x"), 1, rig.now, 1, AllocateJobs()))


def test_jobs_just_created_are_still_demanded_for() -> None:
    answered = offered(DefaultPolicy())
    assert isinstance(answered, PolicyAnswered)
    assert [type(command) for command in answered.answer.commands] == [CreateJob, CreateJob]
    assert answered.demand == 2, "else the slots are taken away before the jobs are there"


class Creates(Policy):
    """A policy that creates a job in methods that may only read."""

    def confidences(self, cluster: Cluster) -> dict[str, float]:
        cluster.create_job()
        return {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        pass

    def demand(self, cluster: Cluster) -> int:
        cluster.create_job()
        return 1


def test_demand_may_only_look() -> None:
    failed = offered(Creates())
    assert isinstance(failed, PolicyFailed)
    assert "TypeError: demand, gang and nodes must not issue commands, found CreateJob(job='1'" in str(failed.reason)


@pytest.mark.parametrize("found", [True, -1, 1.0])
def test_a_demand_that_is_no_number_of_slots_is_refused(found: object) -> None:
    class Demands(DefaultPolicy):
        def demand(self, cluster: Cluster) -> int:
            return found  # type: ignore[return-value]  # what a policy without types may return

    failed = offered(Demands())
    assert isinstance(failed, PolicyFailed)
    assert f"TypeError: demand must return None or a whole number of slots >= 0, found {found!r}" in str(failed.reason)


def test_confidences_are_asked_for_at_any_time_and_may_only_look() -> None:
    rig = Rig(jobs=2)
    assert PolicyHost(DefaultPolicy()).confidences(rig.stream, rig.now) == {}
    with pytest.raises(InvalidInput, match=r"Creates: confidences must not issue commands, found CreateJob\(job='1'"):
        PolicyHost(Creates()).confidences(rig.stream, rig.now)


class Wants(Policy):
    """A policy that creates jobs in an endless loop."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        while True:
            cluster.create_job()


def test_an_answer_has_a_bounded_number_of_commands() -> None:
    failed = offered(Wants())
    assert isinstance(failed, PolicyFailed)
    assert "CreateJob: this answer may have at most 10000 commands" in str(failed.reason)


class Waits(Policy):
    """A policy that records which jobs wait, before and after it starts the first of them."""

    def __init__(self) -> None:
        self.seen: list[list[bool]] = []

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots()[:1]:
            self._note(cluster)
            cluster.start_job("1", slot.id)
        self._note(cluster)

    def _note(self, cluster: Cluster) -> None:
        self.seen.append([cluster.waits(job) for job in cluster.jobs])
        assert self.seen[-1] == [Cluster.waits(cluster, job) for job in cluster.jobs], "as all idle jobs say"


def test_a_job_waits_until_it_is_started_and_not_while_it_is_paused() -> None:
    rig, policy = Rig(jobs=3), Waits()
    for _ in range(3):
        rig.create()
    rig.feed(JobHeld(rig.now, StreamId("x"), "3", True))
    PolicyHost(policy).answer(rig.stream, UpCall(StreamId("x"), 1, rig.now, 1, AllocateJobs()))
    assert policy.seen == [[True, True, False], [False, True, False]]
