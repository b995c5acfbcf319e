"""Tests of experiments, nodes, forks, shares and recovery, with cases computed by hand."""

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import (
    SUSPEND,
    AnswerJob,
    ApplicationStat,
    Call,
    Command,
    CreateJob,
    Decision,
    ExperimentChange,
    ExperimentState,
    ForkJob,
    IterationFinish,
    JobState,
    LabelJob,
    Predict,
    RunEndReason,
    RunKey,
    ShareChange,
    SlotsChange,
    StartJob,
    StreamId,
    TerminateJob,
    WakeAt,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core, UnknownStreamError
from hopyard_engine.core.effects import (
    Acknowledge,
    AskOutside,
    Decide,
    ForgetSnapshot,
    Send,
    SetTimer,
    Start,
    UpCall,
    Welcome,
)
from hopyard_engine.core.events import (
    JobOperated,
    NodeDrained,
    NodeJoined,
    Operated,
    PolicyAnswered,
    Reports,
    RunMessage,
    Started,
    StreamCreated,
    StreamEvent,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.state.experiment import GeneratorCall
from hopyard_engine.core.types import SlotSpec
from tests.simulation import dump
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create()
    made.start("1")
    return made


def save(rig: Rig, position: int, name: str = "1") -> None:
    """Suspend a run with an uploaded snapshot."""
    rig.script = lambda call: (SUSPEND if isinstance(call, IterationFinish) else None, [])
    rig.report(position, name=name)
    rig.ended(RunEndReason.SUSPENDED, position, snapshot(position), name)
    rig.stored(position, name)


# --------------------------------------------------------------------------------------------- pause, end, extend, target


def test_pause_is_complete_when_runs_have_left_and_their_state_is_stored(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.stream.state is ExperimentState.PAUSING
    rig.stored(1)
    assert str(rig.stream.state) == "ExperimentState.PAUSED"
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    rig.start("1")
    assert rig.run().start == 1


def paused(rig: Rig) -> None:
    """Let a person pause the experiment."""
    rig.feed(Operated(rig.now, StreamId("x"), "pause", ends_if_done=True))


def test_a_pause_during_which_the_last_job_ends_completes_the_experiment() -> None:
    rig = Rig(jobs=1, max_position=2)
    rig.create()
    rig.start()
    paused(rig)
    rig.report(2)
    rig.ended(RunEndReason.UNTIL, 2)
    assert rig.job().state is JobState.COMPLETED
    assert (rig.stream.state, rig.stream.reason) == (ExperimentState.COMPLETED, Reason(ReasonCode.ALL_JOBS_ENDED))
    assert not rig.stream.slots


def test_a_pause_completes_only_after_the_policy_has_answered() -> None:
    rig = Rig(jobs=1, max_position=2)
    rig.create()
    rig.start()
    paused(rig)
    rig.hold = True
    rig.report(2)
    rig.ended(RunEndReason.UNTIL, 2)
    assert rig.stream.state is ExperimentState.PAUSED
    rig.hold = False
    while rig.held:
        rig.feed(rig.answer(rig.held.popleft()))
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"


def test_a_paused_experiment_ends_as_one_that_runs() -> None:
    reached = Rig(jobs=1, target=0.9, max_position=2)
    failed = Rig(jobs=1, max_failures=0)
    for rig in (reached, failed):
        rig.create()
        rig.start()
        paused(rig)
    reached.report(2, 0.95)
    reached.ended(RunEndReason.UNTIL, 2)
    assert reached.stream.state is ExperimentState.COMPLETED
    assert reached.stream.reason is not None
    assert reached.stream.reason.code is ReasonCode.TARGET_REACHED
    failed.ended(RunEndReason.FAILED, 0)
    assert failed.stream.state is ExperimentState.FAILED
    assert failed.stream.reason is not None
    assert failed.stream.reason.code is ReasonCode.EVERY_JOB_FAILED


def test_a_paused_experiment_completes_when_a_person_ends_its_last_job() -> None:
    rig = Rig(jobs=1)
    rig.create()
    paused(rig)
    assert rig.stream.state is ExperimentState.PAUSED
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("1")))
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"


def test_a_paused_experiment_with_work_left_stays_paused() -> None:
    jobs, recorded = Rig(jobs=2, max_position=2), Rig(jobs=1, max_position=2)
    for rig in (jobs, recorded):
        rig.create()
        rig.start()
    paused(jobs)
    # As in the journals of earlier versions.
    recorded.feed(Operated(recorded.now, StreamId("x"), "pause"))
    for rig in (jobs, recorded):
        rig.report(2)
        rig.ended(RunEndReason.UNTIL, 2)
        assert rig.stream.state is ExperimentState.PAUSED


def test_stop_terminates_runs_and_idle_jobs_and_gives_the_slots_back(rig: Rig) -> None:
    rig.create()
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.job("2").state is JobState.TERMINATED
    rig.ended(RunEndReason.TERMINATED, 0)
    assert rig.stream.state is ExperimentState.STOPPED
    assert not rig.stream.slots
    assert not rig.core.cluster.tenants


def test_a_target_that_is_reached_ends_the_experiment_and_completes_the_winner() -> None:
    rig = Rig(target=0.9)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.start("2", "n1/1")
    rig.report(1, 0.95)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert rig.stream.state is ExperimentState.ENDING  # It waits for the upload of the winner's snapshot.
    rig.stored(1)
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"
    assert [rig.job(name).state for name in ("1", "2")] == [JobState.COMPLETED, JobState.TERMINATED]


def test_the_end_of_its_time_ends_it_and_a_pause_does_not_count() -> None:
    rig = Rig(max_seconds=100.0)
    rig.now += 40
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert rig.of(SetTimer) == [SetTimer(StreamId("x"), "core/end/x", None)]
    rig.now += 1000
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.timers["core/end/x"] == rig.now + 60
    rig.feed(TimerElapsed(rig.now + 59, StreamId("x"), "core/end/x"))
    assert rig.stream.state is ExperimentState.RUNNING
    rig.feed(TimerElapsed(rig.now + 60, StreamId("x"), "core/end/x"))
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"


def test_an_extended_experiment_goes_on_with_its_completed_jobs() -> None:
    rig = Rig(max_position=1, jobs=1)
    rig.create()
    rig.start("1")
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    rig.stored(1)
    assert rig.stream.state is ExperimentState.COMPLETED
    assert rig.stream.share == 0
    rig.script = lambda call: (None, [WakeAt("more", 1e9)] if isinstance(call, ExperimentChange) else [])
    rig.feed(Updated(rig.now, StreamId("x"), "u1", max_position=3))
    rig.feed(Updated(rig.now, StreamId("x"), "u1", max_position=9))
    assert (rig.stream.settings.max_position, rig.job().state, rig.stream.share) == (3, JobState.SUSPENDED, 2)
    rig.start("1")
    assert rig.run().start == 1


def test_a_job_that_trained_beyond_the_new_end_stays_completed_when_its_experiment_is_extended() -> None:
    rig = Rig(max_position=8, jobs=1)
    rig.create()
    rig.start("1")
    rig.report(13, at_until=True)  # The program reports every 13 positions only.
    rig.ended(RunEndReason.UNTIL, 13, snapshot(13))
    rig.stored(13)
    assert rig.stream.state is ExperimentState.COMPLETED
    rig.feed(Updated(rig.now, StreamId("x"), "u1", max_position=10))
    assert (rig.job().state, rig.job().position) == (JobState.COMPLETED, 13)
    assert (str(rig.stream.state), str(rig.stream.reason)) == ("ExperimentState.COMPLETED", "all jobs ended")
    rig.feed(Updated(rig.now, StreamId("x"), "u2", max_position=20))
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 13)


def test_a_policy_that_is_refused_again_and_again_pauses_its_experiment() -> None:
    rig = Rig()
    rig.create()
    rig.script = lambda call: (None, [StartJob("1", ("n1/0",), until=99)])
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.state in (ExperimentState.PAUSING, ExperimentState.PAUSED)
    assert "until must be in 1..10 for job '1', found 99" in str(rig.stream.reason)


# ------------------------------------------------------------------------------------------------------- forks and answers


def test_a_fork_starts_from_the_pinned_snapshot_and_continues_the_curve(rig: Rig) -> None:
    rig.report(1, 0.1)
    save(rig, 2)
    rig.command(ForkJob("2", "1", 2, {"lr": 0.5}))
    assert rig.stream.snapshots.get("1", 2).pins == {"fork:2"}  # type: ignore[union-attr]
    rig.start("2")
    rig.report(3, 0.7, name="2")
    assert [p.position for p in rig.stream.curve(rig.job("2"))] == [1, 2, 3]
    rig.taken(3, "2")
    rig.stored(3, "2")
    assert rig.stream.snapshots.get("1", 2).pins == set()  # type: ignore[union-attr]


def test_two_jobs_that_start_from_each_others_snapshots_have_finite_curves(rig: Rig) -> None:
    rig.report(1, 0.1)
    save(rig, 2)
    rig.create()
    rig.start("2", from_snapshot=("1", 2))
    rig.report(3, 0.3, name="2")
    save(rig, 4, "2")
    rig.start("1", from_snapshot=("2", 4))
    rig.report(5, 0.5)
    assert [p.position for p in rig.stream.curve(rig.job("1"))] == [1, 2, 3, 4, 5]


def test_a_fork_at_the_last_position_is_refused(rig: Rig) -> None:
    rig.report(1)
    rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=10))
    rig.taken(1)
    rig.stream.snapshots.taken("1", snapshot(10), "n1", 1)
    rig.command(ForkJob("2", "1", 10, {}))
    assert "2" not in rig.stream.jobs


def test_processes_are_forked_with_their_own_hyperparameters_alone() -> None:
    rig = Rig()
    rig.create()
    rig.create(lr=0.5)
    rig.start("1")
    rig.script = lambda call: (SUSPEND if isinstance(call, IterationFinish) else None, [])
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, replace(snapshot(1), provider="criu"))
    rig.command(ForkJob("3", "1", 1, {"lr": 0.5}))
    assert "3" not in rig.stream.jobs
    rig.command(StartJob("2", ("n1/0",), from_snapshot=("1", 1)))
    assert rig.job("2").run is None
    rig.command(ForkJob("3", "1", 1, {"lr": 0.1}))
    rig.start("3")
    assert rig.run("3").start == 1


@pytest.mark.parametrize("running", [False, True])
def test_a_fork_whose_origin_is_lost_before_it_was_stored_fails_instead_of_starting_anew(running: bool) -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0")
    rig.script = lambda call: (SUSPEND if isinstance(call, IterationFinish) else None, [])
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.command(ForkJob("2", "1", 1, {"lr": 0.5}))
    if running:
        rig.command(StartJob("2", ("n1/0",)))
    rig.expire("n1")
    assert rig.job("2").state is JobState.FAILED
    assert str(rig.job("2").reason) == "the snapshot it was forked from was lost before it was stored"
    assert rig.job("1").state is JobState.PENDING


def test_a_job_is_answered_from_anothers_results(rig: Rig) -> None:
    rig.create()
    for position, score in ((1, 0.4), (2, 0.6), (3, 0.2)):
        rig.report(position, score)
    rig.command(AnswerJob("2", "1", 2))
    answered = rig.job("2")
    assert (answered.state, answered.position, answered.best) == (JobState.COMPLETED, 2, (0.6, 2))
    assert [p.position for p in rig.stream.curve(answered)] == [1, 2]
    told = GeneratorCall("final", "2", {"lr": 0.1}, {"score": 0.6}, position=2)
    assert rig.stream.founder.generator_calls[-1] == told


def test_how_far_others_results_count_for_a_job_is_known_until_it_is_there_itself(rig: Rig) -> None:
    for position in (1, 2, 3):
        rig.report(position)
    rig.create()
    own, other = rig.job("2"), rig.job("1")
    rig.command(AnswerJob("2", "1", 2, completes=False))
    assert (own.position, own.shared, other.shared) == (0, 2, 0)
    rig.start("2", "n1/1")
    rig.report(1, name="2")
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1), name="2")
    assert (own.position, own.shared) == (1, 2)
    rig.start("2", "n1/1")
    rig.report(3, name="2")
    rig.ended(RunEndReason.LOST, 3, name="2")
    assert (own.position, own.high_water, own.shared) == (1, 3, 0)  # What a lost run trained is trained again.


def test_labels_order_the_idle_jobs(rig: Rig) -> None:
    for _ in range(3):
        rig.create()
    rig.command(LabelJob("4", 2.0), LabelJob("3", 1.0))
    assert [job.id for job in rig.stream.idle_jobs()] == ["4", "3", "2"]


# ------------------------------------------------------------------------------------------------------ nodes and shares


def test_a_lost_node_rewinds_its_job_to_the_newest_stored_snapshot() -> None:
    rig = Rig(capacity=1, keep_latest=2)
    rig.create()
    rig.start("1")
    rig.kept(1)
    rig.report(2)
    rig.taken(2)
    rig.expire("n1")
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 1)
    assert rig.called(SlotsChange)[-1].lost == ("n1/0",)
    assert rig.of(ForgetSnapshot) == [ForgetSnapshot(StreamId("x"), "s2", (), True)]


def test_the_same_life_of_a_node_keeps_its_runs_and_gets_unacknowledged_commands_again(rig: Rig) -> None:
    rig.join("n1", 2, "a", runs=(rig.key(),))
    assert rig.of(Welcome) == [Welcome("n1", ())]
    assert rig.job().state is JobState.RUNNING
    assert [send.sequence for send in rig.core.unacknowledged("n1")] == [1]
    rig.core.acknowledge(rig.key(), 1)
    assert rig.core.unacknowledged("n1") == []


def test_a_new_life_of_a_node_has_lost_its_runs_and_keeps_its_disk(rig: Rig) -> None:
    rig.report(1)
    rig.taken(1)
    rig.join("n1", 2, "b", snapshots=("s1", "unknown"))
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 1)
    assert ForgetSnapshot(StreamId(""), "unknown", ("n1",), False) in rig.effects


def test_snapshots_of_a_node_whose_runs_have_something_to_say_are_not_swept(rig: Rig) -> None:
    rig.join("n1", 2, "a", runs=(rig.key(),), snapshots=("not-told-yet",))
    assert not rig.of(ForgetSnapshot)


def test_a_run_that_was_heard_of_is_not_started_twice_by_a_node_that_forgot_it(rig: Rig) -> None:
    rig.report(1)  # The acknowledgement of the start was lost, or a restarted scheduler does not have it.
    rig.join("n1", 2, "a")
    assert rig.job().state is JobState.PENDING


def test_a_run_that_nobody_wants_is_named_in_the_welcome(rig: Rig) -> None:
    stranger = RunKey(StreamId("x"), "1", 7)
    rig.join("n1", 2, "a", runs=(rig.key(), stranger))
    assert rig.of(Welcome) == [Welcome("n1", (stranger,))]


def test_a_drained_node_gets_nothing_more() -> None:
    rig = Rig(capacity=1)
    rig.feed(NodeDrained(rig.now, "n1"))
    assert rig.stream.share == 0
    assert not rig.stream.slots


def second(rig: Rig, **terms: object) -> None:
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings(**terms)))


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_smaller_share_is_told_and_enforced_at_its_deadline(preemptible: bool) -> None:
    rig = Rig(capacity=2, grace=30.0)
    rig.create()
    rig.create()
    rig.start("1", "n1/0", preemptible=preemptible)
    rig.start("2", "n1/1", preemptible=preemptible)
    second(rig)
    assert ShareChange(1, rig.now + 30) in rig.calls
    rig.now += 30
    rig.feed(TimerElapsed(rig.now, StreamId("x"), "core/share"))
    if not preemptible:
        assert rig.sent(Decide) == []
        return
    assert [send.run.job for send in rig.of(Send)] == ["2"]  # The newest first.
    rig.report(1, name="2")
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1), "2")
    assert str(rig.job("2").reason) == "preempted"
    assert (set(rig.stream.slots), set(rig.core.streams[StreamId("y")].slots)) == ({"n1/0"}, {"n1/1"})


def test_messages_of_an_experiment_that_is_over_are_acknowledged_and_anything_else_is_an_error(rig: Rig) -> None:
    key = RunKey(StreamId("gone"), "1", 1)
    assert rig.feed(RunMessage(rig.now, *key, 4, Started(0))) == [Acknowledge(key, 4)]
    with pytest.raises(UnknownStreamError):
        rig.core.handle(Operated(rig.now, StreamId("gone"), "pause"))


# --------------------------------------------------------------------------------------------------------------- recovery


def busy_policy(call: Call) -> tuple[Decision | None, list[Command]]:
    if isinstance(call, IterationFinish):
        return Decision.proceed(call.position + 2), []
    if isinstance(call, ApplicationStat) and call.report.position == 1:
        return None, [Predict("p", call.job), WakeAt("w", 5000.0), CreateJob("2")]
    return None, []


def restored(rig: Rig) -> tuple[Core, list[UpCall]]:
    core, calls = Core(), []
    for event in rig.journal:
        assert not isinstance(event, NodeJoined)
        calls += [e for e in core.restore(_of_experiment(event)) if isinstance(e, UpCall)]
    return core, calls


def _of_experiment(event: object) -> StreamEvent:
    return event  # type: ignore[return-value]


def test_restored_events_give_an_equal_state_and_what_was_asked_is_asked_again(rig: Rig) -> None:
    rig.script = busy_policy
    rig.report(1)
    rig.taken(1)
    rig.report(2)
    core, calls = restored(rig)
    dump.compare(rig.stream, core.streams[StreamId("x")])
    assert [call.call for call in calls] == rig.calls
    outstanding = core.recovered()
    assert {e.ticket for e in outstanding if isinstance(e, AskOutside)} == {"policy/p", "create/2"}
    assert SetTimer(StreamId("x"), "policy/w", 5000.0) in outstanding
    assert core.cluster.tenants[StreamId("x")].granted == {"n1/0", "n1/1"}


def test_a_restored_core_goes_on_where_the_lost_one_stopped(rig: Rig) -> None:
    rig.report(1)
    core, _ = restored(rig)
    core.recovered()
    body = Reports(())
    specs = (SlotSpec("n1/0"), SlotSpec("n1/1"))
    assert core.handle(RunMessage(rig.now, *rig.key(), 2, body)) == [Acknowledge(rig.key(), 2)]
    joined = core.handle(NodeJoined(rig.now, "n1", "a", specs, (rig.key(),)))
    assert Welcome("n1", ()) in joined
    assert next(type(s.body) for s in core.unacknowledged("n1")) is Start


def test_what_was_to_be_deleted_from_the_store_is_deleted_after_a_recovery(rig: Rig) -> None:
    rig.kept(1, 2)
    core, _ = restored(rig)
    assert [e for e in core.recovered() if isinstance(e, ForgetSnapshot)] == [
        ForgetSnapshot(StreamId("x"), "s1", (), True)
    ]


def test_an_answer_to_another_up_call_changes_nothing(rig: Rig) -> None:
    rig.hold = True
    rig.report(1)
    answer = rig.answer(rig.held[0])
    assert isinstance(answer, PolicyAnswered)
    rig.feed(answer)
    assert rig.feed(answer) == []
