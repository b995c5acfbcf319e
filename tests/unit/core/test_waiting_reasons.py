"""Tests of the waiting reasons of jobs and experiments, each by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typing_extensions import override

from hopyard.policy.vocabulary import (
    PARK,
    CreateJob,
    Decision,
    ExperimentId,
    IterationFinish,
    JobState,
    ReserveSlot,
    RunEndReason,
    StartJob,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import explain
from hopyard_engine.core import CLUSTER_STREAM
from hopyard_engine.core.actions import failures
from hopyard_engine.core.cluster.turns import TURN_SECONDS
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import (
    Answered,
    Ended,
    ExperimentJoined,
    NodeDrained,
    NodeJoined,
    Operated,
    PolicyAnswered,
    Started,
    StreamCreated,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.state.timers import BackoffTimer, ShareTimer
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from tests.reasons import failure, said
from tests.unit.core import rig as plain
from tests.unit.core.rig import settings, snapshot

pytestmark = pytest.mark.quick


class Rig(plain.Rig):
    """A rig in which the policies of all experiments have demand `wants` and need `gang` slots at once."""

    wants: int | None = None
    gang: int = 1

    @override
    def answer(self, call: UpCall) -> PolicyAnswered:
        return replace(super().answer(call), demand=self.wants, gang=self.gang)

    def answer_held(self) -> None:
        """Answer the up-call that waits."""
        self.feed(self.answer(self.held.popleft()))


def why(rig: Rig, name: str = "1") -> str:
    """Return the waiting reason of a job."""
    return explain(WaitingReasons(rig.stream, rig.core.cluster, rig.now).job(rig.job(name)))


def whole(rig: Rig, experiment: str = "x") -> str:
    """Return the waiting reason of an experiment."""
    stream = rig.core.streams[StreamId(experiment)]
    return explain(WaitingReasons(stream, rig.core.cluster, rig.now).experiment(stream.founder))


def second(rig: Rig, **terms: object) -> None:
    """Create another experiment, y."""
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings(**terms)))


def busy(rig: Rig, *slots: str) -> None:
    """Let a new job train on each of these slots."""
    for slot in slots:
        rig.start(rig.create(), slot)


# ----------------------------------------------------------------------------------------------------------- one job at rest


def test_a_job_that_trains_waits_for_nothing() -> None:
    rig = Rig()
    busy(rig, "n1/0")
    assert (why(rig), whole(rig)) == ("", "")


def test_it_waits_for_its_generator() -> None:
    rig = Rig()
    rig.command(CreateJob("1"))
    assert why(rig) == "waits for the generator's answer"
    assert whole(rig) == "waits for the generator's answer for 1 job"
    rig.feed(Answered(rig.now, StreamId("x"), "create/1", {"lr": 0.1}))
    assert why(rig) == "the policy has not started it (2 slots are idle)"
    assert whole(rig) == "no job runs: job 1 the policy has not started it (2 slots are idle)"


def test_who_stands_at_a_rung_is_not_what_the_experiment_waits_for() -> None:
    rig = Rig()
    rig.start(rig.create(), "n1/0", until=2)
    rig.say(rig.key(), Started(0))
    rig.report(2)
    rig.taken(2)
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2))
    rig.command(CreateJob("2"))
    assert rig.job().state is JobState.SUSPENDED
    assert whole(rig) == "waits for the generator's answer for 1 job"


def test_no_slot_in_the_cluster() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.expire("n1")
    assert why(rig) == "waits for a slot: the cluster has no slot (no agent is connected; node n1 is lost)"
    assert whole(rig) == "the cluster has no slot (no agent is connected; node n1 is lost)"
    rig.join("n1", 0, "b")
    assert why(rig) == "waits for a slot: the cluster has no slot (its agents have none)"
    rig.join("n2", 2)
    assert why(rig) == "the policy has not started it (2 slots are idle)"
    rig.feed(NodeDrained(rig.now, "n2"))
    assert why(rig) == "waits for a slot: the cluster has no slot (2 are on drained or leaving nodes: n2)"


def test_before_any_agent_came() -> None:
    rig = Rig(capacity=0)
    rig.core.cluster.nodes.clear()
    rig.create()
    assert whole(rig) == "the cluster has no slot (no agent is connected)"


def test_all_slots_of_its_share_are_busy() -> None:
    rig = Rig(capacity=2)
    busy(rig, "n1/0", "n1/1")
    rig.create()
    assert why(rig, "3") == "waits for a slot: 2 of 2 in its share are busy"
    assert whole(rig) == ""


def test_what_keeps_the_share_small_is_named() -> None:
    rig = Rig(capacity=3, slots=1)
    busy(rig, "n1/0")
    rig.create()
    assert why(rig, "2") == "waits for a slot: 1 of 1 in its share are busy: resources.slots is 1"
    rig = Rig(capacity=3)
    rig.wants = 1
    rig.create()
    rig.start("1", *rig.stream.slots)
    rig.create()
    assert why(rig, "2") == "waits for a slot: 1 of 1 in its share are busy: the policy can use no more than 1 now"
    rig = Rig(capacity=3)
    second(rig, weight=2.0)
    busy(rig, *rig.stream.slots)
    rig.create()
    assert why(rig, "2") == "waits for a slot: 1 of 1 in its share are busy: weight 1 against y (weight 2: 2)"


def end_turn(rig: Rig) -> None:
    """End the turn of experiment x, which has the lowest weight."""
    rig.now += TURN_SECONDS
    rig.feed(TimerElapsed(rig.now, CLUSTER_STREAM, "core/turn"))


def test_a_share_of_nothing() -> None:
    rig = Rig(capacity=1, weight=0.5)
    rig.create()
    second(rig)
    assert rig.stream.share == 1
    end_turn(rig)
    assert rig.stream.share == 0
    assert why(rig) == "waits for a slot: its share is 0 of 1: weight 0.5 against y (weight 1: 1)"
    assert whole(rig) == "its share is 0 of 1 slot: weight 0.5 against y (weight 1: 1)"
    for name in "abcd":
        rig.feed(StreamCreated(rig.now, StreamId(name), settings()))
    rig.join("n2", 4)
    assert rig.stream.share == 1
    end_turn(rig)
    expected = "weight 0.5 against a (weight 1: 1), b (weight 1: 1), c (weight 1: 1) and 2 more"
    assert whole(rig) == f"its share is 0 of 5 slots: {expected}"


def test_a_policy_that_can_use_none() -> None:
    rig = Rig(capacity=1)
    rig.wants = 0
    rig.command(CreateJob("1"))  # The open request keeps the experiment open.
    rig.create()
    assert whole(rig) == "its share is 0 of 1 slot: the policy can use none now"
    assert why(rig, "2") == "waits for a slot: its share is 0 of 1: the policy can use none now"


def test_several_slots_at_once() -> None:
    rig = Rig(capacity=2)
    rig.gang = 2
    rig.create()
    assert why(rig) == "the policy has not started it (2 slots are idle)"
    rig.stream.give_up("n1/1")  # As if another experiment still used it.
    assert why(rig) == "waits for 2 slots at once: 1 is idle"
    rig.join("n1", 1, "b")
    need = "each job needs 2 slots with 1 CPU thread and no GPU at once; there are 1 with 1 CPU thread and no GPU"
    assert (why(rig), whole(rig)) == (f"waits for a slot: {need}", need)


def test_a_gang_beyond_what_the_experiment_may_hold() -> None:
    rig = Rig(capacity=2, slots=1)
    rig.gang = 2
    rig.create()
    assert whole(rig) == "each job needs 2 slots at once; resources.slots allows 1"


def test_no_slot_has_what_each_job_needs() -> None:
    rig = Rig(capacity=2, cpus=4, gpus=2)
    rig.create()
    need = "each job needs a slot with 4 CPU threads and 2 GPUs (resources.per_job)"
    assert why(rig) == f"waits for a slot: {need}; there are 2 with 1 CPU thread and no GPU"
    rig.feed(NodeJoined(rig.now, "n2", "a", (SlotSpec("n2/0", 4, (0, 1)),)))
    assert why(rig) == "the policy has not started it (1 slot is idle)"


def test_slots_that_others_have_yet_to_leave() -> None:
    rig = Rig(capacity=2)
    busy(rig, "n1/0", "n1/1")
    rig.script = lambda call: (Decision.proceed() if isinstance(call, IterationFinish) else None, [])
    second(rig)
    assert whole(rig, "y") == "its share is 1 of 2, and others still hold 1 slot"
    assert whole(rig) == "its share fell to 1 of 2: it must leave 1 slot within 30 s"
    rig.create()
    assert why(rig, "3") == "waits for a slot: its share fell to 1, and 2 are busy"
    rig.now += 30
    rig.feed(TimerElapsed(rig.now, StreamId("x"), ShareTimer().ticket))
    assert why(rig, "2") == "preempted: another experiment's share"
    assert whole(rig) == "its share fell to 1 of 2: it must leave 1 slot"
    rig.ended(RunEndReason.SUSPENDED, 0, None, "2")
    assert whole(rig) == ""
    assert why(rig, "2").startswith("waits for a slot: 1 of 1 in its share are busy: weight 1 against y (weight 1: 1)")
    assert why(rig, "2").endswith("; last: preempted")


def test_one_slot_has_come_and_another_is_still_elsewhere() -> None:
    rig = Rig(capacity=2)
    second(rig)
    busy(rig, *rig.stream.slots)
    rig.create()
    rig.stream.share = 2  # The other experiment must release its slot, on which it trains.
    assert why(rig, "2") == "waits for a slot: 1 of 2 in its share are busy, and others still hold 1 slot"


def test_the_policy_thinks_or_keeps_the_slot() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.command(ReserveSlot("n1/0"))
    assert why(rig) == "waits for a slot: the policy has reserved 1 idle slot"
    rig.hold = True
    rig.join("n2", 1)
    assert why(rig) == "waits for the policy"
    assert whole(rig) == "waits for the policy"
    rig.now += 3
    assert why(rig) == "waits for the policy, which has not answered for 3 s"
    assert whole(rig) == f"no job runs: job 1 {why(rig)}"


def test_a_policy_that_has_no_process_is_told_of_as_long_as_it_is_asked() -> None:
    rig = Rig(capacity=1)
    rig.create()
    away = failure("no process serves remote:polly")

    def waiting() -> WaitingReasons:
        return WaitingReasons(rig.stream, rig.core.cluster, rig.now, away)

    assert str(away) not in f"{waiting().job(rig.job())} {waiting().experiment(rig.stream.founder)}"
    rig.hold = True
    rig.join("n2", 1)
    assert str(waiting().job(rig.job())) == f"waits for the policy: {away}"
    assert waiting().experiment(rig.stream.founder) == away


def test_the_policy_has_nothing_to_run() -> None:
    rig = Rig(capacity=2)
    rig.hold = True
    rig.join("n2", 1)
    assert whole(rig) == "waits for the policy"
    rig.now += 3
    assert whole(rig) == "waits for the policy, which has not answered for 3 s"
    rig.held.clear()
    rig.stream.conversation.in_flight = None
    assert whole(rig) == "the policy has no job to run (3 slots are idle)"


# ------------------------------------------------------------------------------------------------------- losses and failures


def lose(rig: Rig, *, missing: bool = False) -> None:
    """Start the job and lose its run before it trains."""
    rig.command(StartJob("1", ("n1/0",)))
    rig.say(rig.key(), Ended(RunEndReason.LOST, rig.run().position, cause=said("gone"), snapshot_missing=missing))


def test_it_waits_after_losses() -> None:
    rig = Rig()
    rig.create()
    for _ in range(5):
        if BackoffTimer("1").ticket in rig.stream.timers:
            rig.now = rig.stream.timers[BackoffTimer("1").ticket]
            rig.feed(TimerElapsed(rig.now, StreamId("x"), BackoffTimer("1").ticket))
        lose(rig)
    assert why(rig) == "waits after 5 losses or failures in a row: tries again in 4 s; last: its run was lost: gone"
    rig.now += 2.5
    assert why(rig) == "waits after 5 losses or failures in a row: tries again in 2 s; last: its run was lost: gone"


def test_it_waits_after_failures_and_losses_alike() -> None:
    rig = Rig(max_failures=3)
    rig.create()
    for reason in (RunEndReason.FAILED, RunEndReason.FAILED):
        rig.start()
        rig.ended(reason, 0)
    waits = "waits after 2 losses or failures in a row: tries again in 1 s; last: failed (1 more failure allowed): told"
    assert why(rig) == waits


def test_a_job_that_has_failed_says_so_until_it_reports_something_new() -> None:
    rig = Rig(max_failures=3)
    rig.create()
    rig.start()
    rig.report(1)
    assert why(rig) == ""
    rig.ended(RunEndReason.FAILED, 1)
    assert "; last: failed (2 more failures allowed): told" in why(rig)
    assert whole(rig) == "no job runs: job 1 the policy has not started it (2 slots are idle)"
    rig.command(StartJob("1", ("n1/0",)))
    assert why(rig).startswith("starts on n1/0")
    assert why(rig).endswith("; last: failed (2 more failures allowed): told")
    rig.say(rig.key(), Started(0))
    assert why(rig) == "attempt 2 of 4 after a failure: told"
    rig.report(1)  # It repeats what it had reported before the failure.
    assert why(rig) == "attempt 2 of 4 after a failure: told"
    rig.report(2)
    assert why(rig) == ""


@pytest.mark.parametrize(
    ("up", "where"), [(True, "node n2 did not send it"), (False, "it is on node n2, which is away")]
)
def test_a_snapshot_that_nobody_gives(up: bool, where: str) -> None:
    rig = Rig()
    rig.join("n2", 1)
    rig.create()
    rig.start("1", "n2/0")
    rig.report(6)
    rig.ended(RunEndReason.SUSPENDED, 6, snapshot(6))
    lose(rig, missing=True)
    lose(rig, missing=True)
    rig.core.cluster.nodes["n2"].up = up
    waits = f"waits until its snapshot at 6 can be loaded: {where} (try 2 of {failures.MISSES}); tries again in 1 s"
    assert why(rig) == f"{waits}; last: its run was lost: gone"


def test_a_failure_is_told_beside_what_it_waits_for() -> None:
    rig = Rig(capacity=1, max_failures=2)
    rig.create()
    rig.start()
    rig.ended(RunEndReason.FAILED, 0)
    assert why(rig).startswith("the policy has not started it (1 slot is idle); last: failed (1 more failure allowed")


def test_an_ended_job_says_how_it_ended() -> None:
    rig = Rig(max_failures=0)
    rig.create()
    rig.start()
    rig.ended(RunEndReason.FAILED, 0)
    assert why(rig) == str(rig.job().reason)
    assert rig.job().state is JobState.FAILED


# -------------------------------------------------------------------------------------------------------- on its way, parked


def test_starting_says_what_is_still_to_happen() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.command(StartJob("1", ("n1/0",)))
    assert why(rig) == "starts on n1/0: node n1 has not confirmed it yet"
    rig.core.acknowledge(rig.key(), 1)
    assert why(rig) == "starts on n1/0: its process prepares"
    rig.say(rig.key(), Started(0))
    assert why(rig) == ""
    rig.report(4)
    rig.ended(RunEndReason.SUSPENDED, 4, snapshot(4))
    rig.command(StartJob("1", ("n1/0",)))
    rig.core.acknowledge(rig.key(), 1)
    assert why(rig) == "starts on n1/0: its process loads its snapshot at 4"


def test_a_gang_begins_rank_by_rank() -> None:
    rig = Rig(capacity=1)
    rig.join("n2", 1)
    rig.create()
    rig.command(StartJob("1", ("n1/0", "n2/0")))
    assert why(rig) == "starts on n1/0, n2/0: nodes n1 and n2 have not confirmed it yet"
    rig.say(rig.key(rank=1), Started(0))
    assert why(rig) == "starts on n1/0, n2/0, 1 of 2 have begun: node n1 has not confirmed it yet"


def test_a_parked_run_waits_in_memory_and_an_undecided_one_for_its_decision() -> None:
    rig = Rig(capacity=1)
    rig.script = lambda call: (PARK if isinstance(call, IterationFinish) else None, [])
    rig.create()
    rig.start(until=3)
    rig.hold = True
    rig.report(3, at_until=True)
    while not isinstance(rig.held[0].call, IterationFinish):
        rig.answer_held()
    assert why(rig) == "waits at 3 for the policy's decision"
    rig.answer_held()
    assert why(rig) == "parked at 3: waits in memory for the policy"


# ---------------------------------------------------------------------------------------------------------- pausing, ending


def test_a_paused_experiment() -> None:
    rig = Rig(capacity=1)
    busy(rig, "n1/0")
    rig.create()
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    assert whole(rig) == "paused by a person; waits for 1 run to reach a boundary and leave"
    assert why(rig, "2") == "waits: the experiment is pausing (paused by a person)"
    rig.report(2)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    assert whole(rig) == "paused by a person; waits for 1 snapshot to reach the store"
    rig.stored(2)
    assert whole(rig) == "paused by a person"
    assert why(rig, "2") == "waits: the experiment is paused (paused by a person)"


def test_an_ending_experiment_and_one_that_is_over() -> None:
    rig = Rig(capacity=1, target=0.9)
    busy(rig, "n1/0")
    rig.report(1, 0.95)
    assert whole(rig).endswith("reached the target 0.9 with 0.95 at 1; waits for 1 run to reach a boundary and leave")
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.stored(1)
    assert whole(rig) == str(rig.stream.reason)
    assert why(rig) == "reached the target"


# ------------------------------------------------------------------------------------------------------------------- purity


def test_asking_changes_nothing_and_the_text_follows_the_state() -> None:
    rig = Rig(capacity=1)
    busy(rig, "n1/0")
    rig.create()
    before = repr((rig.stream.__dict__, rig.core.cluster.__dict__))
    assert why(rig, "2") == "waits for a slot: 1 of 1 in its share are busy"
    assert whole(rig) == ""
    assert repr((rig.stream.__dict__, rig.core.cluster.__dict__)) == before
    rig.feed(Updated(rig.now, StreamId("x"), "u", slots=1))
    rig.feed(NodeJoined(rig.now, "n2", "a", (SlotSpec("n2/0"),)))
    assert why(rig, "2") == "waits for a slot: 1 of 1 in its share are busy: resources.slots is 1"
    rig.feed(Updated(rig.now, StreamId("x"), "v", slots=5))
    assert why(rig, "2") == "the policy has not started it (1 slot is idle)"


def test_each_of_a_group_says_its_own() -> None:
    rig = Rig(capacity=2)
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(slots=1, weight=2.0)))
    rig.feed(Updated(rig.now, StreamId("x"), "u", slots=1))
    rig.command(CreateJob("1", {"lr": 0.1}, "x"))
    rig.start("1", "n1/0")
    rig.command(CreateJob("2", {"lr": 0.1}, "y"))
    experiment = rig.stream.experiments[ExperimentId("y")]
    waiting = WaitingReasons(rig.stream, rig.core.cluster, rig.now)
    assert whole(rig) == ""
    assert str(waiting.experiment(experiment)) == "no job runs: job 2 the policy has not started it (1 slot is idle)"
    rig.feed(Operated(rig.now, StreamId("x"), "pause", ExperimentId("y")))
    assert why(rig, "2") == "waits: the experiment is paused (paused by a person)"
    rig.feed(Operated(rig.now, StreamId("x"), "resume", ExperimentId("y")))
    rig.feed(Updated(rig.now, StreamId("x"), "v", slots=1))
    rig.feed(StreamCreated(rig.now, StreamId("z"), settings(weight=3.0)))
    expected = "1 of 1 in its group's share are busy: weight 3 against z (weight 3: 1)"
    assert why(rig, "2") == f"waits for a slot: {expected}"


def test_a_paused_job_says_that_its_progress_was_dropped() -> None:
    rig = Rig()
    rig.create()
    rig.start()
    rig.report(1)
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.ended(RunEndReason.SUSPENDED, 1)
    assert why(rig).startswith("waits: the experiment is paused")
    assert why(rig).endswith("; last: back at position 0, because no later snapshot was saved: suspended at 1")
