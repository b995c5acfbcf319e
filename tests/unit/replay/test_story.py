"""Tests that every event has a sentence in the story, and of the sentences about policies and people."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Answer,
    AnswerReady,
    ApplicationStat,
    Call,
    Command,
    CreateJob,
    EndExperiment,
    ExperimentChange,
    ExperimentId,
    ForkJob,
    IterationFinish,
    JobCreated,
    KeepSnapshots,
    Predict,
    PredictionReady,
    Report,
    RequestMade,
    RunEnd,
    RunEndReason,
    ShareChange,
    SlotsChange,
    StartJob,
    StreamId,
    TerminateJob,
    TimerFired,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions.runs import kill_timer
from hopyard_engine.core.events import (
    Answered,
    ClusterEvent,
    DeletionCompleted,
    DrainExpired,
    Event,
    ExperimentJoined,
    JobOperated,
    NodeDrained,
    NodeEvicted,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeUndrained,
    Operated,
    PolicyFailed,
    Requested,
    RunBody,
    RunMessage,
    ShareSet,
    StoreQuotaSet,
    StreamDeleted,
    StreamEvent,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.state.timers import BackoffTimer
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.explain.story import Story
from hopyard_engine.policy_host import answer_text
from tests.reasons import failure
from tests.unit.core.rig import Rig, settings
from tests.unit.replay.story import eventful, last, quiet, told

pytestmark = pytest.mark.quick


def test_every_event_of_an_experiment_has_a_sentence() -> None:
    rig = eventful()
    lines = told(rig)
    assert {line.kind for line in lines} == {cls.__name__ for cls in get_args(StreamEvent)}
    bodies = {type(event.body) for event in rig.journal if isinstance(event, RunMessage)}
    assert bodies == set(get_args(RunBody))
    assert [line.number for line in lines] == list(range(1, len(rig.journal) + 1))
    for line in lines:
        assert line.text.strip()
        assert "repetition" not in line.text
        assert "None" not in line.text, line


def test_processes_of_a_policy_that_come_and_go_are_told() -> None:
    lines = [line.text for line in told(eventful()) if line.kind == "PolicyProcess"]
    assert lines == [
        "the process of the policy disconnected",
        "a process of the policy connected, and got 2 up-calls again",
    ]


def test_every_event_of_the_cluster_has_a_sentence() -> None:
    story = Story()
    events: list[Event] = [
        NodeJoined(1.0, "n", "i", (SlotSpec("n/0"), SlotSpec("n/1"))),
        NodeDrained(2.0, "n"),
        NodeExpired(3.0, "n"),
        NodeUndrained(3.0, "n"),
        DrainExpired(3.0, "n"),
        NodeLeaving(3.0, "n", "i"),
        NodeForgotten(3.0, "n"),
        NodeEvicted(4.0, "n", ("s",)),
        StoreQuotaSet(5.0, 10),
        StreamDeleted(5.0, StreamId("e1"), (ExperimentId("e1"), ExperimentId("e2"))),
        DeletionCompleted(5.0, StreamId("e1")),
    ]
    assert {type(event) for event in events} == set(get_args(ClusterEvent))
    assert [story.tell(event).text for event in events] == [
        "node n joined with n/0, n/1 and 0 runs",
        "node n is drained: its runs are suspended at their next boundary",
        "node n was silent beyond its lease and is lost",
        "node n is not drained any more",
        "the drain of node n reached its deadline: its runs are ended",
        "node n is leaving: its runs are suspended at their next boundary",
        "node n was removed from the list of nodes",
        "node n deleted its copies of 1 snapshot in the store, to free space",
        "the snapshots of all experiments may take 10 bytes in the store",
        "a person deleted e1 and e2",
        "what the store had of e1 is deleted",
    ]
    assert "may take any number of bytes" in story.tell(StoreQuotaSet(6.0, None)).text


_VALUES: dict[str, Any] = {
    "job": "3", "ticket": "7.1", "slot": "n/0", "slots": ("n/0",), "source": "1", "parent": "1", "position": 4,
    "hyperparameters": {"lr": 0.5}, "priority": 2.0, "kind": "milp", "at": 9.0, "report": Report(4, {"score": 0.5}),
    "attempt": 2, "reason": RunEndReason.LOST, "resume_position": 2, "change": "paused",
}  # fmt: skip


@pytest.mark.parametrize("cls", [*get_args(Call), *get_args(Command)], ids=lambda cls: cls.__name__)
def test_every_up_call_and_command_has_words(cls: type) -> None:
    values = _VALUES | ({"slots": 2} if cls is ShareChange else {})
    made = cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})  # type: ignore[attr-defined]
    said = answer_text.told(made) if isinstance(made, Call) else answer_text.command(made)
    assert said
    assert "None" not in said


def test_up_calls_are_told_with_what_they_carry() -> None:
    report = Report(6, {"score": 0.5}, at_until=True)
    assert [
        answer_text.told(call)
        for call in (
            AllocateJobs(),
            ApplicationStat("3", report),
            IterationFinish("3", report, repeated=True),
            RunEnd("3", 2, RunEndReason.LOST, 7, 5),
            JobCreated("4"),
            PredictionReady("7.1", "3", error="no predictor"),
            AnswerReady("7.2"),
            RequestMade("r", {"lr": 0.5}, 9),
            ShareChange(1, 10.0),
            SlotsChange(("n/0",), ("n/1",)),
            ExperimentChange("target"),
            TimerFired("t"),
        )
    ] == [
        "offered idle slots",
        "informed about job 3 at 6",
        "asked again about job 3 at its until 6",
        "informed that run 2 of job 3 ended LOST at 7",
        "informed about the new job 4",
        "given the prediction for job 3, which failed: no predictor",
        "given the answer to 7.2",
        "asked for lr=0.5 at 9",
        "informed that its share is 1 slot",
        "informed that n/0 joined and n/1 left",
        "informed that the experiment has another target",
        "informed that timer t has elapsed",
    ]


def test_a_refused_command_says_why(rig: Rig) -> None:
    rig.command(StartJob("9", ("n1/0",)))
    (line,) = (line for line in told(rig) if "starts job 9" in line.text)
    assert line.text.endswith("the policy starts job 9 on n1/0, refused: there is no job '9'")
    assert line.jobs == ("9",)


def test_a_failing_policy_pauses_with_its_error(rig: Rig) -> None:
    rig.hold = True
    rig.feed(Requested(rig.now, StreamId("x"), "r", {"lr": 1.0}, 3))
    rig.feed(PolicyFailed(rig.now, StreamId("x"), rig.held[-1].number, failure("Mine: ValueError: no")))
    assert last(rig, PolicyFailed) == (
        "the policy was asked for lr=1 at 3 and failed; the experiment is PAUSED: policy error: Mine: ValueError: no"
    )


DIVERGED = Reason.of(ReasonCode.POLICY_DIVERGED, event=3, call="asked", recorded="PARK", computed="CONTINUE")


def test_a_policy_that_changed_is_told(rig: Rig) -> None:
    rig.hold = True
    rig.feed(Requested(rig.now, StreamId("x"), "r", {"lr": 1.0}, 3))
    rig.feed(PolicyFailed(rig.now, StreamId("x"), rig.held[-1].number, DIVERGED))
    assert last(rig, PolicyFailed).startswith(
        "the scheduler restarted and found that the policy decides differently now; the experiment"
    )


def test_shares_and_people(rig: Rig) -> None:
    assert quiet(rig, ShareSet(rig.now, StreamId("x"), 4)) == "the share changed 2 -> 4 slots"
    assert quiet(rig, ShareSet(rig.now, StreamId("x"), 4)) == "the share is 4 slots as before"
    assert quiet(rig, Operated(rig.now, StreamId("x"), "pause")).startswith(
        "a person paused the experiment; the experiment is PAUS"
    )
    assert (
        quiet(rig, Operated(rig.now, StreamId("x"), "pause"))
        == "a person paused the experiment again, which changed nothing"
    )
    assert quiet(rig, JobOperated(rig.now, StreamId("x"), TerminateJob("7"))) == (
        "a person terminates job 7 (refused TerminateJob: there is no job '7')"
    )


def test_the_cores_own_timers_say_what_their_end_means(rig: Rig) -> None:
    rig.create()
    for _ in range(2):
        rig.start("1", "n1/0")
        rig.ended(RunEndReason.LOST, 0)
    rig.now = rig.stream.timers[BackoffTimer("1").ticket]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), BackoffTimer("1").ticket))
    assert [line.jobs for line in told(rig) if line.kind == "TimerElapsed"] == [("1",)]
    assert last(rig, TimerElapsed) == "job 1 has waited after losses or failures, and may try again"
    rig.start("1", "n1/0")
    rig.command(TerminateJob("1"))
    timer = kill_timer(rig.run()).ticket
    rig.now = rig.stream.timers[timer]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), timer))
    assert last(rig, TimerElapsed) == "run 3 of job 1 did not leave in time, so its processes are ended"


def test_an_end_that_the_policy_wants_says_why_and_who_won(rig: Rig) -> None:
    assert (
        answer_text.command(EndExperiment("small enough", "3"))
        == "ends the experiment: small enough; the winner is job 3"
    )
    assert answer_text.command(EndExperiment("enough", experiment="y")) == "ends the experiment y: enough"


def test_snapshots_that_the_policy_lets_go_are_named_by_those_that_stay(rig: Rig) -> None:
    assert answer_text.command(KeepSnapshots("3")) == "releases the snapshots of job 3"
    assert answer_text.command(KeepSnapshots("3", (4, 6))) == "releases the snapshots of job 3 except those at 4, 6"


def test_in_a_group_it_is_said_whose_terms_and_whose_jobs(rig: Rig) -> None:
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings()))
    rig.feed(Updated(rig.now, StreamId("x"), "u", more_jobs=2, experiment=ExperimentId("y")))
    assert last(rig, Updated) == "a person changed the terms of experiment y: 2 more jobs"
    assert answer_text.command(CreateJob("7", {"lr": 0.5}, "y")) == "creates job 7 for experiment y with lr=0.5"
    forked = answer_text.command(ForkJob("8", "1", 4, {"lr": 0.5}, "y"))
    assert forked == "forks job 8 for experiment y from job 1 at 4 with lr=0.5"


def test_a_line_about_one_job_leaves_the_others_out() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.create(0.2)
    rig.command(StartJob("1", ("n1/0",)), StartJob("2", ("n1/1",)))
    line = next(line for line in told(rig) if line.jobs == ("1", "2"))
    about = line.about("2")
    assert about is not None
    assert about.text == "the policy starts job 2 on n1/1 (attempt 1, from the start)"
    assert line.about("3") is None


def test_terms_and_answers() -> None:
    rig = eventful()
    texts = [line.text for line in told(rig)]
    assert "a person changed the terms: 2 more jobs, target 0.99, weight 2, no slots" in texts
    assert "the generator proposed job 3: lr=0.3" in texts
    assert "the policy's timer keep elapsed" in texts
    assert f"max {settings().metric}, 8 jobs of 10 positions, for 11d 13h" in texts[0]
    assert Answer(1).commands == ()


def test_predictions_say_what_is_expected_or_what_failed(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    rig.report(1)
    rig.command(Predict("7.1", "1", {"target": 0.9}), Predict("7.2", "1"), Predict("7.3", "1"))
    prediction = {"positions": [2, 10], "mean": [0.5, 0.75], "deviation": [0.1, 0.125], "reaches": [0.0, 0.25]}
    rig.feed(Answered(rig.now, StreamId("x"), "policy/7.1", prediction))
    rig.feed(Answered(rig.now, StreamId("x"), "policy/7.2", {"positions": []}))
    rig.feed(
        Answered(rig.now, StreamId("x"), "policy/7.3", None, "predictor p took longer than 60 s over one prediction")
    )
    lines = [line for line in told(rig) if line.kind == "Answered" and line.jobs == ("1",)][-3:]
    assert [line.text for line in lines] == [
        "the prediction of job 1 (7.1): 0.75 ± 0.125 is expected at 10, the target with probability 0.25",
        "the prediction of job 1 (7.2): it has reached its horizon",
        "the prediction of job 1 (7.3) failed: predictor p took longer than 60 s over one prediction",
    ]
