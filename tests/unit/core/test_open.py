"""Tests of experiments that stay open for client requests while no job is open."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AnswerJob,
    ExperimentId,
    ExperimentState,
    JobState,
    RequestMade,
    RunEndReason,
    StreamId,
)
from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import SetTimer
from hopyard_engine.core.events import Operated, Requested, StreamEvent, TimerElapsed, Updated
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_scheduler.experiments.id_translation import renamed
from hopyard_scheduler.runtime.recovery import RecoveryResult
from tests.unit.core.rig import Rig
from tests.unit.core.test_job_limits import Serving

pytestmark = pytest.mark.quick

TIMER = "core/idle/x"


def study(slots: int = 2) -> Rig:
    """Return a study: an experiment without its own jobs, open for requests for 60 idle seconds."""
    rig = Serving(capacity=slots, requests=True, jobs=0, idle=60.0)
    rig.demand = lambda: sum(not job.state.ended for job in rig.stream.jobs.values())
    return rig


def ask(rig: Rig, ticket: str = "a", position: int = 2) -> None:
    rig.feed(Requested(rig.now, StreamId("x"), ticket, {"lr": 0.5}, position))


def elapse(rig: Rig, seconds: float) -> None:
    rig.now += seconds
    rig.feed(TimerElapsed(rig.now, StreamId("x"), TIMER))


def test_it_waits_for_its_idle_time_and_ends() -> None:
    rig = study()
    assert rig.stream.timers[TIMER] == rig.now + 60
    waiting = WaitingReasons(rig.stream, rig.core.cluster, rig.now + 10)
    assert str(waiting.experiment(rig.stream.founder)) == "is open for requests: ends in 50 s without a request"
    elapse(rig, 59)
    assert rig.stream.state is ExperimentState.RUNNING
    elapse(rig, 1)
    assert (str(rig.stream.state), str(rig.stream.founder.reason)) == (
        "ExperimentState.COMPLETED",
        "it got no request for 60 s",
    )


def test_what_is_asked_stops_the_time_until_it_is_done() -> None:
    rig = study(slots=1)
    ask(rig)
    assert SetTimer(StreamId("x"), TIMER, None) in rig.effects
    rig.start("1", "n1/0")
    elapse(rig, 100)  # A late timer changes nothing.
    assert rig.stream.state is ExperimentState.RUNNING
    rig.report(2, at_until=True)
    rig.now += 5
    rig.ended(RunEndReason.UNTIL, 2)
    assert rig.job().state is JobState.COMPLETED
    assert rig.stream.timers[TIMER] == rig.now + 60
    assert not rig.stream.claim  # It has no slot meanwhile.
    elapse(rig, 60)
    assert rig.stream.state.ended


def test_whoever_keeps_it_open_lets_its_time_begin_anew() -> None:
    rig = study()
    rig.now += 40
    rig.feed(Operated(rig.now, StreamId("x"), "keep"))
    assert rig.stream.timers[TIMER] == rig.now + 60
    elapse(rig, 30)
    assert rig.stream.state is ExperimentState.RUNNING
    ask(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "keep"))  # It has an open job.
    assert TIMER not in rig.stream.timers


def test_answers_without_a_run_and_pauses_let_it_wait_likewise() -> None:
    rig = study(slots=1)
    ask(rig)
    rig.start("1", "n1/0")
    rig.report(2, at_until=True)
    rig.ended(RunEndReason.UNTIL, 2)
    rig.script = lambda call: (None, [AnswerJob("2", "1", 1)] if isinstance(call, RequestMade) else [])
    rig.now += 30
    ask(rig, "b", 1)
    assert rig.job("2").state is JobState.COMPLETED
    assert rig.stream.timers[TIMER] == rig.now + 60
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert TIMER not in rig.stream.timers
    rig.now += 1000
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.timers[TIMER] == rig.now + 60


def test_closing_ends_it_as_one_that_has_done_its_work() -> None:
    rig = study(slots=1)
    ask(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "close"))
    assert rig.job().state is JobState.TERMINATED
    assert (str(rig.stream.state), str(rig.stream.founder.reason)) == (
        "ExperimentState.COMPLETED",
        "closed by its client",
    )
    assert TIMER not in rig.stream.timers
    rig.feed(Operated(rig.now, StreamId("x"), "close"))
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"
    rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=20))  # It is extended, and open again.
    assert rig.stream.timers[TIMER] == rig.now + 60


def test_one_that_is_not_open_for_requests_ends_as_ever() -> None:
    rig = Rig(requests=True, jobs=0)
    rig.feed(Operated(rig.now, StreamId("x"), "keep"))
    assert (str(rig.stream.state), rig.stream.timers.get(TIMER)) == ("ExperimentState.COMPLETED", None)


def test_a_new_scheduler_gives_it_its_full_time() -> None:
    rig = study()
    core = Core()
    for event in rig.journal:
        assert isinstance(event, StreamEvent)
        core.restore(event)
    assert RecoveryResult().follow_up_events(core, 500.0) == [Operated(500.0, StreamId("x"), "keep", ExperimentId("x"))]


def test_an_import_takes_its_timer_along() -> None:
    assert renamed(TimerElapsed(1.0, StreamId("x"), TIMER), "x", "y") == TimerElapsed(1.0, StreamId("y"), "core/idle/y")
