"""Tests of parameters that request very many jobs: jobs are created in small numbers, and no parameter blocks the scheduler."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy import Policy
from hopyard.policy.vocabulary import CreateJob, StreamId
from hopyard.space import Space
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Answered, PolicyAnswered
from hopyard_engine.policy_host import PolicyHost
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.base.job_creation import AT_ONCE
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_policies.halving import AshaPolicy, AsyncHyperbandPolicy, BohbPolicy, HyperbandPolicy, ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.pbt import PbtPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick

SPACE = Space.from_dict({"x": {"uniform": [0, 1]}})
AHEAD = [
    DefaultPolicy,
    MedianPolicy,
    BanditPolicy,
    EarlyTermPolicy,
    PopPolicy,
    PopPlusPolicy,
    AshaPolicy,
    AsyncHyperbandPolicy,
    ShaPolicy,
    HyperbandPolicy,
    BohbPolicy,
]


class Asked(Rig):
    """An engine core whose up-calls are answered by the given policy."""

    def __init__(self, policy: Policy) -> None:
        self.host = PolicyHost(policy)
        super().__init__(jobs=20_000, max_position=256, space=SPACE.to_dict())

    def answer(self, call: UpCall) -> PolicyAnswered:
        answered = self.host.answer(self.stream, call)
        assert isinstance(answered, PolicyAnswered), answered
        created = sum(isinstance(command, CreateJob) for command in answered.answer.commands)
        assert created <= AT_ONCE
        return answered


@pytest.mark.parametrize("policy", AHEAD)
def test_jobs_ahead_are_asked_for_a_few_at_a_time(policy: Callable[..., Policy]) -> None:
    rig = Asked(policy(ahead=10_000))
    assert len(rig.stream.asks) == AT_ONCE


@pytest.mark.parametrize("policy", AHEAD)
def test_ahead_has_a_bound(policy: Callable[..., Policy]) -> None:
    with pytest.raises(ValueError, match=r"^ahead is 1000000000; it must be at most 10000$"):
        policy(ahead=1_000_000_000)


@pytest.mark.merge
def test_a_large_population_is_created_as_slots_take_its_members() -> None:
    rig = Asked(PbtPolicy(population=600))
    assert len(rig.stream.asks) == AT_ONCE
    while rig.stream.asks:
        rig.feed(Answered(rig.now, StreamId("x"), next(iter(rig.stream.asks)), {"x": 0.5}))
    # Two slots have started two, and two more may be created at the next allocation.
    assert AT_ONCE <= len(rig.stream.jobs) <= AT_ONCE + 2
    assert len(rig.stream.live) == 2


def test_a_population_has_a_bound() -> None:
    with pytest.raises(ValueError, match=r"^population is 100000; it must be at most 10000$"):
        PbtPolicy(population=100_000)


@pytest.mark.parametrize("policy", [AshaPolicy, AsyncHyperbandPolicy, ShaPolicy, HyperbandPolicy, BohbPolicy])
def test_rungs_have_a_bound(policy: Callable[..., Policy]) -> None:
    with pytest.raises(ValueError, match=r"^rungs is 1000000000000; it must be at most 64$"):
        policy(rungs=10**12)
    policy(rungs=64)
