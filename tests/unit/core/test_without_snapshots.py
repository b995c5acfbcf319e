"""Tests of programs that take no snapshots (scripts without a checkpoint, log mode), and of programs that end by themselves."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    ApplicationStat,
    IterationFinish,
    JobState,
    RunEnd,
    RunEndReason,
    StreamId,
    SuspendJob,
    TerminateJob,
)
from hopyard_engine.core import CLUSTER_STREAM
from hopyard_engine.core.cluster.turns import TURN_SECONDS
from hopyard_engine.core.effects import Acknowledge, Noted, Record, ReportAccepted
from hopyard_engine.core.events import Ended, StreamCreated, TimerElapsed
from hopyard_engine.core.state.timers import ShareTimer
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


def trained(positions: int = 3, **terms: object) -> Rig:
    """Return a core with a job that has reported at some positions."""
    rig = Rig(**terms)  # type: ignore[arg-type]
    rig.create()
    rig.start()
    for position in range(1, positions + 1):
        rig.report(position, position / 10)
    return rig


@pytest.mark.parametrize(
    "reason",
    [RunEndReason.SUSPENDED, RunEndReason.PREEMPTED, RunEndReason.UNTIL, RunEndReason.LOST, RunEndReason.FAILED],
)
def test_a_run_that_ends_without_a_snapshot_puts_its_job_back_to_the_beginning(reason: RunEndReason) -> None:
    rig = trained(max_failures=1)
    rig.ended(reason, 3)
    job = rig.job()
    assert (job.state, job.position, job.high_water) == (JobState.PENDING, 0, 3)
    assert list(rig.stream.idle) == ["1"]
    assert rig.called(RunEnd)[-1].resume_position == 0


@pytest.mark.parametrize("position", [0, 3])
def test_a_job_whose_progress_was_dropped_says_so(position: int) -> None:
    rig = trained(position)
    rig.ended(RunEndReason.SUSPENDED, position)
    dropped = "back at position 0, because no later snapshot was saved: " if position else ""
    assert str(rig.job().reason) == f"{dropped}suspended at {position}"


def test_it_goes_back_to_the_last_snapshot_if_there_is_one() -> None:
    rig = trained(2)
    rig.taken(2)
    rig.report(3, 0.3)
    rig.ended(RunEndReason.SUSPENDED, 3)
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 2)


def test_a_job_that_is_trained_to_the_same_position_again_and_again_and_never_saved_there_fails() -> None:
    rig = trained(1, max_failures=2)
    for _ in range(3):
        rig.ended(RunEndReason.UNTIL, 1)
        assert rig.job().state is JobState.PENDING
        rig.start(until=1)
        rig.report(1, 0.1)
    rig.ended(RunEndReason.UNTIL, 1)
    assert rig.job().state is JobState.FAILED
    assert str(rig.job().reason).startswith("reached position 1 4 times without saving: its program saves no check")


def test_a_job_that_comes_further_each_time_does_not() -> None:
    rig = trained(1, max_failures=0)
    for position in range(2, 6):
        rig.ended(RunEndReason.UNTIL, position - 1)
        rig.start()
        for again in range(1, position + 1):
            rig.report(again, again / 10)
    rig.ended(RunEndReason.UNTIL, 5)
    assert rig.job().state is JobState.PENDING


def test_what_is_trained_again_is_compared_and_not_recorded_twice() -> None:
    rig = trained()
    rig.ended(RunEndReason.SUSPENDED, 3)
    rig.start()
    stats, finishes = len(rig.called(ApplicationStat)), len(rig.called(IterationFinish))
    rig.report(1, 0.1)
    assert not [effect for effect in rig.effects if not isinstance(effect, Acknowledge | Record)]
    rig.report(2, 0.7)
    assert "position 2 was trained again and differs" in str(rig.of(Noted)[0].reason)
    assert rig.run().allowed == 3  # Up to 3 nothing is new, so it does not wait.
    rig.report(3, 0.3)
    assert (len(rig.called(ApplicationStat)), len(rig.called(IterationFinish))) == (stats, finishes)
    assert rig.job().curve.recorded(rig.called(ApplicationStat)[1].report) == {"score": 0.2}
    rig.report(4, 0.4)
    assert len(rig.of(ReportAccepted)) == 1
    assert len(rig.called(IterationFinish)) == finishes + 1


def test_a_program_that_ended_by_itself_completes_its_job_where_it_stands() -> None:
    rig = trained(max_position=2**31 - 1)
    rig.say(rig.key(), Ended(RunEndReason.UNTIL, 3, finished=True))
    job = rig.job()
    assert (job.state, job.position, str(job.reason)) == (JobState.COMPLETED, 3, "trained to its end")
    assert rig.called(RunEnd)[-1].reason is RunEndReason.UNTIL


def test_a_program_that_ended_by_itself_before_its_experiment_would_have_it_says_so() -> None:
    rig = trained(max_position=15)
    rig.say(rig.key(), Ended(RunEndReason.UNTIL, 3, finished=True))
    job = rig.job()
    assert (job.state, job.position) == (JobState.COMPLETED, 3)
    assert str(job.reason) == (
        "its program ended by itself before position 15; for more, give the program itself more epochs"
    )


def test_it_completes_too_while_it_was_to_be_suspended_but_not_when_it_was_to_be_terminated() -> None:
    for command, state in ((SuspendJob("1"), JobState.COMPLETED), (TerminateJob("1"), JobState.TERMINATED)):
        rig = trained()
        rig.command(command)
        rig.say(rig.key(), Ended(RunEndReason.UNTIL, 3, finished=True))
        assert rig.job().state is state


def test_of_runs_without_a_snapshot_those_that_lose_least_are_preempted_first() -> None:
    rig = Rig(capacity=3, grace=30.0)
    for name, position in (("1", 5), ("2", 1), ("3", 9)):
        rig.create()
        rig.start(name, f"n1/{int(name) - 1}")
        for reached in range(1, position + 1):
            rig.report(reached, 0.5, name)
    rig.taken(9, "3")
    for other in ("y", "z"):
        rig.feed(StreamCreated(rig.now, StreamId(other), settings()))
    rig.now += 30
    rig.feed(TimerElapsed(rig.now, StreamId("x"), ShareTimer().ticket))
    ending = {name: rig.run(name).ending for name in ("1", "2", "3")}
    preempted = RunEndReason.PREEMPTED
    assert ending == {"1": None, "2": preempted, "3": preempted}
    rig.ended(RunEndReason.SUSPENDED, 1, name="2")
    rig.ended(RunEndReason.SUSPENDED, 9, snapshot(9), name="3")
    assert (rig.job("2").state, rig.job("3").state) == (JobState.PENDING, JobState.SUSPENDED)


def test_who_reached_the_target_is_complete_where_it_was() -> None:
    rig = trained(2, target=0.3)
    rig.report(3, 0.3)
    rig.ended(RunEndReason.SUSPENDED, 3)
    assert (rig.job().state, rig.job().position, rig.job().best) == (JobState.COMPLETED, 3, (0.3, 3))


@pytest.mark.parametrize("saves", [False, True])
def test_a_job_loses_its_training_to_a_smaller_share_once(saves: bool) -> None:
    rig = Rig(capacity=1, grace=30.0)
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))

    def end_turn() -> None:
        rig.now += TURN_SECONDS
        rig.feed(TimerElapsed(rig.now, CLUSTER_STREAM, "core/turn"))

    def deadline() -> RunEndReason | None:
        """End the turn of x, let its grace period pass, and return how the run of job 1 must end."""
        end_turn()
        assert rig.stream.share == 0
        rig.now += 30.0
        rig.feed(TimerElapsed(rig.now, StreamId("x"), ShareTimer().ticket))
        return rig.run().ending

    rig.create()
    rig.start()
    rig.report(1)
    assert deadline() is RunEndReason.PREEMPTED
    rig.ended(RunEndReason.PREEMPTED, 1, snapshot(1) if saves else None)
    assert rig.stream.slots == {}
    end_turn()
    assert rig.stream.slots.keys() == {"n1/0"}
    rig.start()
    assert deadline() is (RunEndReason.PREEMPTED if saves else None)
    if not saves:  # It keeps the slot until its run ends, and returns it then.
        rig.report(10)
        rig.ended(RunEndReason.UNTIL, 10)
        assert rig.job().state is JobState.COMPLETED
        assert rig.stream.slots == {}
