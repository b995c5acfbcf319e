"""Every event has its sentence, and the sentences say what happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    AmendRun,
    Answer,
    AnswerReady,
    ApplicationStat,
    Call,
    Command,
    CreateJob,
    Decision,
    DecisionKind,
    EndExperiment,
    ExperimentChange,
    ForkJob,
    IterationFinish,
    JobCreated,
    MachinesChange,
    Predict,
    PredictionReady,
    Report,
    RequestMade,
    RunEnd,
    RunEndReason,
    RunMode,
    ShareChange,
    StartJob,
    TerminateJob,
    TimerFired,
)
from hopyard_scheduler import words
from hopyard_scheduler.core.events import (
    Amended,
    Answered,
    ClusterEvent,
    CopiesEvicted,
    DataChanged,
    Ended,
    Event,
    ExperimentEvent,
    Imported,
    JobHeld,
    JobOperated,
    MachineRecalled,
    MemberJoined,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeEvicted,
    NodeExpired,
    NodeJoined,
    NodeLost,
    Operated,
    PolicyFailed,
    Reports,
    Requested,
    RunBody,
    RunMessage,
    ShareSet,
    SnapshotShipped,
    SnapshotStored,
    Started,
    TimerElapsed,
    Updated,
)
from hopyard_scheduler.core.model import HOLD
from hopyard_scheduler.core.running import kill_timer
from hopyard_scheduler.core.values import MachineSpec, PlacedData, PlacedPartition
from hopyard_scheduler.replaying import OBJECTION
from hopyard_scheduler.story import Line, Story
from tests.unit.core.rig import Rig, settings, snapshot


def told(rig: Rig) -> list[Line]:
    """The whole story of a rig's experiment."""
    story = Story()
    return [story.tell(event) for event in rig.journal]


def last(rig: Rig, kind: type[Event] = RunMessage) -> str:
    """What the last event of a kind says."""
    return [line.text for line in told(rig) if line.kind == kind.__name__][-1]


def quiet(rig: Rig, event: Event) -> str:
    """The sentence of an event that is fed to the rig, without what the policy is told afterwards."""
    before = len(rig.journal)
    rig.feed(event)
    return told(rig)[before].text


@pytest.fixture
def rig() -> Rig:
    return Rig(machines=2)


# ---------------------------------------------------------------------------------------------------------- completeness


def _eventful() -> Rig:
    """An experiment with every class of event and of message in its journal."""
    rig = Rig(machines=2, data=PlacedData("d", (PlacedPartition("train/0"),)), max_seconds=1e6, grace=5.0)
    rig.create()
    rig.create(0.2)
    rig.command(CreateJob(str(rig.x.ordinals + 1)))
    rig.feed(Answered(rig.now, "x", f"create/{rig.x.ordinals}", {"lr": 0.3}))
    rig.start("1", "n1/0", until=6)
    rig.report(1)
    rig.taken(1)
    rig.stored(1)
    rig.command(AmendRun("1", "t1", until=8))
    rig.say(rig.key(), Amended("t1", True, 1))
    rig.join("n1", 2, runs=(rig.key(),), snapshots=("s1",))
    rig.feed(JobHeld(rig.now, "x", "2", True))
    rig.feed(JobOperated(rig.now, "x", TerminateJob("2")))
    rig.feed(Updated(rig.now, "x", "u", more_jobs=2, weight=2.0, target=0.99, cleared=("slots",)))
    rig.feed(NodeDraining(rig.now, "x", "n9"))
    rig.feed(MachineRecalled(rig.now, "x", "n9/0"))
    rig.feed(DataChanged(rig.now, "x", (PlacedPartition("train/0", places={"n1": "/a"}),)))
    rig.feed(MemberJoined(rig.now, "x", "y", settings()))
    rig.feed(Operated(rig.now, "x", "pause"))
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.join("n1", 2, "b", snapshots=("s1", "s2"))
    rig.feed(SnapshotShipped(rig.now, "x", "n1", 1, "1", 2, "s2"))
    rig.feed(NodeEvicted(rig.now, "n1", ("s2", "unknown")))
    rig.feed(Operated(rig.now, "x", "resume"))
    rig.expire("n1")
    rig.feed(TimerElapsed(1e9, "x", "policy/keep"))
    rig.hold = True
    rig.feed(Requested(rig.now, "x", "r", {"lr": 1.0}, 3))
    rig.feed(PolicyFailed(rig.now, "x", rig.held[-1].number, "Mine on up-call 9: ValueError: no"))
    rig.feed(Imported(rig.now, "x", "import", ("s2",)))
    return rig


def test_every_event_of_an_experiment_has_a_sentence() -> None:
    rig = _eventful()
    lines = told(rig)
    assert {line.kind for line in lines} == {cls.__name__ for cls in get_args(ExperimentEvent)}
    bodies = {type(event.body) for event in rig.journal if isinstance(event, RunMessage)}
    assert bodies == set(get_args(RunBody))
    assert [line.number for line in lines] == list(range(1, len(rig.journal) + 1))
    for line in lines:
        assert line.text.strip()
        assert "repetition" not in line.text
        assert "None" not in line.text, line


def test_a_node_that_comes_back_late(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    key = rig.key()
    rig.expire("n1")
    rig.join("n1", 2, runs=(key,))
    assert last(rig, NodeBack) == (
        "node n1 is back with 1 run and 0 snapshots of this experiment; run 1 of job 1, which node n1 still has, is ended "
        "there, and what it said meanwhile is refused; that run was given up"
    )
    rig.start("1", "n1/0")
    assert words.unwanted("n1", key, rig.job().attempt).endswith("; the job is at attempt 2")


def test_a_snapshot_that_a_killed_agent_left_behind(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.join("n1", 2, "b", snapshots=("s1",))
    assert "node n1 is told to bring the snapshot of job 1 at 1 to the store" in last(rig, NodeBack)
    answer = SnapshotShipped(rig.now, "x", "n1", 1, "1", 1, "s1", "the store is full")
    assert quiet(rig, answer) == "node n1 could not bring the snapshot of job 1 at 1 to the store: the store is full"
    rig.join("n1", 2, "c", snapshots=("s1",))
    answer = replace(answer, order=2, error="")
    assert quiet(rig, answer) == "node n1 brought the snapshot of job 1 at 1 to the store"


def test_every_event_of_the_cluster_has_a_sentence() -> None:
    story = Story()
    events: list[Event] = [
        NodeJoined(1.0, "n", "i", (MachineSpec("n/0"), MachineSpec("n/1"))),
        NodeDrained(2.0, "n"),
        NodeExpired(3.0, "n"),
        NodeEvicted(4.0, "n", ("s",)),
    ]
    assert {type(event) for event in events} == set(get_args(ClusterEvent))
    assert [story.tell(event).text for event in events] == [
        "node n joined with n/0, n/1 and 0 runs",
        "node n is drained: its runs are suspended at their next boundary",
        "node n was silent beyond its lease and is lost",
        "node n deleted its copies of 1 snapshot in the store, to make room",
    ]


_VALUES: dict[str, Any] = {
    "job": "3", "ticket": "7.1", "machine": "n/0", "machines": ("n/0",), "source": "1", "parent": "1", "position": 4,
    "hyperparameters": {"lr": 0.5}, "priority": 2.0, "kind": "milp", "at": 9.0, "report": Report(4, {"score": 0.5}),
    "attempt": 2, "reason": RunEndReason.LOST, "resume_position": 2, "slots": 2, "change": "paused",
}  # fmt: skip


@pytest.mark.parametrize("cls", [*get_args(Call), *get_args(Command)], ids=lambda cls: cls.__name__)
def test_every_up_call_and_command_has_words(cls: type) -> None:
    made = cls(**{name: _VALUES[name] for name in cls.__dataclass_fields__ if name in _VALUES})  # type: ignore[attr-defined]
    said = words.told(made) if isinstance(made, Call) else words.command(made)
    assert said
    assert "None" not in said


def test_up_calls_are_told_with_what_they_carry() -> None:
    report = Report(6, {"score": 0.5}, at_until=True)
    assert [
        words.told(call)
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
            MachinesChange(("n/0",), ("n/1",)),
            ExperimentChange("target"),
            TimerFired("t"),
        )
    ] == [
        "offered idle machines",
        "told of job 3 at 6",
        "asked again about job 3 at its until 6",
        "told that run 2 of job 3 ended LOST at 7",
        "told of the new job 4",
        "given the prediction for job 3, which failed: no predictor",
        "given the answer to 7.2",
        "asked for lr=0.5 at 9",
        "told that its share is 1 machine",
        "told that n/0 came and n/1 went",
        "told that the experiment is retargeted",
        "told that the time of t has come",
    ]


# ------------------------------------------------------------------------------------------------------------- sentences


def test_a_start_says_where_which_attempt_and_from_what(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0", until=5, allowed=3)
    start, up = told(rig)[-2:]
    assert start.text.endswith(
        "the policy starts job 1 on n1/0 up to 5 without a decision before 3 (attempt 1, from the start)"
    )
    assert up.text == "run 1 of job 1 is up from the start"


def test_reports_and_decisions(rig: Rig) -> None:
    rig.create()
    rig.start()
    rig.script = lambda call: (Decision(DecisionKind.CONTINUE, 8) if isinstance(call, IterationFinish) else None, [])
    rig.report(6, 0.91)
    texts = [line.text for line in told(rig)[-3:]]
    assert texts == [
        "run 1 of job 1 reported 6: score 0.91",
        "the policy was told of job 1 at 6",
        "the policy was asked about job 1 at 6 and decided CONTINUE up to 8",
    ]


def test_a_lost_node_tells_what_was_lost_and_where_it_goes_on(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5)
    rig.taken(5)
    rig.stored(5)
    rig.report(7)
    before = len(rig.journal)
    rig.expire("n1")
    assert told(rig)[before].text == (
        "node n1 is lost, so run 1 of job 1 was lost at 7; job 1 is SUSPENDED and goes on from the snapshot at 5"
    )


def test_a_hop_says_where_from_and_a_lost_snapshot_what_that_means() -> None:
    rig = Rig(machines=1, ship_every=0)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", until=1)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    rig.command(StartJob("1", ("n2/0",), until=2, inputs={"n2/0": "b"}, preemptible=False))
    assert told(rig)[-1].text.endswith(
        "the policy starts job 1 on n2/0 up to 2 with b not to be preempted (attempt 2, from the snapshot at 1 on n1)"
    )
    rig.say(rig.key(), Started(1, 2048))
    assert last(rig) == "run 2 of job 1 is up from the snapshot at 1, 2.0 KiB of it from another agent"
    rig.report(2, at_until=True)
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2))
    rig.expire("n2")
    assert last(rig, NodeLost) == (
        "node n2 is lost; job 1 goes back to its snapshot at 1: the one at 2 was nowhere else"
    )


def test_a_late_message_of_an_old_attempt_is_told_as_refused(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5)
    old = rig.key()
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    rig.say(old, Reports((Report(6, {"score": 0.1}),)))
    assert last(rig) == "a late message of run 1 of job 1 was refused (reported 6: score 0.1); the job is at attempt 2"


def test_what_is_trained_again_and_differs_is_told(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5, 0.5)
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    rig.report(5, 0.6)
    assert last(rig).startswith(
        "run 2 of job 1 reported 5: score 0.6 (again) (position 5 was trained again and differs"
    )


def test_a_refused_command_says_why(rig: Rig) -> None:
    rig.command(StartJob("9", ("n1/0",)))
    (line,) = (line for line in told(rig) if "starts job 9" in line.text)
    assert line.text.endswith("the policy starts job 9 on n1/0, refused: there is no job '9'")
    assert line.jobs == ("9",)


def test_a_failing_policy_pauses_with_its_error(rig: Rig) -> None:
    rig.hold = True
    rig.feed(Requested(rig.now, "x", "r", {"lr": 1.0}, 3))
    rig.feed(PolicyFailed(rig.now, "x", rig.held[-1].number, "Mine: ValueError: no"))
    assert last(rig, PolicyFailed) == (
        "the policy was asked for lr=1 at 3 and failed; the experiment is PAUSED: policy error: Mine: ValueError: no"
    )


def test_a_policy_that_changed_is_told(rig: Rig) -> None:
    rig.hold = True
    rig.feed(Requested(rig.now, "x", "r", {"lr": 1.0}, 3))
    rig.feed(PolicyFailed(rig.now, "x", rig.held[-1].number, f"{OBJECTION}: event 3"))
    assert last(rig, PolicyFailed).startswith(
        "the scheduler restarted and found that the policy decides otherwise now; the experiment"
    )


def test_shares_and_people(rig: Rig) -> None:
    assert quiet(rig, ShareSet(rig.now, "x", 4)) == "the share changed 2 -> 4 machines"
    assert quiet(rig, ShareSet(rig.now, "x", 4)) == "the share is 4 machines as before"
    assert quiet(rig, Operated(rig.now, "x", "pause")).startswith(
        "a person paused the experiment; the experiment is PAUS"
    )
    assert quiet(rig, Operated(rig.now, "x", "pause")) == "a person paused the experiment again, which changed nothing"
    assert quiet(rig, JobOperated(rig.now, "x", TerminateJob("7"))) == (
        "a person terminates job 7 (refused TerminateJob: there is no job '7')"
    )


def test_the_cores_own_timers_say_what_their_end_means(rig: Rig) -> None:
    rig.create()
    for _ in range(2):
        rig.start("1", "n1/0")
        rig.ended(RunEndReason.LOST, 0)
    rig.now = rig.x.timers[HOLD + "1"]
    rig.feed(TimerElapsed(rig.now, "x", HOLD + "1"))
    assert [line.jobs for line in told(rig) if line.kind == "TimerElapsed"] == [("1",)]
    assert last(rig, TimerElapsed) == "job 1 has waited after losses or failures, and may try again"
    rig.start("1", "n1/0")
    rig.command(TerminateJob("1"))
    timer = kill_timer(rig.run())
    rig.now = rig.x.timers[timer]
    rig.feed(TimerElapsed(rig.now, "x", timer))
    assert last(rig, TimerElapsed) == "run 3 of job 1 was to leave and has not, so its processes are ended"


def test_an_end_that_the_policy_wants_says_why_and_who_won(rig: Rig) -> None:
    assert words.command(EndExperiment("small enough", "3")) == "ends the experiment: small enough, job 3 has won"
    assert words.command(EndExperiment("enough", experiment="y")) == "ends the experiment y: enough"


def test_in_a_group_it_is_said_whose_terms_and_whose_jobs(rig: Rig) -> None:
    rig.feed(MemberJoined(rig.now, "x", "y", settings()))
    rig.feed(Updated(rig.now, "x", "u", more_jobs=2, member="y"))
    assert last(rig, Updated) == "a person changed the terms of experiment y: 2 more jobs"
    assert words.command(CreateJob("7", {"lr": 0.5}, "y")) == "creates job 7 for experiment y with lr=0.5"
    forked = words.command(ForkJob("8", "1", 4, {"lr": 0.5}, "y"))
    assert forked == "forks job 8 for experiment y from job 1 at 4 with lr=0.5"


def test_an_end_says_where_the_job_stands(rig: Rig) -> None:
    rig.create()
    rig.start(until=4)
    rig.report(4, at_until=True)
    before = len(rig.journal)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    assert told(rig)[before].text == (
        "run 1 of job 1 left its machine at 4 (UNTIL, its state saved): told; "
        "job 1 is SUSPENDED and goes on from the snapshot at 4: reached position 4"
    )


def test_a_job_that_is_trained_to_its_end_leaves_and_is_not_suspended() -> None:
    rig = Rig(max_position=4)
    rig.create()
    rig.start(until=4)
    rig.report(4, at_until=True)
    told_ = "; ".join(line.text for line in told(rig))
    assert "job 1 leaves its machine: has no more to train, saving" in told_
    assert "SUSPEND" not in told_


def test_a_line_about_one_job_leaves_the_others_out() -> None:
    rig = Rig(machines=2)
    rig.create()
    rig.create(0.2)
    rig.command(StartJob("1", ("n1/0",)), StartJob("2", ("n1/1",)))
    line = next(line for line in told(rig) if line.jobs == ("1", "2"))
    about = line.about("2")
    assert about is not None
    assert about.text == "the policy starts job 2 on n1/1 (attempt 1, from the start)"
    assert line.about("3") is None


def test_bodies_that_a_rig_does_not_say() -> None:
    rig = Rig(machines=2)
    rig.create()
    rig.command(StartJob("1", ("n1/0", "n1/1"), mode=RunMode.TRAIN))
    rig.say(rig.key(rank=1), Started(0))
    assert last(rig) == "run 1 of job 1 (rank 1) is up from the start"
    rig.command(AmendRun("1", "t", until=9))
    rig.say(rig.key(), Amended("t", False, 9))
    assert "run 1 of job 1 was already at 9: amendment t came too late" in [line.text for line in told(rig)]
    before = len(rig.journal)
    rig.say(rig.key(), Ended(RunEndReason.FAILED, 3, None, True, "train at position 3: ValueError: no\n  File ..."))
    assert told(rig)[before].text == "run 1 of job 1 failed at 3: train at position 3: ValueError: no"


def test_terms_and_answers() -> None:
    rig = _eventful()
    texts = [line.text for line in told(rig)]
    assert "a person changed the terms: 2 more jobs, target 0.99, weight 2, no slots" in texts
    assert "the generator proposed job 3: lr=0.3" in texts
    assert "the policy's timer keep elapsed" in texts
    assert f"max {settings().metric}, 8 jobs of 10 positions, for 11d 13h" in texts[0]
    assert Answer(1).commands == ()


def test_a_quota_that_does_not_suffice_is_told_beside_its_event() -> None:
    rig = Rig(machines=1, snapshot_quota=4)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    assert last(rig) == (
        "run 1 of job 1 saved a snapshot at 1 (10 B); snapshots take 10 bytes, 6 more than snapshot.quota; all of them "
        "are still needed, so none is dropped"
    )


def test_that_a_snapshot_was_stored_is_routine_and_that_it_was_not_is_none() -> None:
    rig = Rig(machines=1)
    rig.create()
    rig.start("1", "n1/0")
    for position in (1, 2):
        rig.report(position)
        rig.taken(position)
    rig.stored(1)
    line = told(rig)[-1]
    about = line.about("1")
    assert line.routine
    assert about is not None
    assert about.routine
    rig.say(rig.key(), SnapshotStored(2, "s2", "no space left"))
    assert [one.text for one in told(rig) if one.routine] == [line.text]


def test_evicted_copies_are_told() -> None:
    rig = Rig(machines=1)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.stored(1)
    rig.feed(NodeEvicted(rig.now, "n1", ("s1",)))
    assert last(rig, CopiesEvicted) == "node n1 deleted its copies of 1 snapshot in the store, to make room"


def test_where_partitions_are_is_told() -> None:
    rig = Rig(machines=1, data=PlacedData("d", (PlacedPartition("train/0"),)))
    here = PlacedPartition("train/0", places={"n2": "/b", "n1": "/a"})
    far = PlacedPartition("eval/0", url="s3://b/e")
    assert quiet(rig, DataChanged(rig.now, "x", (here, far))) == (
        "partition train/0 is on n1, n2; no node has read partition eval/0 yet"
    )
    assert (
        quiet(rig, DataChanged(rig.now, "x", (PlacedPartition("train/0"),))) == "no live node holds partition train/0"
    )
    assert "the policy was told that partitions are held by other nodes" in [line.text for line in told(rig)]


def test_a_lost_node_takes_its_partitions_along() -> None:
    parts = [PlacedPartition(f"train/{n}", places={f"n{n}": "/a"}, homes=(f"n{n}",)) for n in (1, 2)]
    rig = Rig(machines=1, data=PlacedData("d", tuple(parts)))
    rig.expire("n1")
    assert last(rig, NodeLost) == "node n1 is lost; no live node holds partition train/1"


def test_an_import_is_told_with_what_came_along() -> None:
    rig = Rig(machines=1)
    assert quiet(rig, Imported(rig.now, "x", "r", ("s1",))).startswith(
        "the experiment was brought here from another cluster; 1 snapshot came along"
    )


def test_predictions_say_what_is_expected_or_what_failed(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    rig.report(1)
    rig.command(Predict("7.1", "1", {"target": 0.9}), Predict("7.2", "1"), Predict("7.3", "1"))
    prediction = {"positions": [2, 10], "mean": [0.5, 0.75], "deviation": [0.1, 0.125], "reaches": [0.0, 0.25]}
    rig.feed(Answered(rig.now, "x", "policy/7.1", prediction))
    rig.feed(Answered(rig.now, "x", "policy/7.2", {"positions": []}))
    rig.feed(Answered(rig.now, "x", "policy/7.3", None, "predictor p took longer than 60 s over one prediction"))
    lines = [line for line in told(rig) if line.kind == "Answered" and line.jobs == ("1",)][-3:]
    assert [line.text for line in lines] == [
        "the prediction of job 1 (7.1): 0.75 ± 0.125 is expected at 10, the target with a chance of 0.25",
        "the prediction of job 1 (7.2): it is where it would be complete",
        "the prediction of job 1 (7.3) failed: predictor p took longer than 60 s over one prediction",
    ]
