"""Tests of targets, extensions, generators and policies that never come to rest, with cases computed by hand."""

import math
from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import (
    ENDLESS,
    SUSPEND,
    AmendRun,
    ApplicationStat,
    Call,
    Command,
    CreateJob,
    DecisionKind,
    ExperimentState,
    ForkJob,
    IterationFinish,
    JobState,
    LabelJob,
    ReleaseSlot,
    Report,
    RequestMade,
    ReserveSlot,
    RunEnd,
    RunEndReason,
    RunMode,
    StreamId,
    TerminateJob,
    WakeAt,
)
from hopyard_engine.core import outstanding, quarantine
from hopyard_engine.core.effects import Amend, AskOutside, Decide, Refused
from hopyard_engine.core.events import Amended, Answered, Operated, Reports, Requested, TimerElapsed, Updated
from hopyard_engine.core.state.experiment import GeneratorCall
from tests.reasons import failure
from tests.unit.core.rig import Rig, quiet, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create()
    made.start("1")
    return made


# -------------------------------------------------------------------------------------------------------------------- target


def evaluated(rig: Rig, part: str, value: float, examples: int) -> None:
    rig.start("1", mode=RunMode.EVALUATE, inputs={"n1/0": part})
    rig.say(rig.key(), Reports((Report(1, {"val": value}, part=part, examples=examples, at_until=True),)))


def test_an_evaluation_whose_combined_value_reaches_the_target_ends_the_experiment() -> None:
    rig = Rig(metric="val", metric_every=9, target=0.75)
    rig.create()
    rig.start("1", until=1)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    rig.stored(1)
    evaluated(rig, "a", 0.6, 10)
    rig.ended(RunEndReason.UNTIL, 1)
    assert rig.stream.state is ExperimentState.RUNNING
    evaluated(rig, "b", 0.9, 10)
    assert str(rig.stream.state) == "ExperimentState.ENDING"
    assert str(rig.stream.reason) == "job 1 reached the target 0.75 with 0.75 at 1"
    rig.ended(RunEndReason.UNTIL, 1)
    assert (rig.stream.state, rig.job().state) == (ExperimentState.COMPLETED, JobState.COMPLETED)


def test_a_target_that_is_lowered_below_the_present_best_ends_the_experiment(rig: Rig) -> None:
    rig.report(1, 0.5)
    rig.feed(Updated(rig.now, StreamId("x"), "u", target=0.4))
    assert rig.stream.state is ExperimentState.ENDING
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.stored(1)
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)


def test_a_target_that_was_reached_during_a_pause_counts_when_it_is_over() -> None:
    rig = Rig(target=0.9)
    rig.create()
    rig.start("1")
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.report(1, 0.95)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.stored(1)
    assert rig.stream.state is ExperimentState.PAUSED
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert (str(rig.stream.state), rig.job().state) == ("ExperimentState.COMPLETED", JobState.COMPLETED)


def test_a_value_that_is_not_finite_reaches_no_target() -> None:
    rig = Rig(target=0.9)
    rig.create()
    rig.start("1")
    rig.report(1, math.inf)
    assert rig.stream.state is ExperimentState.RUNNING


# ------------------------------------------------------------------------------------------------------------- extensions


def test_an_extension_of_an_experiment_that_is_ending_revives_it_when_it_has_ended(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    rig.script = lambda call: (quiet(call)[0], [WakeAt("more", 1e9)])
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=2))
    assert (rig.stream.state, rig.stream.settings.jobs) == (ExperimentState.ENDING, 8)
    rig.ended(RunEndReason.TERMINATED, 0)
    assert (str(rig.stream.state), rig.stream.settings.jobs, rig.stream.share) == ("ExperimentState.RUNNING", 10, 2)


@pytest.mark.parametrize(("jobs", "extended"), [(2, ENDLESS - 1), (ENDLESS, ENDLESS)])
def test_extensions_neither_reach_nor_change_the_number_that_means_no_limit(jobs: int, extended: int) -> None:
    rig = Rig(jobs=jobs)
    rig.feed(Updated(rig.now, StreamId("x"), "u1", more_jobs=ENDLESS - 2))
    rig.feed(Updated(rig.now, StreamId("x"), "u2", more_jobs=1))
    assert (rig.stream.settings.jobs, rig.stream.jobs_left) == (extended, extended)


def test_an_extension_revives_a_failed_experiment() -> None:
    rig = Rig(jobs=1, max_failures=0)
    rig.create()
    rig.start("1")
    rig.ended(RunEndReason.FAILED, 0)
    assert rig.stream.state is ExperimentState.FAILED
    rig.script = lambda call: (quiet(call)[0], [WakeAt("more", 1e9)])
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=1))
    assert str(rig.stream.state) == "ExperimentState.RUNNING"


def test_an_experiment_that_was_taken_out_of_the_core_stays_as_it_is(rig: Rig) -> None:
    quarantine(rig.core, StreamId("x"), failure("a mistake"), rig.now)
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=1))
    assert rig.stream.state is ExperimentState.FAILED
    assert [str(note.reason) for note in rig.of(Refused)] == [
        "refused to change the terms: the experiment cannot continue: a mistake"
    ]


def test_a_completed_fork_whose_state_and_origin_are_lost_does_not_train_from_scratch_when_extended() -> None:
    rig = Rig(capacity=1, max_position=2)
    rig.join("n2")
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.script = lambda call: (SUSPEND if isinstance(call, IterationFinish) else None, [])
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.command(ForkJob("3", "1", 1, {"lr": 0.5}))
    rig.start("3", "n1/0")
    rig.report(2, name="3", at_until=True)
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2, "of 3"), "3")
    assert rig.job("3").state is JobState.COMPLETED
    rig.expire("n1")  # Before any upload.
    rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=4))
    assert rig.job("3").state is JobState.FAILED
    assert str(rig.job("3").reason) == "the snapshot it was forked from was lost before it was stored"


# -------------------------------------------------------------------------------------------------------------- generators


def test_the_generators_calls_are_kept_in_the_order_in_which_it_gets_them_whatever_became_of_the_jobs(rig: Rig) -> None:
    rig.command(CreateJob("2"), CreateJob("3"))
    rig.command(TerminateJob("2"))
    rig.command(CreateJob("4"))
    asked = [e for e in outstanding(rig.stream) if isinstance(e, AskOutside)]
    assert [(e.ticket, e.payload["after"]) for e in asked] == [("create/2", 0), ("create/3", 1), ("create/4", 3)]
    for job, result in (("2", {"lr": 2}), ("3", {"lr": 3}), ("4", None)):
        rig.feed(Answered(rig.now, StreamId("x"), f"create/{job}", result))
    assert rig.stream.founder.generator_calls == [
        GeneratorCall("create", "2", {"lr": 2}),
        GeneratorCall("create", "3", {"lr": 3}),
        GeneratorCall("final", "2", outcome=JobState.TERMINATED),
        GeneratorCall("create", "4"),
    ]


def test_an_answer_shows_what_the_generator_has_heard(rig: Rig) -> None:
    rig.create()
    rig.command(TerminateJob("2"))
    rig.command(CreateJob("3"))
    rig.command(TerminateJob("3"))
    assert rig.stream.founder.told_generator == 0
    rig.feed(Answered(rig.now, StreamId("x"), "create/3", {"lr": 3}))  # Its request was sent after the end of job 2.
    assert [call.job for call in rig.stream.founder.generator_calls[rig.stream.founder.told_generator :]] == ["3"]


@pytest.mark.parametrize(
    ("reads", "kinds"),
    [
        ("nothing", ["create"]),
        ("finals", ["create", "final", "final"]),
        ("reports", ["create", "report 1", "report 2", "final", "report 3", "report 4", "final"]),
    ],
)
def test_a_generator_is_told_what_it_reads_once_and_in_order(reads: str, kinds: list[str]) -> None:
    rig = Rig(max_position=4, generator_reads=reads)
    rig.command(CreateJob("1"))
    rig.feed(Answered(rig.now, StreamId("x"), "create/1", {"lr": 1}))
    rig.create()  # With hyperparameters of its own.
    rig.start("1")
    rig.report(1, 0.1)
    rig.report(2, 0.2)
    rig.command(TerminateJob("2"))
    rig.ended(RunEndReason.LOST, 2)
    rig.feed(TimerElapsed(rig.now + 60, StreamId("x"), next(iter(rig.stream.timers))))
    rig.start("1")
    for position in (1, 2, 3, 4):  # The first two are trained again.
        rig.report(position, position / 10)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    calls = rig.stream.founder.generator_calls
    assert [f"{c.kind} {c.position}" if c.kind == "report" else c.kind for c in calls] == kinds
    if reads != "nothing":
        ends = [call for call in calls if call.kind == "final"]
        assert ends[0] == GeneratorCall("final", "2", rig.job("2").hyperparameters, outcome=JobState.TERMINATED)
        assert ends[1] == GeneratorCall("final", "1", None, {"score": 0.4}, position=4)


# ------------------------------------------------------------------------------------ policies that do not come to rest


def test_a_policy_that_reserves_and_releases_for_ever_is_paused() -> None:
    rig = Rig()
    rig.script = lambda call: (None, [ReserveSlot("n1/0"), ReleaseSlot("n1/0")])
    rig.feed(Requested(rig.now, StreamId("x"), "r", {}, 1))
    assert rig.stream.state in (ExperimentState.PAUSING, ExperimentState.PAUSED)
    assert "does not stop: 504 up-calls followed from one event" in str(rig.stream.reason)


def test_a_policy_that_amends_again_whenever_it_is_too_late_is_paused(rig: Rig) -> None:
    rig.report(1)

    def again(call: Call) -> tuple[object, list[Command]]:
        return quiet(call)[0], [
            AmendRun("1", f"t{len(rig.calls)}", 1)
        ] if rig.stream.state is ExperimentState.RUNNING else []

    rig.script = again  # type: ignore[assignment]
    rig.feed(Requested(rig.now, StreamId("x"), "r", {}, 1))
    assert "does not stop" in str(rig.stream.reason)


def test_a_policy_that_forks_at_each_fork_is_paused_and_forks_no_more(rig: Rig) -> None:
    rig.report(1)
    rig.taken(1)
    rig.script = lambda call: (quiet(call)[0], [ForkJob(str(rig.stream.ordinals + 1), "1", 1, {})])
    rig.feed(Requested(rig.now, StreamId("x"), "r", {}, 1))
    assert "does not stop" in str(rig.stream.reason)
    assert len(rig.stream.jobs) < 600


def test_a_policy_whose_demand_swings_for_ever_is_paused() -> None:
    rig = Rig()
    answer = rig.answer
    rig.answer = lambda call: replace(answer(call), demand=call.number % 2)  # type: ignore[method-assign]
    rig.feed(Requested(rig.now, StreamId("x"), "r", {}, 1))
    assert "does not stop" in str(rig.stream.reason)


def test_many_up_calls_that_each_follow_from_an_event_of_their_own_are_fine(rig: Rig) -> None:
    before = len(rig.called(RequestMade))
    for number in range(1100):
        rig.feed(Requested(rig.now, StreamId("x"), f"r{number}", {}, 1))
    assert len(rig.called(RequestMade)) == before + 1100
    assert rig.stream.state is ExperimentState.RUNNING


# -------------------------------------------------------------------------------------------------------- gangs and labels


def test_only_rank_0_of_a_gang_hears_of_a_moved_end_and_only_its_answer_counts() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=2)
    rig.command(AmendRun("1", "t", 5, (4,)))
    assert rig.sent(Amend) == [Amend("t", 5, (4,))]
    rig.say(rig.key(rank=1), Amended("t", True, 0))
    assert rig.run().until == 2
    rig.say(rig.key(), Amended("t", True, 0))
    assert rig.run().until == 5


def test_a_priority_that_is_not_a_number_is_refused(rig: Rig) -> None:
    rig.create()
    rig.command(LabelJob("2", math.nan))
    assert rig.job("2").priority is None


def test_a_message_with_many_reports_brings_as_many_up_calls_and_is_fine() -> None:
    rig = Rig(max_position=1_000)
    rig.create()
    rig.start("1", allowed=1_000)
    reports = tuple(Report(position, {"score": 0.5}) for position in range(1, 501))
    rig.say(rig.key(), Reports(reports))
    assert len(rig.called(IterationFinish)) == len(rig.called(ApplicationStat)) == 500
    assert rig.stream.state is ExperimentState.RUNNING, rig.stream.reason


# ------------------------------------------------------------------------------------------------ what policies do not hear


def test_a_policy_that_wants_neither_is_asked_only_where_a_run_waits() -> None:
    rig = Rig(max_position=10, statistics=False, every_iteration=False)
    rig.create()
    rig.start("1", allowed=3)
    rig.say(rig.key(), Reports((Report(1, {"score": 0.5}), Report(2, {"score": 0.6}))))
    assert not rig.called(IterationFinish)
    rig.report(3)
    rig.report(10, at_until=True)
    assert [(call.position, call.at_until) for call in rig.called(IterationFinish)] == [(3, False), (10, True)]
    assert not rig.called(ApplicationStat)
    assert rig.job().high_water == 10
    assert rig.job().best == (0.6, 2)


def test_a_job_that_trains_again_what_it_reported_does_not_wait_for_a_policy_that_is_not_asked() -> None:
    rig = Rig(max_position=10, statistics=False, every_iteration=False)
    rig.create()
    rig.start("1", allowed=3)
    rig.report(3)
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    assert rig.run().allowed == 3
    rig.report(3)  # Repeated: up to the high-water mark no decision is needed.
    assert rig.sent(Decide) == [Decide(DecisionKind.CONTINUE, 3)]
    assert len(rig.called(IterationFinish)) == 1


def test_a_run_that_ends_its_job_ends_by_itself_where_the_policy_decides_nothing() -> None:
    rig = Rig(max_position=3, statistics=False, every_iteration=False, ends_jobs=False)
    rig.create()
    rig.start("1", allowed=3)
    assert rig.run().completes
    rig.report(3, at_until=True)
    assert not rig.called(IterationFinish)
    assert rig.job().state is JobState.SUSPENDING
    assert rig.sent(Decide) == [Decide(DecisionKind.CONTINUE, 3)]
    rig.ended(RunEndReason.UNTIL, 3, snapshot(3))
    assert rig.job().state is JobState.COMPLETED
    assert [call.reason for call in rig.called(RunEnd)] == [RunEndReason.UNTIL]


def test_a_run_that_ends_elsewhere_or_was_moved_waits_for_its_policy() -> None:
    rig = Rig(max_position=3, ends_jobs=False)
    rig.create()
    rig.start("1", until=2)
    assert not rig.run().completes
    rig.create()
    rig.start("2", "n1/1", allowed=3)
    rig.command(AmendRun("2", "t", 2))
    rig.say(rig.key("2"), Amended("t", True, 0))
    rig.report(2, name="2", at_until=True)
    assert rig.called(IterationFinish)[-1] == IterationFinish("2", Report(2, {"score": 0.5}, at_until=True))
