"""Tests of repeated losses, missing snapshots, runs that reach no boundary, and experiments in which every job fails."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    ExperimentId,
    ExperimentState,
    ForkJob,
    JobState,
    RunEnd,
    RunEndReason,
    RunMode,
    StartJob,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.actions import failures
from hopyard_engine.core.effects import Kill, SetTimer, Start
from hopyard_engine.core.events import Ended, JobsRetried, Started, TimerElapsed
from hopyard_engine.core.state.timers import BackoffTimer
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState
from tests.reasons import said
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def lose(rig: Rig, *, missing: bool = False) -> None:
    """Start a run and lose it before it trains."""
    rig.command(StartJob("1", ("n1/0",)))
    rig.say(rig.key(), Ended(RunEndReason.LOST, rig.run().position, cause=said("gone"), snapshot_missing=missing))


def elapse(rig: Rig) -> None:
    """Let the wait after a loss end."""
    ticket = BackoffTimer("1").ticket
    rig.now = rig.stream.timers[ticket]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), ticket))


def test_losses_in_a_row_wait_twice_as_long_each_time() -> None:
    rig = Rig()
    rig.create()
    lose(rig)
    assert list(rig.stream.idle) == ["1"]  # After the first, it can start again at once.
    waits = []
    for _ in range(8):
        lose(rig)
        waits.append(round(rig.stream.timers[BackoffTimer("1").ticket] - rig.now, 6))
        assert list(rig.stream.idle) == []
        elapse(rig)
        assert list(rig.stream.idle) == ["1"]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def fail(rig: Rig) -> None:
    """Start a run whose code fails before it trains."""
    rig.command(StartJob("1", ("n1/0",)))
    rig.ended(RunEndReason.FAILED, 0)


def test_failures_and_losses_in_a_row_wait_alike_and_count_apart() -> None:
    rig = Rig(max_failures=3000)
    rig.create()
    fail(rig)
    assert list(rig.stream.idle) == ["1"]  # After the first, it can start again at once.
    waits = []
    for step in (lose, fail, fail):
        step(rig)
        waits.append(round(rig.stream.timers[BackoffTimer("1").ticket] - rig.now, 6))
        elapse(rig)
    assert waits == [0.5, 1.0, 2.0]
    assert (rig.job().failures, rig.job().losses) == (3, 1)
    rig.job().setbacks = 2000
    fail(rig)
    assert round(rig.stream.timers[BackoffTimer("1").ticket] - rig.now, 6) == failures.LONGEST_WAIT


def test_only_the_users_code_uses_up_max_failures() -> None:
    rig = Rig(max_failures=1)
    rig.create()
    for reason in (RunEndReason.SUSPENDED, RunEndReason.PREEMPTED, RunEndReason.LOST, RunEndReason.SUSPENDED):
        rig.start()
        rig.ended(reason, 0)
        assert (rig.job().failures, rig.job().state) == (0, JobState.PENDING)
    fail(rig)
    assert (rig.job().failures, rig.job().state) == (1, JobState.PENDING)
    elapse(rig)
    fail(rig)
    assert (rig.job().failures, rig.job().state) == (2, JobState.FAILED)
    assert str(rig.job().reason) == "failed 2 times, 1 allowed: told"


def test_a_start_during_the_wait_is_refused_and_not_asked_for_again_at_once() -> None:
    rig = Rig()
    rig.create()
    lose(rig)
    lose(rig)
    calls = len(rig.calls)
    rig.command(StartJob("1", ("n1/0",)))
    assert rig.sent(Start) == []
    assert len(rig.calls) == calls + 1
    assert rig.stream.state is ExperimentState.RUNNING
    elapse(rig)
    rig.command(StartJob("1", ("n1/0",)))
    assert len(rig.sent(Start)) == 1


def test_a_policy_that_wanted_nothing_while_its_job_had_to_wait_is_asked_when_the_wait_is_over() -> None:
    rig = Rig(capacity=1, jobs=1)
    rig.create()
    rig.demand = lambda: len(list(rig.stream.idle)) + len(rig.stream.live)
    lose(rig)
    lose(rig)
    assert (rig.stream.demand, rig.stream.share, list(rig.stream.slots)) == (0, 0, [])
    ticket = BackoffTimer("1").ticket
    rig.stream.timers = {ticket: rig.stream.timers[ticket]}  # The timer of the rig would keep the experiment open.
    calls = len(rig.calls)
    rig.script = lambda call: (None, [StartJob("1", ("n1/0",))] if list(rig.stream.idle) and rig.stream.vacant else [])
    elapse(rig)
    assert isinstance(rig.calls[calls], AllocateJobs)
    assert rig.stream.state is ExperimentState.RUNNING, rig.stream.reason
    assert list(rig.stream.live) == ["1"]


def test_progress_ends_the_waits() -> None:
    rig = Rig()
    rig.create()
    lose(rig)
    rig.start()
    rig.report(1)
    rig.ended(RunEndReason.LOST, 1)
    assert BackoffTimer("1").ticket not in rig.stream.timers


def saved(rig: Rig) -> None:
    """Suspend job 1 with a snapshot at 6 on its node and one at 3 in the store."""
    rig.create()
    rig.start()
    rig.kept(3)
    rig.report(6)
    rig.ended(RunEndReason.SUSPENDED, 6, snapshot(6))


def test_a_snapshot_that_nobody_has_is_waited_for_and_then_given_up() -> None:
    rig = Rig()
    saved(rig)
    entry = rig.stream.snapshots.get("1", 6)
    assert entry is not None
    entry.nodes = {"n2"}  # which does not respond now
    for tries in range(1, failures.MISSES):
        lose(rig, missing=True)
        assert rig.job().position == 6, tries
        if BackoffTimer("1").ticket in rig.stream.timers:
            elapse(rig)
    lose(rig, missing=True)
    assert (rig.job().position, rig.stream.snapshots.positions("1")) == (3, [3])


def test_a_snapshot_that_is_not_where_it_was_taken_is_given_up_at_once() -> None:
    rig = Rig()
    saved(rig)
    lose(rig, missing=True)  # on the only node that lists it: for example, its copy was damaged, and the store has none
    assert (rig.job().position, rig.stream.snapshots.positions("1")) == (3, [3])


def test_a_snapshot_that_no_node_claims_is_given_up_at_once() -> None:
    rig = Rig()
    saved(rig)
    entry = rig.stream.snapshots.get("1", 6)
    assert entry is not None
    entry.nodes.clear()
    entry.state = SnapshotState.STORED  # So the older one is deleted.
    lose(rig, missing=True)
    assert (rig.job().position, rig.stream.snapshots.positions("1")) == (0, [])


def test_a_terminated_run_that_reaches_no_boundary_is_killed() -> None:
    rig = Rig(kill_after=30.0)
    rig.create()
    rig.start()
    rig.command(TerminateJob("1"))
    timer = next(e for e in rig.of(SetTimer) if e.ticket.startswith("core/kill/"))
    assert timer.at == rig.now + 30.0
    rig.now += 30.0
    rig.feed(TimerElapsed(rig.now, StreamId("x"), timer.ticket))
    assert len(rig.sent(Kill)) == 1
    rig.ended(RunEndReason.TERMINATED, 0)
    assert rig.called(RunEnd)[-1].reason is RunEndReason.TERMINATED


def test_a_run_that_ends_in_time_is_not_killed() -> None:
    rig = Rig()
    rig.create()
    rig.start()
    rig.command(TerminateJob("1"))
    rig.ended(RunEndReason.TERMINATED, 0)
    assert not any(ticket.startswith("core/kill/") for ticket in rig.stream.timers)


def test_an_experiment_in_which_every_job_fails_has_failed() -> None:
    rig = Rig(jobs=1, max_failures=0)
    rig.create()
    rig.start()
    rig.ended(RunEndReason.FAILED, 0)
    assert rig.stream.state is ExperimentState.FAILED
    assert str(rig.stream.reason) == "every job failed, job 1: failed 1 times, 0 allowed: told"


def test_a_snapshot_that_was_lost_and_is_taken_again_is_needed_by_whom_it_was_needed() -> None:
    rig = Rig(capacity=1)
    rig.join("n2", 2)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.command(ForkJob("2", "1", 1, {"lr": 0.2}))
    rig.command(StartJob("2", ("n2/0",)))  # It has not loaded its snapshot yet.
    rig.expire("n1")
    assert rig.stream.snapshots.get("1", 1) is None
    rig.start("1", "n2/1")
    rig.report(1)
    rig.taken(1)
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert entry.pins == {rig.run("2").holder, rig.job("2").fork_holder}
    rig.say(rig.key("2"), Started(1))
    assert entry.pins == {rig.job("2").fork_holder}


def test_who_was_lost_meanwhile_needs_nothing_any_more() -> None:
    rig = Rig(capacity=1)
    rig.join("n2", 2)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.command(ForkJob("2", "1", 1, {"lr": 0.2}))
    rig.command(StartJob("2", ("n2/0",)))
    rig.expire("n1")
    rig.command(TerminateJob("2"))
    rig.say(rig.key("2"), Ended(RunEndReason.TERMINATED, 1))
    rig.start("1", "n2/1")
    rig.report(1)
    rig.taken(1)
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert entry.pins == set()


def cannot_run(rig: Rig, name: str) -> None:
    """Report that the program of a job cannot run on its node."""
    body = Ended(RunEndReason.FAILED, 0, user_code=True, cause=said("import of t.py:T: no"), unable=True)
    rig.say(rig.key(name), body)


def test_an_experiment_whose_program_cannot_run_anywhere_fails_at_once() -> None:
    rig = Rig(capacity=2, max_failures=3)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.command(StartJob("2", ("n1/1",)))
    cannot_run(rig, "1")
    assert (rig.job("1").state, str(rig.job("1").reason)) == (
        JobState.FAILED,
        "another attempt would fail too: import of t.py:T: no",
    )
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert (rig.stream.state, str(rig.stream.reason)) == (
        ExperimentState.FAILED,
        "its program cannot run on n1: import of t.py:T: no",
    )


def test_other_nodes_are_tried_before_an_experiment_fails() -> None:
    rig = Rig(capacity=1, max_failures=3)
    rig.join("n2")
    rig.create()
    rig.command(StartJob("1", ("n1/0",)))
    cannot_run(rig, "1")
    assert (rig.job().state, rig.job().failures, rig.stream.state) == (JobState.PENDING, 1, ExperimentState.RUNNING)
    rig.command(StartJob("1", ("n2/0",)))
    cannot_run(rig, "1")
    assert (rig.job().state, rig.stream.state) == (JobState.FAILED, ExperimentState.FAILED)
    assert str(rig.stream.reason) == "its program cannot run on n1, n2: import of t.py:T: no"


def test_where_something_was_trained_a_program_that_cannot_run_counts_as_any_failure() -> None:
    rig = Rig(capacity=2, max_failures=3)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.command(StartJob("2", ("n1/1",)))
    cannot_run(rig, "2")
    assert (rig.job("2").state, rig.job("2").failures, rig.stream.state) == (
        JobState.PENDING,
        1,
        ExperimentState.RUNNING,
    )


def fail_permanently(rig: Rig, slot: str, name: str = "1", mode: RunMode = RunMode.TRAIN) -> None:
    """Start a run whose code fails in a way that another run on the node would repeat."""
    rig.command(StartJob(name, (slot,), mode=mode))
    cause = said("setup at position 0: ModuleNotFoundError: no")
    rig.say(rig.key(name), Ended(RunEndReason.FAILED, 0, user_code=True, cause=cause, permanent=True))


def test_a_job_whose_failure_another_attempt_would_repeat_gets_no_other_attempt() -> None:
    rig = Rig(capacity=2, max_failures=3)
    rig.create()
    rig.create()
    fail_permanently(rig, "n1/0")
    assert (rig.job().state, rig.job().failures, str(rig.job().reason)) == (
        JobState.FAILED,
        1,
        "another attempt would fail too: setup at position 0: ModuleNotFoundError: no",
    )
    assert (rig.job("2").state, rig.stream.state) == (JobState.PENDING, ExperimentState.RUNNING)


def test_a_job_that_fails_permanently_is_tried_on_each_other_node_once() -> None:
    rig = Rig(capacity=1, max_failures=3)
    rig.join("n2")
    rig.create()
    fail_permanently(rig, "n1/0")
    assert (rig.job().state, rig.job().failures) == (JobState.PENDING, 1)
    fail_permanently(rig, "n2/0")
    assert (rig.job().state, rig.job().failures) == (JobState.FAILED, 2)


def test_only_the_node_of_the_process_that_failed_counts_in_a_gang() -> None:
    rig = Rig(capacity=1, max_failures=3)
    rig.join("n2")
    rig.create()
    rig.command(StartJob("1", ("n1/0", "n2/0")))
    rig.say(rig.key(), Ended(RunEndReason.FAILED, 0, user_code=True, cause=said("no module"), permanent=True))
    rig.say(rig.key(rank=1), Ended(RunEndReason.LOST, 0, cause=said("killed")))
    assert (rig.job().state, rig.job().unable) == (JobState.PENDING, {"n1"})


def test_a_failed_profiling_run_ends_no_job() -> None:
    rig = Rig(capacity=1, max_failures=3)
    rig.create()
    fail_permanently(rig, "n1/0", mode=RunMode.PROFILE)
    assert (rig.job().state, rig.job().unable) == (JobState.PENDING, set())


def test_a_person_may_retry_a_job_that_failed_permanently() -> None:
    rig = Rig(capacity=1, max_failures=3)
    rig.create()
    rig.create()
    fail_permanently(rig, "n1/0")
    rig.feed(JobsRetried(rig.now, StreamId("x"), "retry", ("1",), ExperimentId("x")))
    assert (rig.job().state, rig.job().unable) == (JobState.PENDING, set())
    fail_permanently(rig, "n1/0")
    assert rig.job().state is JobState.FAILED
