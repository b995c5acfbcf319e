"""Tests of groups: experiments with the same `share` key have one policy, stream and share, and their own terms."""

from __future__ import annotations

from typing import Literal

import pytest

from hopyard.policy.vocabulary import (
    ENDLESS,
    CreateJob,
    ExperimentChange,
    ExperimentId,
    ExperimentState,
    ForkJob,
    JobState,
    RunEndReason,
    StartJob,
    StreamId,
)
from hopyard_engine.core.effects import AskOutside, JobChanged, ReportAccepted, StreamEnded
from hopyard_engine.core.events import (
    Answered,
    ExperimentJoined,
    Operated,
    PolicyFailed,
    StreamCreated,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.state.experiment import Experiment, GeneratorCall
from tests.reasons import failure
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


class Pair(Rig):
    """An engine core with experiment x and experiment y, which has joined its group."""

    def __init__(self, *, slots: int = 4, x: dict[str, object] | None = None, **y: object) -> None:
        super().__init__(capacity=slots, **(x or {}))
        self.feed(ExperimentJoined(self.now, StreamId("x"), ExperimentId("y"), settings(**y)))

    @property
    def y(self) -> Experiment:
        return self.stream.experiments[ExperimentId("y")]

    def make(self, experiment: str) -> str:
        """Create a job of an experiment with fixed hyperparameters; return its name."""
        name = str(self.stream.ordinals + 1)
        self.command(CreateJob(name, {"lr": 0.1}, experiment))
        return name

    def act(self, action: Literal["pause", "resume", "stop"], experiment: str) -> None:
        self.feed(Operated(self.now, StreamId("x"), action, ExperimentId(experiment)))


def test_joining_is_told_to_the_one_policy_and_happens_once() -> None:
    rig = Pair()
    assert rig.called(ExperimentChange) == [ExperimentChange("joined", "y")]
    before = len(rig.journal)
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings()))
    assert len(rig.journal) == before


@pytest.mark.parametrize(
    ("x", "y", "weight", "cap"),
    [
        ({}, {}, 2.0, None),
        ({"weight": 3.0}, {"weight": 0.5}, 3.5, None),
        ({"slots": 2}, {"slots": 3}, 2.0, 5),
        ({"slots": 2}, {}, 2.0, None),
    ],
)
def test_weights_and_caps_add_up(x: dict[str, object], y: dict[str, object], weight: float, cap: int | None) -> None:
    rig = Rig(capacity=4, **x)
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(**y)))
    tenant = rig.core.cluster.tenants[StreamId("x")]
    assert (tenant.weight, tenant.cap) == (weight, cap) == rig.stream.terms
    assert list(rig.core.cluster.tenants) == ["x"]


def test_a_group_of_two_has_two_thirds_beside_one_alone() -> None:
    rig = Pair(slots=6)
    rig.feed(StreamCreated(rig.now, StreamId("z"), settings()))
    assert {name: tenant.share for name, tenant in rig.core.cluster.tenants.items()} == {"x": 4, "z": 2}
    rig.act("stop", "y")
    assert {name: tenant.share for name, tenant in rig.core.cluster.tenants.items()} == {"x": 3, "z": 3}


def test_jobs_train_by_the_terms_of_their_own_experiment() -> None:
    rig = Pair(x={"max_position": 10}, max_position=3, snapshot_every=1)
    first, second = rig.make("x"), rig.make("y")
    rig.start(first, "n1/0")
    rig.start(second, "n1/1")
    assert (rig.run(first).until, rig.run(second).until) == (10, 3)
    rig.report(1, 0.4, second)
    assert rig.of(ReportAccepted)[0].experiment == "y"
    rig.ended(RunEndReason.UNTIL, 3, snapshot(3), name=second)
    assert {effect.experiment for effect in rig.of(JobChanged)} == {"y"}
    assert rig.job(second).state is JobState.COMPLETED
    told = GeneratorCall("final", second, {"lr": 0.1}, {"score": 0.4}, position=1)
    assert (rig.y.generator_calls, rig.stream.founder.generator_calls) == ([told], [])
    assert (rig.stream.best, rig.y.best, rig.stream.founder.best) == ((second, 1, 0.4), (second, 1, 0.4), None)


def test_a_new_job_is_for_the_one_that_is_furthest_behind_its_weight() -> None:
    rig = Pair(x={"weight": 1.0}, weight=3.0, jobs=4)
    for _ in range(8):
        rig.create()
    made = [rig.job(str(number)).experiment.id for number in range(1, 9)]
    assert made == ["x", "y", "y", "y", "x", "y", "x", "x"]  # y has only four jobs.


def test_each_generator_is_asked_for_its_own_jobs() -> None:
    rig = Pair(jobs=1)
    rig.command(CreateJob("1", experiment="y"))
    asked = rig.of(AskOutside)[0]
    assert (asked.stream, asked.experiment, asked.kind) == ("x", "y", "create_job")
    rig.feed(Answered(rig.now, StreamId("x"), "create/1", None))
    assert (rig.y.exhausted, rig.stream.founder.exhausted, rig.stream.jobs_left) == (True, False, 8)
    assert [call.kind for call in rig.y.generator_calls] == ["create"]
    assert rig.stream.founder.generator_calls == []


def test_a_child_may_be_forked_from_another_experiments_job() -> None:
    rig = Pair(max_position=5)
    parent = rig.make("x")
    rig.start(parent, "n1/0")
    rig.report(4, 0.5, parent)
    rig.taken(4, parent)
    child = str(rig.stream.ordinals + 1)
    rig.command(ForkJob(child, parent, 4, {"lr": 0.2}, "y"))
    assert (rig.job(child).experiment.id, rig.job(child).position) == ("y", 4)
    late = str(rig.stream.ordinals + 1)
    rig.report(5, 0.5, parent)
    rig.taken(5, parent)
    rig.command(ForkJob(late, parent, 5, {"lr": 0.2}, "y"))
    assert late not in rig.stream.jobs  # The jobs of y end at 5.


def test_pausing_one_leaves_the_other_running() -> None:
    rig = Pair()
    first, second, waiting = rig.make("x"), rig.make("y"), rig.make("y")
    rig.start(first, "n1/0")
    rig.start(second, "n1/1")
    rig.act("pause", "y")
    assert (rig.y.state, rig.stream.founder.state, rig.stream.state) == (
        ExperimentState.PAUSING,
        ExperimentState.RUNNING,
        ExperimentState.RUNNING,
    )
    assert (rig.job(first).state, rig.job(second).state) == (JobState.RUNNING, JobState.SUSPENDING)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1), name=second)
    rig.stored(1, second)
    assert str(rig.y.state) == "ExperimentState.PAUSED"
    assert rig.stream.idle_jobs() == []
    rig.command(StartJob(waiting, ("n1/2",)))
    assert rig.job(waiting).state is JobState.PENDING
    rig.act("resume", "y")
    assert [job.id for job in rig.stream.idle_jobs()] == [waiting, second]


def test_a_member_that_ends_takes_only_its_own_jobs_and_the_last_one_gives_the_slots_back() -> None:
    rig = Pair()
    first, second = rig.make("x"), rig.make("y")
    rig.start(first, "n1/0")
    rig.start(second, "n1/1")
    rig.act("stop", "x")
    assert (rig.job(first).state, rig.job(second).state) == (JobState.SUSPENDING, JobState.RUNNING)
    rig.ended(RunEndReason.TERMINATED, 0, name=first)
    assert (rig.stream.founder.state, rig.stream.state, rig.of(StreamEnded)) == (
        ExperimentState.STOPPED,
        ExperimentState.RUNNING,
        [],
    )
    assert ExperimentChange("ended", "x") in rig.calls
    assert rig.core.cluster.tenants[StreamId("x")].granted == {"n1/0", "n1/1", "n1/2", "n1/3"}
    rig.act("stop", "y")
    rig.ended(RunEndReason.TERMINATED, 0, name=second)
    assert rig.stream.state is ExperimentState.STOPPED
    assert rig.core.cluster.tenants == {}


def test_a_member_whose_jobs_have_all_ended_is_done_while_the_others_go_on() -> None:
    rig = Pair(jobs=1, max_position=1)
    first, second = rig.make("x"), rig.make("y")
    rig.start(first, "n1/0")
    rig.start(second, "n1/1")
    rig.report(1, 0.5, second)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1), name=second)
    rig.stored(1, second)
    assert (rig.y.state, str(rig.y.reason), rig.stream.state) == (
        ExperimentState.COMPLETED,
        "all jobs ended",
        ExperimentState.RUNNING,
    )


def test_a_target_ends_its_own_experiment_only() -> None:
    rig = Pair(target=0.9)
    first, second = rig.make("x"), rig.make("y")
    rig.start(first, "n1/0")
    rig.start(second, "n1/1")
    rig.report(1, 0.95, first)
    assert rig.stream.founder.state is ExperimentState.RUNNING
    rig.report(1, 0.95, second)
    assert (rig.y.state, rig.stream.founder.state) == (ExperimentState.ENDING, ExperimentState.RUNNING)


def test_each_has_its_own_time() -> None:
    rig = Pair(max_seconds=50.0)
    rig.make("x")
    rig.feed(TimerElapsed(rig.now + 50, StreamId("x"), "core/end/y"))
    assert (rig.y.state, rig.stream.founder.state) == (ExperimentState.COMPLETED, ExperimentState.RUNNING)


def test_terms_are_changed_of_the_one_that_is_named() -> None:
    rig = Pair()
    rig.feed(Updated(rig.now, StreamId("x"), "u1", more_jobs=2, weight=4.0, experiment=ExperimentId("y")))
    assert (rig.y.settings.jobs, rig.stream.founder.settings.jobs) == (10, 8)
    assert rig.core.cluster.tenants[StreamId("x")].weight == 5.0


def test_the_jobs_left_of_two_experiments_without_a_limit_are_no_more_than_those_of_one() -> None:
    assert Pair(jobs=ENDLESS).stream.jobs_left == ENDLESS


def test_what_the_policy_asked_for_of_an_ended_member_stays_until_the_last_one_ends() -> None:
    pair = Pair(x={"max_position": 4, "jobs": 1})
    mine, theirs = pair.make("x"), pair.make("y")
    pair.start(mine, "n1/0", snapshot_at=(2,))
    pair.start(theirs, "n1/1")
    pair.taken(2, mine)
    pair.stored(2, mine)
    pair.report(4, name=mine, at_until=True)
    pair.ended(RunEndReason.UNTIL, 4, snapshot(4), mine)
    pair.stored(4, mine)
    assert pair.stream.founder.state is ExperimentState.COMPLETED
    assert pair.stream.snapshots.positions(mine) == [2, 4]  # A fork of y may start there.
    pair.act("stop", "y")
    pair.ended(RunEndReason.TERMINATED, 0, name=theirs)
    assert pair.stream.state.ended
    assert pair.stream.snapshots.positions(mine) == [4]
    assert JobChanged(ExperimentId("x"), mine) in pair.effects


def test_a_members_own_quota_is_not_the_groups() -> None:
    """Check that the founder's quota does not limit the group while another member has no quota."""
    pair = Pair(x={"snapshot_quota": 5, "max_position": 2}, max_position=2)
    assert pair.stream.snapshot_quota is None
    parent = pair.make("y")
    pair.start(parent, "n1/0", until=1)
    pair.report(1, name=parent, at_until=True)
    pair.ended(RunEndReason.UNTIL, 1, snapshot(1), parent)
    pair.command(ForkJob("2", parent, 1, {"lr": 0.5}, "x"))
    pair.start("2", "n1/0")
    pair.report(2, name="2", at_until=True)
    pair.ended(RunEndReason.UNTIL, 2, snapshot(2), "2")
    pair.expire("n1")  # Nothing was in the store.
    assert pair.job("2").state is JobState.COMPLETED
    pair.feed(Updated(pair.now, StreamId("x"), "u", max_position=4, experiment=ExperimentId("x")))
    assert pair.job("2").state is JobState.FAILED


def test_an_ended_group_goes_on_when_another_joins() -> None:
    rig = Rig()
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.STOPPED
    rig.hold = True  # A policy without demand would end it again at once.
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings()))
    assert str(rig.stream.state) == "ExperimentState.RUNNING"
    assert rig.core.cluster.tenants[StreamId("x")].share == 2
    found = rig.core.find(ExperimentId("y"))
    assert found is not None
    assert found[0] is rig.stream


def test_a_policy_that_fails_pauses_all_that_run() -> None:
    rig = Pair()
    rig.act("pause", "x")
    rig.command(CreateJob("7", {"lr": 0.1}))  # Refused, but a refusal alone pauses nothing.
    assert rig.y.state is ExperimentState.RUNNING
    rig.hold = True
    rig.feed(Updated(rig.now, StreamId("x"), "u1", more_jobs=1, experiment=ExperimentId("y")))
    rig.feed(PolicyFailed(rig.now, StreamId("x"), rig.held[-1].number, failure("no")))
    assert str(rig.y.state) == "ExperimentState.PAUSED"
    assert "policy error: no" in str(rig.y.reason)
