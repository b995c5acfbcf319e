"""Tests of policies that end their experiment with `EndExperiment`."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    CONTINUE,
    Call,
    Command,
    CreateJob,
    Decision,
    EndExperiment,
    ExperimentState,
    IterationFinish,
    JobState,
    RunEndReason,
    StreamId,
    TerminateJob,
    Verdict,
    WakeAt,
)
from hopyard_engine.core.events import Updated
from tests.unit.core.rig import Rig, quiet, snapshot
from tests.unit.core.test_groups import Pair

pytestmark = pytest.mark.quick

ENOUGH = EndExperiment("two models are good and small")


def verdicts(rig: Rig) -> list[str]:
    return [str(verdict.reason) for verdict in rig.stream.conversation.verdicts if isinstance(verdict, Verdict)]


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    for name in ("1", "2", "3"):
        assert made.create() == name
    made.start("1", "n1/0")
    made.start("2", "n1/1")
    made.report(1, 0.5)
    return made


def test_every_job_is_terminated_and_the_end_says_why(rig: Rig) -> None:
    rig.command(ENOUGH)
    assert (rig.stream.state, str(rig.stream.reason)) == (ExperimentState.ENDING, "two models are good and small")
    assert rig.job("3").state is JobState.TERMINATED
    rig.ended(RunEndReason.TERMINATED, 1)
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert (str(rig.stream.state), str(rig.stream.reason)) == (
        "ExperimentState.COMPLETED",
        "two models are good and small",
    )
    assert {job.state for job in rig.stream.jobs.values()} == {JobState.TERMINATED}
    assert not rig.stream.slots


def test_the_winner_is_saved_and_completed(rig: Rig) -> None:
    rig.command(EndExperiment("small enough", "1"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert rig.stream.state is ExperimentState.ENDING  # It waits for the upload of the winner's snapshot.
    rig.stored(1)
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"
    assert [(job.state, str(job.reason)) for job in rig.stream.jobs.values()] == [
        (JobState.COMPLETED, "small enough"),
        (JobState.TERMINATED, "stopped at position 0: the experiment ended (small enough)"),
        (JobState.TERMINATED, "not started: the experiment ended first (small enough)"),
    ]


def test_a_winner_may_wait_or_have_ended(rig: Rig) -> None:
    rig.script = lambda call: (Decision.proceed() if isinstance(call, IterationFinish) else None, [])
    rig.report(10, 0.9, at_until=True)
    rig.ended(RunEndReason.UNTIL, 10, snapshot(10))
    rig.stored(10)
    assert rig.job().state is JobState.COMPLETED
    rig.command(EndExperiment("the longest", "1"))
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)


def test_the_decision_of_the_same_answer_does_not_hold_the_run(rig: Rig) -> None:
    """Check with a winner whose run waits for a decision: it is told to save, not to continue."""

    def script(call: Call) -> tuple[Decision | None, list[Command]]:
        if isinstance(call, IterationFinish):
            return CONTINUE, [EndExperiment("there it is", "1"), CreateJob("4")]
        return None, []

    rig.script = script
    rig.report(2, 0.8)
    assert rig.run().ending is RunEndReason.SUSPENDED
    assert (str(rig.stream.conversation.refusal), sorted(rig.stream.jobs)) == (
        "the experiment is ending",
        ["1", "2", "3"],
    )  # The command that followed it.


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (EndExperiment("so", "9"), "there is no job '9'"),
        (EndExperiment(" "), "the end of an experiment needs a reason, which users see; found none"),
        (EndExperiment("so", "2"), "job '2' has reported nothing, so it cannot have won"),
        (EndExperiment("so", "1", "y"), "job '1' is of experiment 'x'"),
        (EndExperiment("so", "", "y"), "there is no experiment 'y' in this group; there are: x"),
    ],
)
def test_what_cannot_be_is_refused(rig: Rig, command: EndExperiment, reason: str) -> None:
    rig.command(command)
    assert rig.stream.state is ExperimentState.RUNNING
    assert verdicts(rig) == [reason]


def test_a_job_that_is_being_terminated_cannot_have_won(rig: Rig) -> None:
    rig.command(TerminateJob("1"), EndExperiment("so", "1"))
    assert rig.stream.state is ExperimentState.RUNNING
    assert verdicts(rig) == ["job '1' is being terminated, so it cannot have won"]


@pytest.mark.parametrize("end", [RunEndReason.TERMINATED, RunEndReason.FAILED])
def test_a_job_that_came_to_nothing_cannot_have_won(rig: Rig, end: RunEndReason) -> None:
    if end is RunEndReason.TERMINATED:
        rig.command(TerminateJob("1"))
    rig.ended(end, 1)
    rig.command(EndExperiment("so", "1"))
    assert rig.stream.state is ExperimentState.RUNNING
    assert str(rig.stream.conversation.refusal) == f"job '1' is {rig.job().state.value}, so it cannot have won"


def test_twice_is_as_good_as_once(rig: Rig) -> None:
    rig.command(EndExperiment("first", "1"), EndExperiment("second", "1"))
    assert (rig.stream.state, str(rig.stream.reason)) == (ExperimentState.ENDING, "first")


def test_an_extension_goes_on_with_what_is_left(rig: Rig) -> None:
    rig.command(EndExperiment("small enough", "1"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    rig.stored(1)
    rig.script = lambda call: (quiet(call)[0], [WakeAt("more", 1e9)])
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=1))
    assert (rig.stream.state, rig.job().state) == (ExperimentState.RUNNING, JobState.COMPLETED)
    rig.feed(Updated(rig.now, StreamId("x"), "v", max_position=20))
    assert rig.job().state is JobState.SUSPENDED


def test_of_a_group_the_winners_experiment_ends() -> None:
    rig = Pair()
    rig.start(rig.make("y"))
    rig.report(1, 0.5)
    rig.command(EndExperiment("y is done", "1"))
    assert [experiment.state for experiment in rig.stream.experiments.values()] == [
        ExperimentState.RUNNING,
        ExperimentState.ENDING,
    ]


def test_of_a_group_all_end_without_a_name() -> None:
    rig = Pair()
    rig.make("y")
    rig.command(EndExperiment("both are done"))
    assert {str(experiment.state) for experiment in rig.stream.experiments.values()} == {"ExperimentState.COMPLETED"}


@pytest.mark.parametrize(
    ("target", "left"),
    [(0.9, (JobState.COMPLETED, "reached the target")), (None, (JobState.SUSPENDED, "the experiment was extended"))],
)
def test_after_an_extension_that_nobody_wanted_a_job_has_still_reached_the_target_and_nobody_else_has_won_again(
    target: float | None, left: tuple[JobState, str]
) -> None:
    rig = Rig(target=target)
    rig.create()
    rig.start("1")
    rig.report(4, 0.95)
    if target is None:
        rig.command(EndExperiment("good", "1"))
    rig.ended(RunEndReason.SUSPENDED, 4, snapshot(4))
    rig.stored(4)
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)
    rig.demand = lambda: 0
    rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=20))
    assert (str(rig.stream.state), str(rig.stream.reason)) == (
        "ExperimentState.COMPLETED",
        "the policy has nothing left to do",
    )
    assert (rig.job().state, str(rig.job().reason)) == left
