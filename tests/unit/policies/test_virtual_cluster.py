"""Tests that the virtual cluster has the documented semantics of the policy API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hopyard.policy import (
    CONTINUE,
    PARK,
    SUSPEND,
    AnswerReady,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    Policy,
    PredictionReady,
    RunMode,
    TimerFired,
)
from hopyard.policy.testing import (
    Delays,
    IllegalCommand,
    SpinningError,
    StalledError,
    VirtualCluster,
    VirtualStep,
    difference,
    replay,
)
from hopyard.policy.vocabulary import (
    AllocateJobs,
    ApplicationStat,
    Ask,
    Call,
    Predict,
    RequestMade,
    RunEnd,
    RunEndReason,
    ShareChange,
    SlotsChange,
    StartJob,
)
from hopyard.predictor import Prediction
from hopyard_policies.default import DefaultPolicy

pytestmark = pytest.mark.quick

PREDICTION = Prediction((9,), (0.5,), (0.1,))

Act = Callable[[Cluster], object]


class Scripted(Policy):
    """A policy that executes one given act at each allocation, in order, and decides with a given function."""

    def __init__(self, *acts: Act, decide: Callable[[Cluster, IterationFinish], Decision] | None = None) -> None:
        self.acts = list(acts)
        self.decide = decide
        self.answers: list[object] = []
        self.refused: list[str] = []

    def allocate_jobs(self, cluster: Cluster) -> None:
        if self.acts:
            self.acts.pop(0)(cluster)

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Subscribe to reports, so that tests see these up-calls."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return self.decide(cluster, event) if self.decide else super().on_iteration_finish(cluster, event)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        self.answers.append(answer.result or answer.error)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        self.answers.append(prediction.result or prediction.error)

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        self.answers.append(cluster.now)

    def on_refused(self, cluster: Cluster, verdict: Any) -> None:
        self.refused.append(str(verdict.reason))
        self.acts.insert(0, start())


def create(cluster: Cluster) -> None:
    cluster.create_job({"x": 1})


def start(job: str = "1", *slots: str, **options: Any) -> Act:
    return lambda cluster: cluster.start_job(job, slots or [cluster.idle_slots()[0].id], **options)


def calls(cluster: VirtualCluster) -> list[Call]:
    return [entry.call for entry in cluster.history]


def names(cluster: VirtualCluster) -> list[str]:
    return [type(call).__name__ for call in calls(cluster)]


def test_order_of_up_calls() -> None:
    cluster = VirtualCluster(Scripted(create, start()), slots=1, jobs=1, max_position=2)
    cluster.run()
    assert names(cluster) == [
        "ShareChange",
        "SlotsChange",
        "AllocateJobs",
        "JobCreated",
        "AllocateJobs",
        "ApplicationStat",
        "IterationFinish",
        "ApplicationStat",
        "IterationFinish",
        "RunEnd",
    ]
    assert (cluster.now, cluster.over) == (2, "all jobs ended")


def test_a_run_waits_at_allowed_and_trains_on_below_it() -> None:
    # The decision on position 1 takes effect at the next boundary, since training did not wait for it.
    suspend = Scripted(
        create,
        start(allowed=3),
        decide=lambda _, e: Decision.proceed(3) if e.position != 1 else SUSPEND,
    )
    cluster = VirtualCluster(suspend, slots=1, jobs=1, max_position=5)
    cluster.run()
    assert [(r.position, r.reason) for r in cluster.runs] == [(2, RunEndReason.SUSPENDED)]
    assert [c.position for c in calls(cluster) if isinstance(c, IterationFinish)] == [1]
    # Without `allowed` it waits at each report, so the decision takes effect there.
    waiting = Scripted(create, start(), decide=lambda _, e: SUSPEND)
    cluster = VirtualCluster(waiting, slots=1, jobs=1, max_position=5)
    cluster.run()
    assert [(r.position, r.reason) for r in cluster.runs] == [(1, RunEndReason.SUSPENDED)]
    assert cluster.over == "the policy has nothing left to do"


def test_a_run_with_nothing_more_to_train_ends_there() -> None:
    cluster = VirtualCluster(
        Scripted(create, start()),
        slots=1,
        jobs=1,
        max_position=5,
        curve=lambda _, p: VirtualStep({}, finished=p == 2),
    )
    cluster.run()
    assert [(r.position, r.reason) for r in cluster.runs] == [(2, RunEndReason.UNTIL)]
    assert cluster.jobs["1"].state is JobState.COMPLETED


def test_park_amend_and_go_on_without_a_save() -> None:
    def decide(cluster: Cluster, event: IterationFinish) -> Decision:
        if event.at_until and event.position == 1:
            cluster.wake_at(5.0)
            return PARK
        return CONTINUE

    class Waker(Scripted):
        def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
            assert cluster.jobs["1"].parked
            cluster.amend_run("1", until=3)

    policy = Waker(create, start(until=1), decide=decide)
    cluster = VirtualCluster(policy, slots=1, jobs=1, max_position=3)
    cluster.run()
    assert [(r.began, r.ended, r.position) for r in cluster.runs] == [(0, 7, 3)]
    assert set(cluster.virtual_jobs["1"].saves) == {3}
    assert policy.answers == [{"accepted": True, "position": 1}]


def test_an_amendment_may_come_too_late() -> None:
    def decide(cluster: Cluster, event: IterationFinish) -> Decision:
        if event.position == 2:
            cluster.amend_run("1", until=2)
        return Decision.proceed(4)

    policy = Scripted(create, start(allowed=4), decide=decide)
    cluster = VirtualCluster(policy, slots=1, jobs=1, max_position=4)
    cluster.run()
    assert policy.answers == [{"accepted": False, "position": 2}]


def test_lost_runs_rewind_and_repeat_only_at_until() -> None:
    cluster = VirtualCluster(
        Scripted(
            create,
            start(until=3, allowed=4),
            start(until=3, allowed=4),
            start(),
            decide=lambda _, e: PARK if e.at_until and e.position == 3 and not e.repeated else CONTINUE,
        ),
        slots=1,
        jobs=1,
        max_position=4,
    )
    cluster.at(3.5, cluster.lose_run, "1")
    cluster.run()
    stats = [c.report.position for c in calls(cluster) if isinstance(c, ApplicationStat)]
    finishes = [(c.position, c.repeated) for c in calls(cluster) if isinstance(c, IterationFinish)]
    assert stats == [1, 2, 3, 4]
    assert finishes == [(1, False), (2, False), (3, False), (3, True), (4, False)]
    assert [(r.start, r.position, r.reason.name) for r in cluster.runs] == [
        (0, 3, "LOST"),
        (0, 3, "UNTIL"),
        (3, 4, "UNTIL"),
    ]


def test_fork_evaluate_and_answer() -> None:
    def fork(cluster: Cluster) -> None:
        child = cluster.fork_job("1", 2, {"x": 5})
        assert child == "3"

    def evaluate(cluster: Cluster) -> None:
        assert [point.position for point in cluster.curve("3")] == [1, 2]
        assert cluster.jobs["3"].position == 2
        assert cluster.snapshots("3") == (2,)  # It can start from its parent's snapshot.
        with pytest.raises(IllegalCommand, match="job '3' has no own snapshot at 2, where it was forked"):
            cluster.fork_job("3", 2, {})
        start("1", "m01", mode=RunMode.EVALUATE, inputs={"m01": "part-0"})(cluster)

    def finish(cluster: Cluster) -> None:
        cluster.answer_job("2", "1", 2)
        start("3")(cluster)
        cluster.terminate_job("1")

    def both(cluster: Cluster) -> None:
        create(cluster)
        create(cluster)

    policy = Scripted(both, start(until=2, allowed=4), fork, evaluate, finish)
    cluster = VirtualCluster(policy, slots=1, jobs=2, max_position=4)
    cluster.run()
    states = {job.id: (job.state, job.position) for job in cluster.jobs.values()}
    assert states["2"] == (JobState.COMPLETED, 2)
    assert states["3"] == (JobState.COMPLETED, 4)
    assert states["1"][0] is JobState.TERMINATED
    evaluations = [c for c in calls(cluster) if isinstance(c, ApplicationStat) and c.mode is RunMode.EVALUATE]
    assert [(c.input, c.report.position, c.report.part) for c in evaluations] == [("part-0", 2, "part-0")]
    assert [p.position for p in cluster.curve("3")] == [1, 2, 3, 4]


def test_one_lost_slot_ends_the_run_of_a_gang() -> None:
    gang = start("1", "m01", "m02")
    cluster = VirtualCluster(Scripted(create, gang, lambda c: c.terminate_job("1")), slots=2, jobs=1)
    cluster.at(1.5, cluster.lose_slot, "m02")
    cluster.run()
    assert [(r.slots, r.ended, r.reason) for r in cluster.runs] == [(("m01", "m02"), 1.5, RunEndReason.LOST)]
    assert cluster.jobs["1"].state is JobState.TERMINATED
    order = [type(c).__name__ for c in calls(cluster) if isinstance(c, RunEnd | SlotsChange | ShareChange)]
    assert order[-3:] == ["RunEnd", "SlotsChange", "ShareChange"]


def test_the_core_preempts_after_the_deadline_but_never_what_is_not_preemptible() -> None:
    def both(cluster: Cluster) -> None:
        create(cluster)
        create(cluster)

    def start_both(cluster: Cluster) -> None:
        cluster.start_job("1", "m01", allowed=9)
        cluster.start_job("2", "m02", allowed=9, preemptible=False)

    cluster = VirtualCluster(Scripted(both, start_both), slots=2, jobs=2, max_position=6, grace=1.5)
    cluster.at(1.2, cluster.set_share, 0)
    with pytest.raises(StalledError, match=r"stalled at 6 s .* jobs \[1 SUSPENDED at 3, 2 COMPLETED at 6\]"):
        cluster.run()
    assert [(r.job, r.ended, r.reason) for r in cluster.runs] == [
        ("1", 3, RunEndReason.PREEMPTED),
        ("2", 6, RunEndReason.UNTIL),
    ]
    change = next(c for c in calls(cluster) if isinstance(c, ShareChange) and c.slots == 0)
    assert change.deadline == pytest.approx(2.7)


def test_snapshots_that_are_not_stored_die_with_their_slot() -> None:
    seen: list[tuple[float, int, list[int], JobState]] = []

    def look(cluster: Cluster) -> None:
        job = cluster.jobs["1"]
        seen.append((cluster.now, job.position, list(cluster.snapshots("1")), job.state))
        cluster.wake_at(20)

    policy = Scripted(create, start("1", "m01", until=2, allowed=9), look, look)
    cluster = VirtualCluster(policy, slots=1, jobs=1, delays=Delays(store=10))
    cluster.at(4, cluster.join_slot, "m02")
    cluster.at(5, cluster.lose_slot, "m01")
    cluster.run(until=6)
    assert seen[:1] == [(2, 2, [2], JobState.SUSPENDED)]
    job = cluster.jobs["1"]
    assert [(job.state, job.position)] == [(JobState.PENDING, 0)]


def test_predictions_questions_timers_and_requests() -> None:
    def ask(cluster: Cluster) -> None:
        create(cluster)
        cluster.predict("1") if "1" in cluster.jobs else cluster.ask("plan", {"size": 3})
        cluster.wake_at(7.5)

    def respond(question: Predict | Ask) -> object:
        return {"kind": question.kind} if isinstance(question, Ask) else PREDICTION

    def then(cluster: Cluster) -> None:
        cluster.predict("1")
        start()(cluster)

    policy = Scripted(ask, then)
    cluster = VirtualCluster(policy, slots=1, jobs=1, respond=respond, delays=Delays(answer=2), max_position=9)
    cluster.at(3, cluster.request, "r1", {"x": 9}, 4)
    cluster.run()
    assert policy.answers == [{"kind": "plan"}, PREDICTION, 7.5]
    assert RequestMade("r1", {"x": 9}, 4) in calls(cluster)


def test_a_prediction_of_a_job_that_has_ended_meanwhile_fails() -> None:
    def then(cluster: Cluster) -> None:
        cluster.predict("1")
        start()(cluster)

    policy = Scripted(create, then)
    cluster = VirtualCluster(
        policy, slots=1, jobs=1, respond=lambda _: PREDICTION, delays=Delays(answer=5), max_position=2
    )
    cluster.run()
    assert policy.answers == ["job 1 is COMPLETED by now"]


def test_a_prediction_is_a_prediction() -> None:
    cluster = VirtualCluster(
        Scripted(create, lambda c: c.predict("1")), slots=1, jobs=1, respond=lambda _: {"mean": 0.5}
    )
    with pytest.raises(TypeError, match=r"answered by a hopyard\.predictor\.Prediction, found \{'mean'"):
        cluster.run()


def test_a_refused_command_comes_back_with_the_next_up_call() -> None:
    refusals = iter(["slot 'm01' is gone", ""])
    policy = Scripted(create, start())
    cluster = VirtualCluster(
        policy, slots=1, jobs=1, refuse=lambda c: next(refusals) if isinstance(c, StartJob) else ""
    )
    cluster.run()
    assert policy.refused == ["slot 'm01' is gone"]
    assert cluster.over == "all jobs ended"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (start("7"), r"up-call 5 \(AllocateJobs at 0 s\): StartJob.*: job '7' is unknown at this moment"),
        (start("1", "m99"), r"slot 'm99' is not one of \['m01'\]"),
        (start("1", "m01", "m01"), "it needs one or more different slots"),
        (start("1", until=9), r"until is 9; it must lie in 1\.\.3"),
        (start("1", snapshot_at=[8]), r"save points lie in 1\.\.3"),
        (start("1", mode=RunMode.EVALUATE), "it has no snapshot to evaluate"),
        (start("1", from_snapshot=("1", 2)), r"job '1' has snapshots at \[\] only"),
        (start("1", inputs={"m02": "a"}), "inputs name slots that are not in the gang"),
        (lambda c: c.resume_job("1", "m01"), "job '1' has no snapshot; use start_job"),
        (lambda c: c.suspend_job("1"), "job '1' is PENDING; it must be live"),
        (lambda c: c.amend_run("1", until=2) and None, "job '1' is PENDING; it must be STARTING or RUNNING"),
        (lambda c: c.create_job() and None, r"no more jobs may be created \(jobs_left is 0\)"),
        (lambda c: c.fork_job("1", 1, {}) and None, r"job '1' has snapshots at \[\] only"),
        (lambda c: c.answer_job("1", "1", 0), "another job's results up to 0 are there"),
        (lambda c: c.release_machine("m01"), "slot 'm01' is not reserved"),
        (lambda c: c.label_job("1", float("nan")), "a priority is a number, not NaN"),
        (lambda c: c.wake_at(float("inf")) and None, "the time must be finite"),
    ],
)
def test_illegal_commands_are_named(act: Act, message: str) -> None:
    cluster = VirtualCluster(Scripted(create, act), slots=1, jobs=1)
    with pytest.raises(ValueError, match=message):
        cluster.run()


def test_reserved_slots_are_not_idle_until_released_or_used() -> None:
    def reserve(cluster: Cluster) -> None:
        create(cluster)
        assert cluster.reserve_idle_machine() == "m01"
        assert cluster.reserve_idle_machine() is None
        cluster.wake_at(3)

    class Later(Scripted):
        def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
            assert not cluster.idle_slots()
            cluster.start_job("1", "m01")

    cluster = VirtualCluster(Later(reserve), slots=1, jobs=1)
    cluster.run()
    assert [(r.began, r.ended) for r in cluster.runs] == [(3, 6)]
    assert not cluster.slots["m01"].reserved


def test_priorities_order_idle_jobs_first_come_first_served() -> None:
    seen: list[list[str]] = []

    class Labels(Scripted):
        def allocate_jobs(self, cluster: Cluster) -> None:
            if not cluster.jobs:
                for _ in range(3):
                    create(cluster)
            seen.append([job.id for job in cluster.idle_jobs()])
            if len(cluster.jobs) == 3 and cluster.jobs["3"].priority is None:
                cluster.label_job("3", 2.0)

    cluster = VirtualCluster(Labels(), slots=2, jobs=3)
    cluster.run()
    assert seen[0] == []
    assert ["1", "2", "3"] in seen
    assert seen[-1] == ["3", "1", "2"]
    assert cluster.over == "the policy has nothing left to do"


def test_a_spinning_policy_is_stopped() -> None:
    class Spins(Scripted):
        def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
            cluster.wake_at(cluster.now)

    cluster = VirtualCluster(Spins(lambda c: c.wake_at(0) and None), slots=1, max_calls=100)
    with pytest.raises(SpinningError, match="100 up-calls were made; the last: up-call 100"):
        cluster.run()


def test_the_target_ends_the_experiment() -> None:
    cluster = VirtualCluster(
        Scripted(create, start(allowed=9)),
        slots=1,
        jobs=1,
        max_position=9,
        target=0.5,
        curve=lambda _, position: VirtualStep({"accuracy": position / 10}),
    )
    cluster.run()
    assert (cluster.now, cluster.over) == (5, "job 1 reached the target")


def test_a_replay_shows_a_different_answer() -> None:
    cluster = VirtualCluster(Scripted(create, start()), slots=1, jobs=1)
    history = cluster.run()
    assert difference(history, replay(Scripted(create, start()), history)) == ""
    found = difference(history, replay(Scripted(create, start(until=2)), history))
    assert found.startswith("up-call 5 (AllocateJobs at 0 s)")
    assert isinstance(history[4].call, AllocateJobs)


def test_a_policy_hears_no_more_than_it_wants() -> None:
    class Deaf(Policy):
        def allocate_jobs(self, cluster: Cluster) -> None:
            create(cluster) if not cluster.jobs else start(allowed=2)(cluster)

    class Deciding(DefaultPolicy):
        def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
            return super().on_iteration_finish(cluster, event)

    assert (Deaf().every_iteration, Deciding().every_iteration, DefaultPolicy().every_iteration) == (False, True, False)
    assert (Deaf().ends_jobs, Deciding().ends_jobs, DefaultPolicy().ends_jobs) == (False, True, False)
    cluster = VirtualCluster(Deaf(), slots=1, jobs=1, max_position=3)
    cluster.run()
    assert [call.position for call in calls(cluster) if isinstance(call, IterationFinish)] == [2]
    assert "ApplicationStat" not in names(cluster)
    assert [(run.position, run.reason) for run in cluster.runs] == [(3, RunEndReason.UNTIL)]
