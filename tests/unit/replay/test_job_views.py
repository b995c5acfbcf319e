"""Test that a cached view of a job always equals a new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy.vocabulary import AmendRun, AnswerJob, ForkJob, LabelJob, RunEndReason, StreamId, TerminateJob
from hopyard_engine.core.events import Operated, Updated
from hopyard_engine.policy_host.view import JobViews, job_view
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def test_a_kept_view_is_what_a_fresh_one_would_be() -> None:
    rig, views = Rig(capacity=2), JobViews()
    steps: list[Callable[[], object]] = [
        rig.create,
        rig.create,
        lambda: rig.start("1", "n1/0", until=4),
        lambda: rig.report(1),
        lambda: rig.command(LabelJob("1", 2.0), LabelJob("2", 1.0)),
        lambda: rig.taken(1),
        lambda: rig.report(4, at_until=True),
        lambda: rig.command(AmendRun("1", "t", until=6)),
        lambda: rig.ended(RunEndReason.UNTIL, 4, snapshot(4)),
        lambda: rig.command(ForkJob("3", "1", 4, {"lr": 0.7})),
        lambda: rig.command(AnswerJob("2", "1", 4)),
        lambda: rig.start("3", "n1/1"),
        lambda: rig.report(10, 0.9, "3", at_until=True, finished=True),
        lambda: rig.ended(RunEndReason.UNTIL, 10, snapshot(10), "3"),
        lambda: rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=20)),
        lambda: rig.start("3", "n1/1"),
        lambda: rig.expire("n1"),
        lambda: rig.join("n2", 2),
        lambda: rig.command(TerminateJob("1")),
        lambda: rig.feed(Operated(rig.now, StreamId("x"), "stop")),
    ]
    for number, step in enumerate(steps):
        step()
        views.look(rig.stream)
        for job in rig.stream.jobs.values():
            assert views.of(job) == job_view(job), f"after step {number}"
            assert views.of(job) is views.of(job)
            assert views.saved(rig.stream, job.id) == rig.stream.snapshots.positions(job.id), f"after step {number}"
    assert all(job.state.ended for job in rig.stream.jobs.values())
