"""Tests of gangs: the end of a run on several slots, and experiments that compete for several slots at once."""

from __future__ import annotations

from collections import deque

import pytest

from hopyard.policy import Policy
from hopyard.policy.vocabulary import (
    DecisionKind,
    ExperimentState,
    JobState,
    Report,
    RunEnd,
    RunEndReason,
    RunKey,
    StartJob,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import AskOutside, Decide, Effect, Kill, Send, Start, UpCall
from hopyard_engine.core.events import (
    Answered,
    Ended,
    Event,
    NodeExpired,
    NodeJoined,
    Operated,
    PolicyFailed,
    Reports,
    RunMessage,
    SnapshotStored,
    Started,
    StreamCreated,
    TimerElapsed,
)
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.run_states import RunState
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.policy_host.host import PolicyHost
from tests.e2e.gang_policies import Gangs
from tests.reasons import said
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick

# ----------------------------------------------------------------------------------------------------------- how runs end


@pytest.fixture
def rig() -> Rig:
    """A core with a gang of two that trains."""
    rig = Rig(capacity=2, max_failures=1)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=5)
    rig.say(rig.key(rank=1), Started(0))
    return rig


def test_ranks_that_follow_rank_0_to_the_end_leave_by_themselves(rig: Rig) -> None:
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    assert rig.sent(Kill) == []
    assert rig.job().state.live
    rig.ended(RunEndReason.UNTIL, 5, rank=1)
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 5)
    assert rig.stream.busy == 0
    assert not any(ticket.startswith("core/kill/") for ticket in rig.stream.timers)


def test_a_rank_that_has_left_before_rank_0_told_of_its_end_loses_nothing(rig: Rig) -> None:
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, rank=1)
    assert rig.sent(Kill) == []
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 5)
    assert rig.called(RunEnd)[-1].reason is RunEndReason.UNTIL


def test_a_rank_that_has_left_a_run_which_ends_by_itself_loses_nothing() -> None:
    rig = Rig(capacity=2, max_position=5, ends_jobs=False)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=5, allowed=5)
    rig.ended(RunEndReason.UNTIL, 5, rank=1)  # Rank 0 was first there, but its report has not arrived.
    assert rig.sent(Kill) == []
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    assert (rig.job().state, rig.job().losses) == (JobState.COMPLETED, 0)


def test_the_last_report_of_a_run_that_has_lost_a_rank_completes_nothing() -> None:
    """Check a report that rank 0 sent before it got the loss of another rank: it counts, and the job trains up to it again."""
    rig = Rig(capacity=2, max_position=5, ends_jobs=False)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=5, allowed=5)
    rig.ended(RunEndReason.LOST, 3, rank=1)
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.LOST, 5)
    assert (rig.job().state, rig.job().position, rig.job().high_water) == (JobState.PENDING, 0, 5)


def test_a_rank_that_leaves_in_the_middle_of_a_run_which_ends_by_itself_is_a_loss() -> None:
    rig = Rig(capacity=2, max_position=5, ends_jobs=False)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=5, allowed=5)
    rig.ended(RunEndReason.TERMINATED, 1, rank=1)
    assert rig.sent(Kill) == [Kill(Reason(ReasonCode.RUN_OVER))]


def test_a_rank_that_leaves_a_run_which_goes_on_is_a_loss(rig: Rig) -> None:
    rig.ended(RunEndReason.UNTIL, 1, rank=1)
    assert rig.sent(Kill) == [Kill(Reason(ReasonCode.RUN_OVER))]
    rig.ended(RunEndReason.TERMINATED, 0)
    end = rig.called(RunEnd)[-1]
    assert (end.reason, str(end.cause)) == (RunEndReason.LOST, "rank 1: told")


def test_a_rank_that_stays_behind_is_killed_after_a_while(rig: Rig) -> None:
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    ticket, due = next((t, at) for t, at in rig.stream.timers.items() if t.startswith("core/kill/"))
    assert due == rig.now + rig.stream.settings.kill_after
    rig.now = due
    rig.feed(TimerElapsed(due, StreamId("x"), ticket))
    sends = [effect for effect in rig.effects if isinstance(effect, Send) and isinstance(effect.body, Kill)]
    assert [effect.run.rank for effect in sends] == [1]
    rig.ended(RunEndReason.TERMINATED, 5, rank=1)
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 5)
    assert rig.called(RunEnd)[-1].reason is RunEndReason.UNTIL


def test_the_failure_of_another_ranks_code_is_the_jobs_failure(rig: Rig) -> None:
    rig.ended(RunEndReason.FAILED, 2, rank=1)
    assert rig.sent(Kill) == [Kill(Reason(ReasonCode.RUN_OVER))]
    rig.ended(RunEndReason.LOST, 2)
    assert (rig.job().failures, rig.job().losses) == (1, 0)
    assert str(rig.job().reason) == "failed (0 more failures allowed): rank 1: told"


def test_a_loss_of_another_rank_is_no_failure(rig: Rig) -> None:
    rig.ended(RunEndReason.LOST, 2, rank=1)
    rig.ended(RunEndReason.FAILED, 2)  # A failure caused by the broken connection, too late to count.
    assert (rig.job().failures, rig.job().losses) == (0, 1)


@pytest.mark.parametrize(("rank", "reason"), [(1, RunEndReason.LOST), (1, RunEndReason.FAILED), (0, RunEndReason.LOST)])
def test_a_job_whose_run_is_over_is_shown_to_leave_until_all_ranks_have(
    rig: Rig, rank: int, reason: RunEndReason
) -> None:
    """Check that the job is shown as SUSPENDING, so that its policy does not suspend it again and again without effect."""
    rig.report(2)
    rig.ended(reason, 2, rank=rank)
    assert rig.job().state is JobState.SUSPENDING
    assert str(rig.job().reason) == "its run is over, and its other processes leave"
    rig.ended(RunEndReason.TERMINATED, 2, rank=1 - rank)
    assert rig.job().state.idle


def test_a_terminated_gang_ends_wherever_each_rank_stands(rig: Rig) -> None:
    rig.hold = True
    rig.report(5, at_until=True)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.sent() == [Decide(DecisionKind.TERMINATE, 5)]
    rig.ended(RunEndReason.TERMINATED, 5, rank=1)
    rig.ended(RunEndReason.TERMINATED, 5)
    assert rig.job().state is JobState.TERMINATED
    assert rig.stream.state is ExperimentState.STOPPED


def test_a_rank_that_is_lost_after_rank_0_saved_and_left_takes_nothing_back() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", "n2/0", until=5)
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    rig.expire("n2")
    assert (rig.job().state, rig.job().position, rig.job().losses) == (JobState.SUSPENDED, 5, 0)


def test_what_rank_0_has_saved_counts_though_the_loss_of_another_rank_was_heard_first() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", "n2/0", until=5)
    rig.report(5, at_until=True)
    rig.expire("n2")
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))  # Sent before the loss.
    assert (rig.job().state, rig.job().position) == (JobState.SUSPENDED, 5)


@pytest.mark.parametrize("first", [0, 1])
def test_a_snapshot_that_no_rank_can_get_is_given_up_whoever_says_so_first(first: int) -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", until=5)
    rig.report(1)
    rig.taken(1)
    rig.ended(RunEndReason.LOST, 1)
    rig.command(StartJob("1", ("n1/0", "n2/0"), until=5))
    keys = [rig.key(rank=rank) for rank in (first, 1 - first)]
    for key in keys:
        rig.say(key, Ended(RunEndReason.LOST, 1, cause=said("no copy"), snapshot_missing=True))
    assert rig.stream.snapshots.positions("1") == []
    assert (rig.job().state, rig.job().position) == (JobState.PENDING, 0)


def test_messages_of_a_rank_of_an_older_attempt_are_refused(rig: Rig) -> None:
    old = rig.key(rank=1)
    rig.ended(RunEndReason.LOST, 2, rank=1)
    rig.ended(RunEndReason.TERMINATED, 2)
    rig.start("1", "n1/0", "n1/1", until=5)
    rig.say(old, Ended(RunEndReason.FAILED, 2, None, True, said("late")))
    assert rig.job().state is JobState.RUNNING
    assert rig.job().failures == 0


# ----------------------------------------------------------------------------------------------------------- competition


class Bench:
    """An engine core with real policies; each run trains to its `until` and ends when the test calls `finish_one`."""

    def __init__(self, slots: int) -> None:
        self.core = Core()
        self.now = 0.0
        self.starts: dict[RunKey, Start] = {}
        self.finished: list[str] = []
        self._sequences: dict[RunKey, int] = {}
        self._hosts: dict[str, PolicyHost] = {}
        self.join("n", slots)

    def join(self, node: str, slots: int) -> None:
        specs = tuple(SlotSpec(f"{node}/{i}") for i in range(slots))
        self.feed(NodeJoined(self.now, node, "a", specs))

    def create(self, name: str, policy: Policy, **terms: object) -> Stream:
        self._hosts[name] = PolicyHost(policy)
        self.feed(StreamCreated(self.now, StreamId(name), settings(**terms)))
        return self.core.streams[StreamId(name)]

    def feed(self, event: Event) -> None:
        waiting = deque([event])
        while waiting:
            for effect in self.core.handle(waiting.popleft()):
                follows = self._follows(effect)
                if follows is not None:
                    waiting.append(follows)

    def _follows(self, effect: Effect) -> Event | None:
        match effect:
            case UpCall():
                answered = self._hosts[effect.stream].answer(self.core.streams[effect.stream], effect)
                assert not isinstance(answered, PolicyFailed), answered
                return answered
            case AskOutside(kind="create_job"):
                return Answered(self.now, effect.stream, effect.ticket, {"lr": 0.1})
            case Send(body=Start()):
                assert isinstance(effect.body, Start)
                self.starts[effect.run] = effect.body
        return None

    def running(self) -> list[tuple[str, int]]:
        """Return the experiment and the number of ranks of each active run."""
        return sorted(
            (stream.id, len(run.ranks)) for stream in self.core.streams.values() for run in stream.live.values()
        )

    def finish_one(self) -> bool:
        """Let the oldest run train to its end and leave; return False if no run is active."""
        for stream in self.core.streams.values():
            for run in stream.live.values():
                self.now += 1.0
                saved = snapshot(run.until, f"{stream.id}.{run.job}")
                self.finished.append(stream.id)
                for index in range(len(run.ranks)):
                    key = RunKey(stream.id, run.job, run.attempt, index)
                    self._say(key, Started(0))
                    if index == 0:
                        self._say(key, Reports((Report(run.until, {"score": 1.0}, at_until=True),)))
                    self._say(key, Ended(RunEndReason.UNTIL, run.until, None if index else saved))
                    if index == 0:
                        self._say(key, SnapshotStored(run.until, saved.sha256))
                return True
        return False

    def _say(self, key: RunKey, body: Started | Reports | Ended | SnapshotStored) -> None:
        self._sequences[key] = self._sequences.get(key, 0) + 1
        self.feed(RunMessage(self.now, *key, self._sequences[key], body))


def test_two_experiments_that_both_need_both_slots_take_turns() -> None:
    bench = Bench(2)
    first = bench.create("a", Gangs(2), jobs=2)
    second = bench.create("b", Gangs(2), jobs=2)
    assert bench.running() == [("a", 2)]
    assert (first.share, second.share, len(second.slots)) == (2, 0, 0)
    assert all(run.ending is None for run in first.live.values())
    while bench.finish_one():
        pass
    assert bench.finished == ["a", "a", "b", "b"]
    assert first.state is second.state is ExperimentState.COMPLETED


def test_two_gangs_of_two_on_three_slots_leave_the_third_to_whom_it_serves() -> None:
    bench = Bench(3)
    bench.create("a", Gangs(2), jobs=1)
    second = bench.create("b", Gangs(2), jobs=1)
    assert len(second.slots) == 0
    bench.create("c", Gangs(1), jobs=1)
    assert bench.running() == [("a", 2), ("c", 1)]
    while bench.finish_one():
        pass
    assert sorted(bench.finished) == ["a", "b", "c"]


def test_a_gang_of_three_and_one_of_two_on_four_slots_take_turns() -> None:
    bench = Bench(4)
    first = bench.create("b", Gangs(2), jobs=2, slots=2)
    second = bench.create("a", Gangs(3), jobs=1)
    assert bench.running() == [("b", 2)]
    assert (second.share, len(second.slots)) == (0, 0)
    while bench.finish_one():
        pass
    assert bench.finished == ["b", "b", "a"]
    assert first.state is second.state is ExperimentState.COMPLETED


def test_one_experiment_with_two_jobs_for_two_of_three_slots_trains_one_after_the_other() -> None:
    bench = Bench(3)
    stream = bench.create("a", Gangs(2), jobs=2)
    assert bench.running() == [("a", 2)]
    assert len(stream.slots) == 2
    while bench.finish_one():
        pass
    assert stream.state is ExperimentState.COMPLETED
    assert str(stream.reason) == "all jobs ended"


def test_a_policy_that_waits_for_the_second_slot_of_a_gang_is_not_at_its_end() -> None:
    bench = Bench(1)
    stream = bench.create("a", Gangs(2), jobs=1)
    assert (stream.state, len(stream.slots)) == (ExperimentState.RUNNING, 0)
    bench.feed(NodeJoined(bench.now, "m", "a", (SlotSpec("m/0"),)))
    assert bench.running() == [("a", 2)]
    bench.feed(NodeExpired(bench.now, "m"))
    bench._say(RunKey(StreamId("a"), "1", 1, 1), Ended(RunEndReason.TERMINATED, 0))
    assert (stream.state, len(stream.slots), stream.share) == (ExperimentState.RUNNING, 0, 0)


# ------------------------------------------------------------------------------------------------- what slots must have


def slots(rig: Rig, node: str, *specs: SlotSpec) -> None:
    rig.feed(NodeJoined(rig.now, node, "a", specs))


def test_an_experiment_gets_only_slots_that_have_what_its_jobs_need() -> None:
    rig = Rig(capacity=2, gpus=1)
    assert (rig.stream.share, rig.stream.slots) == (0, {})
    slots(rig, "g", SlotSpec("g/0", 4, (0,)), SlotSpec("g/1", 4))
    assert (rig.stream.share, set(rig.stream.slots)) == (1, {"g/0"})


def test_a_slot_that_only_one_experiment_can_use_is_recalled_from_another_at_a_boundary() -> None:
    rig = Rig(capacity=0)
    slots(rig, "g", SlotSpec("g/0", 1, (0,)))
    rig.create()
    rig.start("1", "g/0")
    slots(rig, "n2", SlotSpec("n2/0"))
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings(gpus=1)))
    other = rig.core.streams[StreamId("y")]
    assert rig.sent(Decide), "the run on the GPU is told to leave"
    assert set(rig.stream.slots) == {"g/0", "n2/0"}
    rig.ended(RunEndReason.SUSPENDED, 0, snapshot(0))
    assert rig.called(RunEnd)[-1].reason is RunEndReason.PREEMPTED
    assert (set(rig.stream.slots), set(other.slots)) == ({"n2/0"}, {"g/0"})


def test_a_run_that_may_not_be_preempted_keeps_a_recalled_slot_until_it_ends() -> None:
    rig = Rig(capacity=0)
    slots(rig, "g", SlotSpec("g/0", 1, (0,)))
    rig.create()
    rig.command(StartJob("1", ("g/0",), until=5, preemptible=False))
    slots(rig, "n2", SlotSpec("n2/0"))
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings(gpus=1)))
    assert not rig.sent(Decide)
    rig.say(rig.key(), Started(0))
    rig.report(5, at_until=True)
    rig.ended(RunEndReason.UNTIL, 5, snapshot(5))
    assert (set(rig.stream.slots), set(rig.core.streams[StreamId("y")].slots)) == ({"n2/0"}, {"g/0"})


def test_nodes_that_share_a_gang_are_partners_until_its_run_is_over() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.join("n3")
    rig.create()
    rig.start("1", "n1/0", "n2/0")
    assert [rig.core.partners(node) for node in ("n1", "n2", "n3")] == [["n2"], ["n1"], []]
    rig.ended(RunEndReason.LOST, 0)
    rig.ended(RunEndReason.TERMINATED, 0, rank=1)
    assert rig.core.partners("n1") == []


def test_a_rank_that_starts_after_another_one_was_lost_changes_nothing() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.command(StartJob("1", ("n1/0", "n1/1"), until=5))
    rig.say(rig.key(rank=1), Ended(RunEndReason.LOST, 0, cause=said("gone")))
    rig.say(rig.key(), Started(0))
    assert (rig.run().state, rig.job().state) == (RunState.LEAVING, JobState.SUSPENDING)
    rig.report(1)
    rig.ended(RunEndReason.LOST, 1)
    assert rig.job().state is JobState.PENDING
