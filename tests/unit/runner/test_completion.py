"""Tests of runs that end at their `until` without a decision."""

from __future__ import annotations

import pytest

from hopyard._runtime.runner.control import EndRun, RunControl, RunPlan, Save, Train, Wait
from hopyard.policy.vocabulary import DecisionKind, RunEndReason

pytestmark = pytest.mark.quick


def trained(control: RunControl, position: int, *, finished: bool = False) -> bool:
    assert isinstance(control.next(), Train)
    control.began()
    return control.reached(position, finished=finished)


def test_it_saves_and_ends_at_its_until_without_a_decision() -> None:
    control = RunControl(RunPlan(until=2, allowed=2, completes=True))
    assert not trained(control, 1)
    assert trained(control, 2)
    assert control.next() == Save()
    assert not control.amend(3, ()).accepted
    # A scheduler may decide nevertheless.
    control.decide(DecisionKind.CONTINUE, 2, 0)
    control.saved()
    assert control.next() == EndRun(RunEndReason.UNTIL, snapshot=True)


def test_it_ends_where_its_trainer_finishes() -> None:
    control = RunControl(RunPlan(until=9, allowed=9, completes=True))
    assert trained(control, 1, finished=True)
    assert control.next() == Save()


def test_it_is_terminated_all_the_same() -> None:
    control = RunControl(RunPlan(until=1, allowed=1, completes=True))
    trained(control, 1)
    control.decide(DecisionKind.TERMINATE, 1, 0)
    assert control.next() == EndRun(RunEndReason.TERMINATED, snapshot=False)


def test_one_whose_until_was_moved_waits_there() -> None:
    control = RunControl(RunPlan(until=5, allowed=9, completes=True))
    assert control.amend(2, ()).accepted
    trained(control, 1)
    assert trained(control, 2)
    assert control.next() == Wait()


def test_one_that_was_only_given_save_points_still_ends_by_itself() -> None:
    control = RunControl(RunPlan(until=1, allowed=1, completes=True))
    assert control.amend(0, (1,)).accepted
    trained(control, 1)
    assert control.next() == Save()
    control.saved()
    assert control.next() == EndRun(RunEndReason.UNTIL, snapshot=True)
