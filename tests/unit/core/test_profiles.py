"""Tests of profile runs, which measure the time of an iteration: the policy gets it, nothing is recorded, and the job is unchanged."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ApplicationStat, ExperimentId, JobState, Report, RunEnd, RunEndReason, RunMode
from hopyard_engine.core.effects import Decide, Profiled, ReportAccepted, Send, Start
from hopyard_engine.core.events import Reports
from hopyard_engine.core.types import Measured
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick

TOLD = Report(0, {"seconds": 2.5}, 0.1, "p", 1, at_until=True)


@pytest.fixture
def rig() -> Rig:
    """A core with a job whose profile run starts before it has trained."""
    rig = Rig(max_failures=0, max_losses=0)
    rig.create()
    rig.start("1", "n1/0", mode=RunMode.PROFILE, inputs={"n1/0": "p"})
    return rig


def test_a_job_without_a_snapshot_can_be_profiled() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", "n1/0", mode=RunMode.PROFILE)
    assert rig.job().state is JobState.RUNNING
    assert str(rig.job().reason) == "profiling"


def test_what_it_tells_goes_to_the_policy_and_nowhere_else(rig: Rig) -> None:
    effects = rig.say(rig.key(), Reports((TOLD,)))
    assert rig.called(ApplicationStat) == [ApplicationStat("1", TOLD, "p", RunMode.PROFILE)]
    assert rig.sent(Decide) != []
    assert not [effect for effect in effects if isinstance(effect, ReportAccepted)]
    rig.ended(RunEndReason.UNTIL, 0)
    job = rig.job()
    assert (job.state, job.position, job.high_water, job.curve.points, job.seconds) == (JobState.PENDING, 0, 0, {}, 0.0)
    assert rig.called(RunEnd)[-1].mode is RunMode.PROFILE
    effects = rig.start("1", "n1/0")
    assert [e.body.mode for e in effects if isinstance(e, Send) and isinstance(e.body, Start)] == [RunMode.TRAIN]


@pytest.mark.parametrize("reason", [RunEndReason.FAILED, RunEndReason.LOST])
def test_a_profile_that_fails_or_is_lost_costs_the_job_nothing(rig: Rig, reason: RunEndReason) -> None:
    rig.ended(reason, 0)
    job = rig.job()
    assert (job.state, job.failures, job.losses, job.setbacks) == (JobState.PENDING, 0, 0, 0)
    rig.start("1", "n1/1")
    assert rig.job().state is JobState.RUNNING


def test_a_trained_job_stays_where_it_is() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", "n1/0", until=2)
    rig.report(2, at_until=True)
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2))
    rig.start("1", "n1/0", mode=RunMode.PROFILE)
    rig.say(rig.key(), Reports((Report(2, {"seconds": 1.0}, at_until=True),)))
    rig.ended(RunEndReason.UNTIL, 2)
    assert (rig.job().position, rig.job().state) == (2, JobState.SUSPENDED)
    assert rig.stream.snapshots.newest("1") is not None


def test_the_end_of_the_experiment_lets_it_end(rig: Rig) -> None:
    rig.say(rig.key(), Reports((TOLD,)))
    rig.expire("n1")
    assert rig.job().state is JobState.PENDING
    assert rig.called(RunEnd)[-1].reason is RunEndReason.LOST


def profiled(rig: Rig, *slots: str, seconds: float = 2.5) -> list[Profiled]:
    """Profile a job on these slots, and return the scaling profile that is recorded."""
    rig.create()
    rig.start("1", *slots, mode=RunMode.PROFILE)
    rig.say(rig.key(), Reports((Report(0, {"seconds": seconds}, at_until=True),)))
    return rig.of(Profiled)


def test_a_profile_on_hosts_of_one_kind_is_kept_for_later_experiments() -> None:
    rig = Rig(hardware="EPYC", training="t")
    assert profiled(rig, "n1/0", "n1/1") == [Profiled(ExperimentId("x"), "1", "t", Measured("EPYC", 2, 2.5))]


@pytest.mark.parametrize(
    ("training", "kinds", "seconds"),
    [
        ("", ("EPYC", "EPYC"), 2.5),  # It is unknown which training it was measured for,
        ("t", ("", ""), 2.5),  # or on which hardware.
        ("t", ("EPYC", "Xeon"), 2.5),
        ("t", ("EPYC", "EPYC"), float("nan")),
        ("t", ("EPYC", "EPYC"), 0.0),
    ],
)
def test_what_holds_for_no_other_is_kept_for_none(training: str, kinds: tuple[str, str], seconds: float) -> None:
    rig = Rig(capacity=1, hardware=kinds[0], training=training)
    rig.hardware = kinds[1]
    rig.join("n2")
    assert profiled(rig, "n1/0", "n2/0", seconds=seconds) == []
