"""Test that a cached view of a job always equals a new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy import CurvePoint
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    ForkJob,
    LabelJob,
    Report,
    RunEndReason,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.events import Operated, Updated
from hopyard_engine.core.state.curve import LearningCurve
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host.view import JobViews, job_view
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def _curve(stream: Stream, job: Job) -> list[CurvePoint]:
    return [CurvePoint(entry.position, entry.metrics, entry.seconds) for entry in stream.curve(job)]


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
            assert views.curve(rig.stream, job) == _curve(rig.stream, job), f"after step {number}"
    assert all(job.state.ended for job in rig.stream.jobs.values())


def test_a_report_adds_a_point_to_the_kept_curve_of_a_live_job(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, views = Rig(), JobViews()
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    views.look(rig.stream)
    first = views.curve(rig.stream, rig.stream.jobs["1"])
    rig.report(2)
    rig.report(3)
    views.look(rig.stream)
    expected = _curve(rig.stream, rig.stream.jobs["1"])
    monkeypatch.delattr(Stream, "curve")
    monkeypatch.delattr(LearningCurve, "upto")
    found = views.curve(rig.stream, rig.stream.jobs["1"])
    assert found == expected
    assert found[0] is first[0]
    found.clear()  # a policy may change its list
    assert views.curve(rig.stream, rig.stream.jobs["1"]) == expected


def test_the_parts_of_an_evaluation_change_a_kept_point() -> None:
    rig, views = Rig(), JobViews()
    rig.create()
    rig.start("1", "n1/0")
    job = rig.stream.jobs["1"]
    rig.report(1)
    for part, value in (("p1", 0.2), ("p2", 0.8), ("p3", 0.5)):
        job.curve.add(Report(2, {"acc": value}, 1.0, part=part, examples=10), parts=2)
        views.look(rig.stream)
        assert views.curve(rig.stream, job) == _curve(rig.stream, job), part
