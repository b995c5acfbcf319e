"""Test of the jobs' rows in the search plan: which jobs have one, and their paths."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import AnswerJob, ForkJob, RunEndReason
from hopyard_scheduler.search_plan.projection import PlanRows
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def test_a_copy_stands_nowhere_since_it_was_trained_with_two_configurations() -> None:
    rig = Rig(max_position=4, jobs=3, plan="root")
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2,))
    rig.taken(2)
    rig.stored(2)
    rig.command(ForkJob("2", "1", 2, {"lr": 0.3}))
    rig.report(4, 0.5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    rows = PlanRows()
    first = rows.row(rig.stream, rig.job("1"))
    assert first is not None
    assert [(one.start, one.end) for one in first.plan_trial.path] == [(0, 4)]
    assert [one.position for one in first.plan_trial.snapshots] == [2]
    assert rows.row(rig.stream, rig.job("1")) is None
    assert rows.row(rig.stream, rig.job("2")) is None
    rig.command(AnswerJob("2", "1", 4))
    assert rows.row(rig.stream, rig.job("2")) is None
