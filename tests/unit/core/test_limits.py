"""Tests of the limits of slots and of running jobs: set, lowered and removed, with gangs and in groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typing_extensions import override

from hopyard.policy.vocabulary import (
    ExperimentChange,
    ExperimentId,
    ExperimentState,
    JobState,
    RunEndReason,
    ShareChange,
    StartJob,
    StreamId,
    Verdict,
    WakeAt,
)
from hopyard_engine.core.effects import Noted, Refused, UpCall
from hopyard_engine.core.events import ExperimentJoined, Operated, PolicyAnswered, TimerElapsed, Updated
from hopyard_engine.core.state.timers import ShareTimer
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from tests.unit.core import rig as plain
from tests.unit.core.rig import quiet, settings, snapshot

pytestmark = pytest.mark.quick


class Rig(plain.Rig):
    """A rig whose policy requires `gang` slots at once; `told` has the last refusals."""

    gang: int = 1
    told: tuple[Verdict, ...] = ()

    @override
    def answer(self, call: UpCall) -> PolicyAnswered:
        self.told = call.verdicts or self.told
        return replace(super().answer(call), gang=self.gang)

    def change(self, **terms: object) -> None:
        self.now += 1.0
        self.feed(Updated(self.now, "x", f"u{self.now}", **terms))  # type: ignore[arg-type]


def pairs(slots: int, **terms: object) -> Rig:
    """Return a core whose policy trains each job on two slots."""
    rig = Rig(capacity=slots, **terms)
    rig.gang = 2
    rig.create()
    return rig


def test_so_many_jobs_have_a_slot_each_where_a_job_needs_one() -> None:
    rig = Rig(capacity=4, concurrency=2)
    assert (rig.stream.share, len(rig.stream.slots)) == (2, 2)


def test_so_many_jobs_have_a_gang_each_where_a_job_needs_several() -> None:
    rig = pairs(7, concurrency=2)
    assert rig.stream.share == 4
    rig.start("1", "n1/0", "n1/1")
    rig.start(rig.create(), "n1/2", "n1/3")
    assert rig.stream.share == 4
    rig.change(slots=2)
    assert rig.stream.share == 2


def test_runs_of_different_sizes_count_with_the_slots_that_they_have() -> None:
    rig = Rig(capacity=6, concurrency=2)
    rig.create()
    rig.start("1", "n1/0", "n1/1")
    assert rig.stream.share == 3
    rig.start(rig.create(), "n1/2")
    assert rig.stream.share == 3
    rig.create()
    rig.command(StartJob("3", ("n1/2",)))
    assert "not idle slots" in str(rig.stream.conversation.verdicts[-1].reason)


def test_no_more_jobs_are_started_than_may_train_though_slots_are_there() -> None:
    rig = pairs(4, concurrency=1)
    rig.create()
    before = len(rig.calls)
    rig.command(StartJob("1", ("n1/0",)), StartJob("2", ("n1/1",)))
    assert rig.job("1").state is JobState.STARTING
    assert [str(v.reason) for v in rig.told] == ["1 jobs train; the maximum is 1 (resources.concurrency)"]
    assert rig.job("2").state is JobState.PENDING
    assert len(rig.calls) <= before + 3  # The up-call is not repeated.


def test_a_lower_limit_is_as_a_smaller_share_first_the_policy_then_the_core() -> None:
    rig = Rig(capacity=3, grace=5.0)
    for slot in ("n1/0", "n1/1", "n1/2"):
        rig.start(rig.create(), slot)
    rig.change(concurrency=1)
    assert rig.called(ShareChange)[-1] == ShareChange(1, rig.now + 5.0)
    assert [run.ending for run in rig.stream.live.values()] == [None, None, None]
    rig.now += 5.0
    rig.feed(TimerElapsed(rig.now, StreamId("x"), ShareTimer().ticket))
    assert [run.ending for run in rig.stream.live.values()] == [None, RunEndReason.PREEMPTED, RunEndReason.PREEMPTED]
    for name in ("2", "3"):
        rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1, f"s{name}"), name)
    assert (len(rig.stream.slots), set(rig.stream.idle)) == (1, {"2", "3"})
    waits = WaitingReasons(rig.stream, rig.core.cluster, rig.now).job(rig.job("2"))
    assert str(waits).startswith("waits for a slot: 1 of 1 in its share are busy: resources.concurrency is 1")


def test_the_way_back_gives_everything_again() -> None:
    rig = Rig(capacity=4, slots=3, concurrency=1, target=0.9)
    assert rig.stream.share == 1
    rig.change(cleared=("concurrency",))
    assert rig.stream.share == 3
    rig.change(cleared=("slots", "target"))
    assert (rig.stream.share, rig.stream.settings.target) == (4, None)
    assert rig.called(ExperimentChange)[-1].change == "target"
    rig.create()
    rig.start("1")
    rig.report(1, 0.99)
    assert rig.stream.state is ExperimentState.RUNNING


def test_an_update_counts_once() -> None:
    rig = Rig(capacity=4)
    rig.feed(Updated(rig.now, StreamId("x"), "same", concurrency=2))
    rig.feed(Updated(rig.now, StreamId("x"), "same", concurrency=3))
    assert rig.stream.share == 2


def test_a_group_has_the_sum_and_no_limit_if_one_has_none() -> None:
    rig = Rig(capacity=6, concurrency=1)
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(concurrency=2)))
    assert rig.stream.share == 3
    rig.change(experiment="y", cleared=("concurrency",))
    assert rig.stream.share == 6
    rig.feed(Operated(rig.now, StreamId("x"), "pause", ExperimentId("y")))
    assert rig.stream.share == 1


@pytest.mark.parametrize("state", ["paused", "over"])
def test_terms_of_what_does_not_run_hold_when_it_does(state: str) -> None:
    rig = Rig(capacity=4)
    rig.feed(Operated(rig.now, StreamId("x"), "pause" if state == "paused" else "stop"))
    rig.change(concurrency=2, weight=3.0, target=0.5)
    assert rig.stream.state is (ExperimentState.PAUSED if state == "paused" else ExperimentState.STOPPED)
    assert rig.of(Noted) + rig.of(Refused) == []
    if state == "paused":
        rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    else:
        rig.script = lambda call: (quiet(call)[0], [WakeAt("more", 1e9)])
        rig.change(more_jobs=1)
    assert (rig.stream.state, rig.stream.share, rig.stream.settings.weight) == (ExperimentState.RUNNING, 2, 3.0)
