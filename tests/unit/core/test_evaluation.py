"""Tests of jobs that their policy evaluates at their end: they wait for it, and complete with their own results."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import AnswerJob, JobState, RunEndReason, RunMode
from hopyard_engine.core.effects import UpCall
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def trained(*, evaluates: bool = True, position: int = 2) -> Rig:
    """Return a core with a job of two positions that has trained to one of them and saved."""
    rig = Rig(max_position=2, evaluates=evaluates)
    rig.create()
    rig.start("1", "n1/0", until=position)
    for each in range(1, position + 1):
        rig.report(each, at_until=each == position)
    rig.ended(RunEndReason.UNTIL, position, snapshot(position))
    rig.stored(position, attempt=1)
    return rig


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_job_that_has_trained_to_its_end_waits_only_for_a_policy_that_evaluates(evaluates: bool) -> None:
    job = trained(evaluates=evaluates).job()
    assert job.state is (JobState.SUSPENDED if evaluates else JobState.COMPLETED)
    assert job.position == 2


def test_it_is_evaluated_by_parts_and_then_completed_with_its_own_results() -> None:
    rig = trained()
    rig.start("1", "n1/0", mode=RunMode.EVALUATE, inputs={"n1/0": "eval/0"})
    rig.report(2, 0.75, part="eval/0", examples=10, at_until=True)
    rig.ended(RunEndReason.UNTIL, 2)
    assert rig.job().state is JobState.SUSPENDED
    assert rig.job().curve.points[2].metrics == {"score": 0.75}
    rig.command(AnswerJob("1", "1", 2))
    assert (rig.job().state, rig.job().position, rig.job().origin) == (JobState.COMPLETED, 2, None)


def test_an_evaluation_that_is_lost_leaves_the_job_waiting() -> None:
    rig = trained()
    rig.start("1", "n1/0", mode=RunMode.EVALUATE, inputs={"n1/0": "eval/0"})
    rig.ended(RunEndReason.LOST, 2)
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 2)


@pytest.mark.parametrize(("evaluates", "position"), [(True, 1), (False, 1)])
def test_nothing_else_is_completed_with_its_own_results(evaluates: bool, position: int) -> None:
    rig = trained(evaluates=evaluates, position=position)
    rig.command(AnswerJob("1", "1", position))
    assert rig.job().state is JobState.SUSPENDED
    refused = [str(verdict.reason) for call in rig.of(UpCall) for verdict in call.verdicts]
    assert refused == ["job '1' cannot be answered from itself"]
