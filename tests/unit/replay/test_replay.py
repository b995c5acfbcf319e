"""Tests of replays of journals: an equal policy decides the same, and a changed one is detected at its first different decision."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hopyard.errors import Internal, InvalidInput
from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, Policy
from hopyard.policy.vocabulary import (
    Answer,
    ApplicationStat,
    CreateJob,
    ExperimentChange,
    ExperimentState,
    JobState,
    Report,
    RunEndReason,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, UpCall
from hopyard_engine.core.events import (
    Answered,
    Event,
    NodeExpired,
    NodeJoined,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    Reports,
    RunBody,
    RunMessage,
    ShareSet,
    Started,
    StreamCreated,
)
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import PolicyVersion, SlotSpec
from hopyard_engine.policy_host import Host, PolicyHost
from hopyard_engine.replay import (
    DivergenceGuard,
    Replay,
    Until,
    objection,
    parse_until,
    same,
    state_of,
)
from tests.reasons import failure
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick


class First(Policy):
    """Decides by arrival order: the first job at a position continues, and each later one that is worse is terminated."""

    margin = 0.0
    breaks_at: int | None = None

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self.broken = False

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id)
        while cluster.experiment.jobs_left:
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value = event.report.metrics["score"]
        if self.breaks_at == event.position:
            raise ValueError("cannot decide")
        first = self.seen.setdefault(event.position, value)
        return TERMINATE if value < first - self.margin else CONTINUE


class Stricter(First):
    """The same policy with a changed margin."""

    margin = -0.05


class Cluster_:
    """A small live cluster: the core, a policy host, and the journal."""

    def __init__(self, host: Host, journal: Iterable[Event] = (), core: Core | None = None) -> None:
        self.core, self.host, self.now = core or Core(), host, 100.0
        self.journal: list[Event] = list(journal)
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def stream(self) -> Stream:
        return self.core.streams[StreamId("x")]

    def feed(self, event: Event) -> None:
        waiting, calls = deque([event]), deque[UpCall]()
        while waiting or calls:
            if not waiting:
                call = calls.popleft()
                if self.stream.conversation.is_answered_by(call.number):
                    waiting.append(self.host.answer(self.stream, call))
                continue
            for effect in self.core.handle(waiting.popleft()):
                if isinstance(effect, Record) and effect.stream == "x":
                    self.journal.append(effect.event)
                elif isinstance(effect, UpCall):
                    calls.append(effect)

    def say(self, job: str, body: RunBody) -> None:
        self.now += 1.0
        attempt = self.stream.jobs[job].attempt
        number = self.sequences[job, attempt] = self.sequences.get((job, attempt), 0) + 1
        self.feed(RunMessage(self.now, StreamId("x"), job, attempt, 0, number, body))

    def report(self, job: str, position: int, score: float) -> None:
        self.say(job, Reports((Report(position, {"score": score}),)))


def begun(policy: Policy, slots: int = 2) -> Cluster_:
    """Return a cluster with two jobs that train on two slots."""
    live = Cluster_(PolicyHost(policy))
    live.feed(NodeJoined(live.now, "n", "i", tuple(SlotSpec(f"n/{i}") for i in range(slots))))
    live.feed(
        StreamCreated(live.now, StreamId("x"), settings(jobs=2), None, policy=PolicyVersion("first", policy.version))
    )
    for job in ("1", "2"):
        live.feed(Answered(live.now, StreamId("x"), f"create/{job}", {"lr": 0.1}))
    for job in ("1", "2"):
        live.say(job, Started(0))
    return live


def raced(policy: Policy) -> Cluster_:
    live = begun(policy)
    live.report("1", 1, 0.50)
    live.report("2", 1, 0.52)
    live.report("2", 2, 0.60)
    live.report("1", 2, 0.58)
    return live


def replayed(events: Iterable[Event], policy: Policy) -> Replay:
    driven = Replay(Core(), lambda x: PolicyHost(policy))
    for event in events:
        driven.take(event)
    return driven


# ------------------------------------------------------------------------------------------------------------ equality


def test_a_policy_that_decides_by_arrival_order_decides_the_same() -> None:
    live = raced(First())
    driven = replayed(live.journal, First())
    assert driven.first is None
    assert driven.number == len(live.journal)
    assert driven.up_calls == sum(isinstance(event, PolicyAnswered) for event in live.journal)
    assert state_of(driven.experiment or live.stream, 1, 0.0) == state_of(live.stream, 1, 0.0)


def test_a_changed_policy_is_found_out_at_its_first_other_decision() -> None:
    live = raced(First())
    driven = replayed(live.journal, Stricter())
    first = driven.first
    assert first is not None
    recorded = live.journal[first.event - 1]
    assert first.recorded is recorded
    assert isinstance(first.call, IterationFinish)
    assert (first.call.job, first.call.position) == ("1", 1)
    assert first.then.startswith("CONTINUE")
    assert first.now.startswith("TERMINATE")
    assert first.text.startswith(f"event {first.event} (asked about job 1 at 1): recorded is CONTINUE")
    assert driven.unseen == first


def test_the_recorded_decisions_hold_all_the_same() -> None:
    live = raced(First())
    driven = replayed(live.journal, Stricter())
    assert driven.experiment is not None
    assert state_of(driven.experiment, 1, 0.0) == state_of(live.stream, 1, 0.0)


def test_answers_are_compared_as_the_journal_writes_them() -> None:
    def made(**hyperparameters: object) -> PolicyAnswered:
        return PolicyAnswered(1.0, StreamId("x"), Answer(1, None, (CreateJob("1", hyperparameters),)), 2)

    assert same(made(a=(1, 2), b=math.nan), made(a=[1, 2], b=math.nan))
    assert not same(made(a=1.0), made(a=2.0))
    assert not same(made(a=1.0), made(a=object()))
    assert not same(made(), PolicyFailed(1.0, StreamId("x"), 1, failure("no")))


def test_an_answer_to_nothing_is_a_difference() -> None:
    live = raced(First())
    live.journal.insert(4, PolicyAnswered(live.now, StreamId("x"), Answer(99), None))
    driven = replayed(live.journal, First())
    assert driven.first is not None
    assert (driven.first.event, driven.first.computed) == (5, None)
    assert "the core does not take it any more" in driven.first.text


def test_a_failure_that_fails_again_and_one_that_does_not_are_no_differences() -> None:
    broken = First()
    broken.breaks_at = 2
    live = begun(broken)
    live.report("1", 1, 0.5)
    live.report("1", 2, 0.5)
    assert live.stream.state is ExperimentState.PAUSING
    again = First()
    again.breaks_at = 2
    for policy in (again, First()):
        driven = replayed(live.journal, policy)
        assert (driven.first, driven.failures) == (None, 1)


def test_the_cluster_s_events_are_refused() -> None:
    with pytest.raises(Internal, match="event 1: NodeExpired belongs to the stream of the cluster"):
        replayed([NodeExpired(1.0, "n")], First())


def test_an_up_call_without_an_answer_is_answered_at_the_end() -> None:
    live = raced(First())
    cut = max(i for i, event in enumerate(live.journal) if isinstance(event, PolicyAnswered))
    driven = replayed(live.journal[:cut], First())
    assert driven.unanswered() == live.journal[cut]
    assert replayed(live.journal, First()).unanswered() is None


# ----------------------------------------------------------------------------------------------- pause, and going on


def recovered(live: Cluster_, policy: Policy) -> tuple[Cluster_, Replay]:
    """Replay a journal as a restart does. Return the cluster and the replay; an unreported difference makes the host object."""
    core = Core()
    driven = Replay(core, lambda x: PolicyHost(policy))
    for event in live.journal:
        driven.take(event)
    core.recovered()
    host = driven.host
    assert host is not None
    if driven.unseen is not None:
        host = DivergenceGuard(host, driven.unseen)
    again = Cluster_(host, live.journal, core)
    again.now, again.sequences = live.now, live.sequences
    return again, driven


def test_a_difference_pauses_the_running_experiment_and_says_what_differs() -> None:
    live, driven = recovered(raced(First()), Stricter())
    live.feed(ShareSet(live.now, StreamId("x"), live.stream.share))
    assert live.stream.state is ExperimentState.PAUSING
    assert driven.first is not None
    assert str(live.stream.reason) == f"policy error: {objection(driven.first)}"
    assert f"event {driven.first.event} (asked about job 1 at 1)" in str(live.stream.reason)


def test_after_a_resume_it_goes_on_from_the_recorded_decisions_and_is_not_paused_again() -> None:
    live, _ = recovered(raced(First()), Stricter())
    live.feed(ShareSet(live.now, StreamId("x"), live.stream.share))
    again, driven = recovered(live, Stricter())
    assert driven.first is not None
    assert driven.unseen is None  # the reason of the pause contains it already
    again.feed(Operated(again.now, StreamId("x"), "resume"))
    assert again.stream.state is ExperimentState.RUNNING
    third, driven = recovered(again, Stricter())
    assert driven.unseen is None
    assert driven.unanswered() is None
    third.feed(ShareSet(third.now, StreamId("x"), third.stream.share))
    assert third.stream.state is ExperimentState.RUNNING


def test_a_policy_that_is_changed_once_more_is_paused_once_more() -> None:
    live, _ = recovered(raced(First()), Stricter())
    live.feed(ShareSet(live.now, StreamId("x"), live.stream.share))
    live.feed(Operated(live.now, StreamId("x"), "resume"))

    class Other(First):
        def demand(self, cluster: Cluster) -> int:
            return 7

    third, driven = recovered(live, Other())
    assert driven.unseen is not None
    assert driven.unseen.event < (driven.number - 3)
    third.feed(ShareSet(third.now, StreamId("x"), third.stream.share))
    assert third.stream.state in (ExperimentState.PAUSING, ExperimentState.PAUSED)
    assert "it could use 7 slots" in str(third.stream.reason)


def test_a_difference_after_an_accepted_one_counts() -> None:
    live, _ = recovered(raced(First()), Stricter())
    live.feed(ShareSet(live.now, StreamId("x"), live.stream.share))
    live.feed(Operated(live.now, StreamId("x"), "resume"))
    live.say("1", Started(0))
    driven = replayed([*live.journal, PolicyAnswered(live.now, StreamId("x"), Answer(999), None)], Stricter())
    assert driven.unseen is not None
    assert driven.unseen.event == len(live.journal) + 1


def test_one_that_is_paused_already_is_paused_again_when_it_is_resumed() -> None:
    live = raced(First())
    live.feed(Operated(live.now, StreamId("x"), "pause"))
    again, driven = recovered(live, Stricter())
    again.feed(Operated(again.now, StreamId("x"), "resume"))
    assert driven.unseen is not None
    reason = again.stream.reason
    assert reason is not None
    assert (reason.code, reason.args["cause"]) == (ReasonCode.POLICY_ERROR, objection(driven.unseen))
    again.feed(Operated(again.now, StreamId("x"), "resume"))
    assert again.stream.state is ExperimentState.RUNNING


def test_only_the_first_up_call_fails_the_others_reach_the_policy() -> None:
    heard: list[str] = []

    class Hearing(Stricter):
        def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
            heard.append(change.change)

    live, _ = recovered(raced(First()), Hearing())
    live.feed(ShareSet(live.now, StreamId("x"), live.stream.share))
    live.feed(Operated(live.now, StreamId("x"), "resume"))
    assert heard == ["paused", "resumed"]


# ------------------------------------------------------------------------------------------------------ until and state


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", Until(event=120)),
        ("90s", Until(seconds=90.0)),
        ("2.5m", Until(seconds=150.0)),
        ("1h", Until(seconds=3600.0)),
        ("12.5", Until(seconds=12.5)),
        ("2026-01-31T12:00:00+00:00", Until(at=1769860800.0)),
    ],
)
def test_until_is_an_event_or_a_time(text: str, expected: Until) -> None:
    assert parse_until(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-3", "5 minutes", "1.2.3"])
def test_until_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="allowed are an event's number"):
        parse_until(text)


def test_until_stops_behind_its_event() -> None:
    event = NodeExpired(110.0, "n")
    assert not Until(event=3).passed(3, event, 100.0)
    assert Until(event=3).passed(4, event, 100.0)
    assert not Until(seconds=10.0).passed(9, event, 100.0)
    assert Until(seconds=9.0).passed(9, event, 100.0)
    assert Until(at=109.0).passed(9, event, 100.0)


def test_the_state_shows_jobs_slots_and_snapshots() -> None:
    live = raced(First())
    state = state_of(live.stream, len(live.journal), live.now)
    assert (state.state, state.share, state.slots) == ("RUNNING", 2, {"n/0": "1", "n/1": "2"})
    one, two = state.jobs
    seen = one.view
    assert (seen.state, seen.position, seen.attempt, seen.slots) == (JobState.SUSPENDING, 2, 1, ("n/0",))
    assert (two.view.state, two.view.position, two.best, two.snapshots) == (JobState.RUNNING, 2, 0.6, ())
    assert RunEndReason.TERMINATED.value.lower() in one.reason


# ------------------------------------------------------------------------------------------------------ given up


def given_up(live: Cluster_) -> None:
    """Let the policy fail by its time limit on the next up-call, then resume the experiment with another instance."""
    live.now += 1.0
    live.host = _Unheard()
    live.report("1", 3, 0.7)
    driven = Replay(Core(), lambda x: PolicyHost(First()))
    for event in live.journal:
        driven.take(event)
    assert driven.host is not None
    live.host = driven.host
    live.feed(Operated(live.now, StreamId("x"), "resume"))


class _Unheard:
    def answer(self, experiment: Stream, call: UpCall) -> PolicyFailed:
        return PolicyFailed(
            call.at, call.stream, call.number, failure("policy First took longer than 10 s"), unheard=True
        )


def test_an_up_call_that_was_given_up_is_not_made_again_at_its_record() -> None:
    live = raced(First())
    given_up(live)
    unheard = [event for event in live.journal if isinstance(event, PolicyFailed)]
    assert [event.unheard for event in unheard] == [True]

    class Counting(First):
        told: list[int]

        def __init__(self) -> None:
            super().__init__()
            self.told = []

        def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
            self.told.append(stat.report.position)

    policy = Counting()
    driven = replayed(live.journal, policy)
    assert driven.first is None
    assert driven.failures == 1
    assert policy.told.count(3) == 1  # the second policy receives the report that the first one did not answer


# -------------------------------------------------------------------------------------------- the version of the policy


class Second(Stricter):
    """A changed policy with a new version."""

    version = "2"


class Same(First):
    """A new version of the policy that decides the same."""

    version = "2"


CHANGE = "policy first had version 1 when the experiment began and has version 2 now"


def test_another_version_is_named_though_every_decision_is_the_same() -> None:
    live = raced(First())
    assert replayed(live.journal, First()).version_change == ""
    driven = replayed(live.journal, Same())
    assert (driven.first, driven.version_change) == (None, CHANGE)


def test_a_difference_names_the_version_only_if_it_has_changed() -> None:
    live = raced(First())
    silent, announced = replayed(live.journal, Stricter()).first, replayed(live.journal, Second()).first
    assert silent is not None
    assert announced is not None
    assert announced.text == f"{silent.text}; {CHANGE}"


def test_a_journal_without_a_version_says_nothing_of_it() -> None:
    live = raced(First())
    created = live.journal[0]
    assert isinstance(created, StreamCreated)
    assert replayed([replace(created, policy=None), *live.journal[1:]], Same()).version_change == ""
