"""Tests of reports, decisions and the ends of runs, with cases computed by hand."""

import pytest

from hopyard.policy.vocabulary import (
    CONTINUE,
    PARK,
    SUSPEND,
    TERMINATE,
    AmendRun,
    AnswerReady,
    ApplicationStat,
    Call,
    Command,
    Decision,
    DecisionKind,
    ExperimentState,
    IterationFinish,
    JobState,
    Report,
    RunEnd,
    RunEndReason,
    RunMode,
    StartJob,
    SuspendJob,
    TerminateJob,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import Acknowledge, Amend, Decide, Kill, Noted, ReportAccepted, Start
from hopyard_engine.core.events import Amended, Reports, Started
from hopyard_engine.core.state_machines.job_states import change_job
from hopyard_engine.core.state_machines.transitions import IllegalTransitionError
from tests.reasons import said
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def decider(rig: Rig, decision: Decision, *commands: Command) -> None:
    def script(call: Call) -> tuple[Decision | None, list[Command]]:
        return (decision, list(commands)) if isinstance(call, IterationFinish) else (None, [])

    rig.script = script


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create()
    made.start("1")
    return made


def test_an_illegal_transition_names_the_job_both_states_and_the_story(rig: Rig) -> None:
    with pytest.raises(
        IllegalTransitionError, match=r"job 1: RUNNING -> STARTING \(again\); story: CREATING -> PENDING"
    ):
        change_job(rig.job(), JobState.STARTING, said("again"))
    assert rig.job().state is JobState.RUNNING


def test_a_report_is_accepted_once_and_a_repeated_message_is_only_acknowledged(rig: Rig) -> None:
    rig.report(1, 0.3)
    assert [effect.report.position for effect in rig.of(ReportAccepted)] == [1]
    rig.say(rig.key(), Reports((Report(1, {"score": 0.3}),)), sequence=2)
    assert rig.effects == [Acknowledge(rig.key(), 2)]
    assert len(rig.called(ApplicationStat)) == len(rig.called(IterationFinish)) == 1


def test_a_gap_is_ignored_until_it_is_filled(rig: Rig) -> None:
    assert rig.say(rig.key(), Reports((Report(2, {"score": 0.4}),)), sequence=3) == []
    rig.say(rig.key(), Reports((Report(1, {"score": 0.3}),)), sequence=2)
    rig.say(rig.key(), Reports((Report(2, {"score": 0.4}),)), sequence=3)
    assert rig.job().high_water == 2


def test_each_report_waits_for_a_decision_unless_it_is_below_what_was_allowed(rig: Rig) -> None:
    decider(rig, Decision.proceed(4))
    rig.report(1)
    assert rig.sent() == [Decide(DecisionKind.CONTINUE, 1, 4)]
    rig.report(2)
    assert rig.sent() == []
    decider(rig, CONTINUE)
    rig.report(3)
    rig.report(4)
    assert rig.sent() == [Decide(DecisionKind.CONTINUE, 4, 4)]


def test_what_is_trained_again_is_not_told_to_the_policy_and_a_difference_is_noted(rig: Rig) -> None:
    rig.report(1, 0.1)
    rig.taken(1)
    rig.report(2, 0.2)
    rig.ended(RunEndReason.LOST, 2)
    rig.start("1")
    assert rig.run().start == 1
    assert rig.run().allowed == 2
    rig.report(2, 0.25)
    assert not rig.of(ReportAccepted)
    assert [str(n.reason) for n in rig.of(Noted)] == [
        "position 2 was trained again and differs: {'score': 0.2} then {'score': 0.25}"
    ]
    assert rig.sent() == [Decide(DecisionKind.CONTINUE, 2)]
    assert len(rig.called(IterationFinish)) == 2


def test_an_until_that_is_reached_again_is_a_repeated_up_call() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", until=1)
    decider(rig, PARK)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.LOST, 1)
    rig.start("1", until=1)
    rig.report(1, at_until=True)
    assert [(c.position, c.repeated) for c in rig.called(IterationFinish)] == [(1, False), (1, True)]


def test_suspend_saves_and_the_job_resumes_from_there_on_another_slot(rig: Rig) -> None:
    decider(rig, SUSPEND)
    rig.report(1)
    assert rig.sent() == [Decide(DecisionKind.SUSPEND, 1)]
    assert rig.job().state is JobState.SUSPENDING
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.job().state is JobState.SUSPENDED
    rig.start("1", "n1/1")
    start = next(
        body for body in rig.stream.live["1"].ranks[0].channel.unacknowledged.values() if isinstance(body, Start)
    )
    assert (start.slot, start.snapshot, start.snapshot_nodes) == ("n1/1", snapshot(1), ("n1",))


def test_terminate_ends_the_job_at_the_boundary(rig: Rig) -> None:
    decider(rig, TERMINATE)
    rig.report(1)
    assert rig.sent() == [Decide(DecisionKind.TERMINATE, 1)]
    rig.ended(RunEndReason.TERMINATED, 1)
    assert rig.job().state is JobState.TERMINATED
    assert rig.called(RunEnd)[-1].reason is RunEndReason.TERMINATED


def test_continue_at_until_ends_the_run_and_the_job_at_its_last_position() -> None:
    rig = Rig(max_position=2)
    rig.create()
    rig.start("1")
    rig.report(1)
    rig.report(2, at_until=True)
    assert rig.sent() == [Decide(DecisionKind.CONTINUE, 2)]
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2))
    assert rig.job().state is JobState.COMPLETED


def test_amend_and_continue_at_until_goes_on_without_a_save() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", until=2)
    decider(rig, CONTINUE, AmendRun("1", "t", 5))
    rig.report(1)
    decider(rig, CONTINUE, AmendRun("1", "u", 6, (4,)))
    rig.report(2, at_until=True)
    assert rig.sent() == [Amend("u", 6, (4,)), Decide(DecisionKind.CONTINUE, 2)]
    assert rig.job().state is JobState.RUNNING
    rig.say(rig.key(), Amended("t", True, 1))
    rig.say(rig.key(), Amended("u", True, 2))
    assert (rig.run().until, rig.run().parked) == (6, False)
    assert [answer.result["accepted"] for answer in rig.called(AnswerReady)] == [True, True]


def test_an_amendment_that_is_too_late_is_answered_at_once(rig: Rig) -> None:
    decider(rig, Decision.proceed(9))
    for position in (1, 2, 3):
        rig.report(position)
    rig.command(AmendRun("1", "t", 3))
    assert rig.sent(Amend) == []
    assert rig.called(AnswerReady) == [AnswerReady("t", {"accepted": False, "position": 3})]


def test_an_amendment_under_way_when_the_run_ends_is_answered_too_late(rig: Rig) -> None:
    rig.command(AmendRun("1", "t", 8))
    rig.ended(RunEndReason.LOST, 0)
    assert rig.called(AnswerReady) == [AnswerReady("t", {"accepted": False, "position": 0})]


def test_park_is_legal_at_until_only_and_anything_else_pauses_the_experiment(rig: Rig) -> None:
    decider(rig, PARK)
    rig.report(1)
    assert rig.stream.state is ExperimentState.PAUSING
    assert "PARK is legal at a run's until only; job '1' is at 1 of 10" in str(rig.stream.reason)


def test_a_parked_run_keeps_its_slot_until_it_is_suspended() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", until=1)
    decider(rig, PARK)
    rig.report(1, at_until=True)
    assert rig.sent() == [Decide(DecisionKind.PARK, 1)]
    assert rig.stream.slots["n1/0"].run is rig.run()
    rig.command(SuspendJob("1"))
    assert rig.sent() == [Decide(DecisionKind.SUSPEND, 1)]


def test_a_job_fails_after_more_failures_than_are_allowed() -> None:
    rig = Rig(max_failures=1)
    rig.create()
    for expected in (JobState.PENDING, JobState.FAILED):
        rig.start("1")
        rig.ended(RunEndReason.FAILED, 0)
        assert rig.job().state is expected


def test_a_lost_run_that_had_saved_at_the_last_position_completes_its_job() -> None:
    rig = Rig(max_position=1)
    rig.create()
    rig.start("1")
    decider(rig, PARK)
    rig.report(1, at_until=True)
    rig.taken(1)
    rig.ended(RunEndReason.LOST, 1)
    assert rig.job().state is JobState.COMPLETED


def test_an_older_attempts_word_is_refused(rig: Rig) -> None:
    old = rig.key()
    rig.ended(RunEndReason.LOST, 0)
    rig.start("1")
    rig.say(old, Reports((Report(5, {"score": 0.9}),)))
    assert rig.of(Acknowledge)
    assert not rig.of(ReportAccepted)
    assert rig.job().high_water == 0


# ---------------------------------------------------------------------------------------------------------------- gangs


def test_a_gang_is_placed_all_or_nothing() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.command(StartJob("2", ("n1/0", "n1/1")))
    assert rig.job("2").state is JobState.PENDING
    assert rig.stream.busy == 1


def test_a_lost_rank_ends_the_gang_and_the_slots_are_free_when_all_have_left() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", "n2/0")
    rig.expire("n2")
    assert rig.sent() == [Kill(Reason(ReasonCode.RUN_OVER))]
    assert rig.job().state.live
    assert rig.stream.busy == 1
    rig.ended(RunEndReason.TERMINATED, 0)
    assert rig.job().state is JobState.PENDING
    assert rig.stream.busy == 0
    assert rig.called(RunEnd)[-1].reason is RunEndReason.LOST


def test_a_gangs_source_is_pinned_until_every_rank_has_loaded_it() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1")
    decider(rig, SUSPEND)
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.start("1", "n1/0", "n1/1")
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert entry.pins == {"run:1.2"}
    rig.say(rig.key(rank=1), Started(1))
    assert entry.pins == set()


# ----------------------------------------------------------------------------------------------------------- evaluation


def test_an_evaluation_by_parts_is_weighted_by_examples_and_changes_nothing_else() -> None:
    rig = Rig(metric="val", metric_every=9)
    rig.create()
    rig.start("1", until=1)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    for part, value, examples in (("a", 0.5, 30), ("b", 0.9, 10)):
        rig.start("1", mode=RunMode.EVALUATE, inputs={"n1/0": part})
        body = Reports((Report(1, {"val": value}, part=part, examples=examples, at_until=True),))
        rig.say(rig.key(), body)
        assert rig.sent() == [Decide(DecisionKind.CONTINUE, 1)]
        rig.ended(RunEndReason.UNTIL, 1)
    assert rig.job().curve.points[1].metrics["val"] == pytest.approx((0.5 * 30 + 0.9 * 10) / 40)
    assert (rig.job().high_water, rig.job().position, rig.job().state) == (1, 1, JobState.SUSPENDED)
    assert rig.stream.best is not None
    assert rig.stream.best[2] == pytest.approx(0.6)


def test_terminating_an_idle_job_is_immediate(rig: Rig) -> None:
    rig.create()
    rig.command(TerminateJob("2"))
    assert rig.job("2").state is JobState.TERMINATED
