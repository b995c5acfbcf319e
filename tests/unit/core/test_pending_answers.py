"""Tests that events for an experiment wait while its policy computes an answer, and follow the answer at once."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Answer,
    Command,
    ExperimentChange,
    ExperimentState,
    IterationFinish,
    JobState,
    ReleaseSlot,
    RequestMade,
    RunEnd,
    RunEndReason,
    RunKey,
    ShareChange,
    SlotsChange,
    StartJob,
    StreamId,
)
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, Send, Start, UpCall, Welcome
from hopyard_engine.core.events import (
    CopiesEvicted,
    Event,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeEvicted,
    NodeLost,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    Requested,
    ShareSet,
    SlotGranted,
    StreamCreated,
)
from tests.reasons import failure
from tests.unit.core.rig import Rig, settings

pytestmark = pytest.mark.quick


class Thinking(Rig):
    """A rig whose policy can take its time for an answer."""

    def ponder(self) -> UpCall:
        """Make an up-call that remains unanswered; return it."""
        self.hold = True
        self.now += 1.0
        self.feed(Requested(self.now, StreamId("x"), f"think{self.now}", {}, 1))
        self.core.begin_up_call(StreamId("x"))
        return self.held[-1]

    def wake(self, *commands: Command) -> list[Event]:
        """Answer the open up-call with commands; return the further events that were recorded in the journal."""
        self.hold = False
        self.now += 1.0
        before = len(self.journal)
        (call,) = (held for held in self.held if held.stream == "x")
        self.held.clear()
        self.feed(PolicyAnswered(self.now, StreamId("x"), Answer(call.number, None, tuple(commands))))
        return [event for event in self.journal[before:] if not isinstance(event, PolicyAnswered)]


def test_a_node_that_is_lost_meanwhile_is_lost_after_the_answer() -> None:
    rig = Thinking()
    rig.create()
    rig.ponder()
    rig.expire("n1")
    assert rig.core.awaits_answer(StreamId("x"))
    assert set(rig.stream.slots) == {"n1/0", "n1/1"}
    waited = rig.wake(StartJob("1", ("n1/0",)))
    assert [type(event) for event in waited][:1] == [NodeLost]
    assert not rig.core.awaits_answer(StreamId("x"))
    assert not rig.stream.slots
    assert rig.job().state is JobState.PENDING
    assert rig.job().attempt == 1
    assert not [e for e in rig.effects if isinstance(e, Send)]  # No start is sent for a lost run.


def test_time_never_goes_back() -> None:
    rig = Thinking()
    rig.ponder()
    rig.expire("n1")
    rig.wake()
    times = [event.at for event in rig.journal]
    assert times == sorted(times)


def test_a_lost_slot_goes_to_nobody_until_its_holder_knows() -> None:
    rig = Thinking(capacity=1, grace=0.0)
    rig.ponder()
    rig.expire("n1")
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    rig.join("n1", 1, life="b")
    assert rig.core.cluster.slots["n1/0"].holder == ""
    y = rig.core.streams[StreamId("y")]
    assert not y.slots
    waited = rig.wake()
    assert [type(event) for event in waited[:2]] == [NodeLost, NodeBack]
    assert rig.core.cluster.slots["n1/0"].holder in ("x", "y")


def test_a_smaller_share_is_told_after_the_answer_and_only_the_last_one() -> None:
    rig = Thinking()
    rig.ponder()
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    rig.join("n2", 2)
    assert rig.core.cluster.tenants[StreamId("x")].share == 2
    rig.expire("n2")
    assert rig.core.cluster.tenants[StreamId("x")].share == 1
    assert rig.stream.share == 2
    waited = rig.wake()
    assert [event.slots for event in waited if isinstance(event, ShareSet)] == [1]
    assert rig.called(ShareChange)[-1].slots == 1


def test_free_slots_come_after_the_answer() -> None:
    rig = Thinking(capacity=1)
    rig.ponder()
    rig.join("n2")
    assert rig.core.cluster.slots["n2/0"].holder == ""
    waited = rig.wake()
    assert [event.slot for event in waited if isinstance(event, SlotGranted)] == ["n2/0"]
    assert rig.called(SlotsChange)[-1].joined == ("n2/0",)


def started(rig: Thinking) -> list[str]:
    """Return the nodes to which the last event sent the start of a run."""
    return [effect.node for effect in rig.of(Send) if isinstance(effect.body, Start)]


def test_nothing_begins_on_a_node_that_is_drained_meanwhile() -> None:
    rig = Thinking()
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.ponder()
    rig.feed(NodeDrained(rig.now, "n1"))
    assert not rig.stream.draining
    waited = rig.wake(StartJob("2", ("n1/1",)))
    assert waited[0] == NodeDraining(rig.now, StreamId("x"), "n1", unsent=(RunKey(StreamId("x"), "2", 1),))
    assert started(rig) == []
    assert (rig.job("1").state, rig.job("2").state) == (JobState.SUSPENDING, JobState.PENDING)
    assert rig.called(RunEnd)[-1].reason is RunEndReason.SUSPENDED
    assert set(rig.stream.slots) == {"n1/0"}


@pytest.mark.parametrize("lost", ["before", "after", "not"])
@pytest.mark.parametrize("slots", [("n2/0", "n1/0"), ("n1/0", "n2/0")])
def test_no_rank_of_a_gang_begins_when_the_node_of_one_is_drained_meanwhile(slots: tuple[str, str], lost: str) -> None:
    """Check also with a gang that is over because another node was lost."""
    rig = Thinking(capacity=1)
    rig.join("n2")
    rig.create()
    rig.ponder()
    if lost == "before":
        rig.expire("n2")
    rig.feed(NodeDrained(rig.now, "n1"))
    if lost == "after":
        rig.expire("n2")
    rig.wake(StartJob("1", slots))
    assert rig.of(Send) == []
    assert not rig.stream.live
    assert rig.job().state is JobState.PENDING
    assert set(rig.stream.slots) == ({"n2/0"} if lost == "not" else set())
    assert not [ticket for ticket in rig.stream.timers if ticket.startswith("core/")]


def test_a_crash_while_it_thinks_forgets_no_drained_node() -> None:
    rig = Thinking()
    rig.ponder()
    rig.feed(NodeDrained(rig.now, "n1"))
    again = Core()
    again.restore_cluster(NodeDrained(rig.now, "n1"))
    for event in rig.journal:
        again.restore(event)  # type: ignore[arg-type]
    again.recovered()
    assert not again.streams[StreamId("x")].draining
    number = rig.held[-1].number
    effects = again.handle(PolicyAnswered(rig.now, StreamId("x"), Answer(number, None, ())))
    records = [type(e.event) for e in effects if isinstance(e, Record)]
    assert records[:2] == [PolicyAnswered, NodeDraining]  # No record is between the up-call and its answer.


def test_after_a_crash_nothing_begins_on_a_node_that_was_drained_while_it_thought() -> None:
    rig = Thinking()
    rig.create()
    rig.ponder()
    again = Core()
    again.restore_cluster(NodeDrained(rig.now, "n1"))
    for event in rig.journal:
        again.restore(event)  # type: ignore[arg-type]
    again.recovered()
    answer = Answer(rig.held[-1].number, None, (StartJob("1", ("n1/0",)),))
    effects = again.handle(PolicyAnswered(rig.now, StreamId("x"), answer))
    assert not [e for e in effects if isinstance(e, Send)]
    assert again.streams[StreamId("x")].jobs["1"].state is JobState.PENDING


def test_a_run_on_a_node_that_was_lost_is_not_wanted_any_more() -> None:
    rig = Thinking()
    rig.create()
    rig.start()
    rig.ponder()
    rig.expire("n1")
    rig.join("n1", 2, runs=(RunKey(StreamId("x"), "1", 1),))
    assert rig.of(Welcome)[0].unknown == (RunKey(StreamId("x"), "1", 1),)
    assert rig.core.unacknowledged("n1") == []
    rig.wake()
    assert not rig.stream.live


def test_what_the_answer_starts_on_a_slot_that_is_gone_is_lost() -> None:
    rig = Thinking()
    rig.create()
    rig.ponder()
    rig.join("n1", 1)  # The same incarnation, with one slot less.
    waited = rig.wake(StartJob("1", ("n1/1",)))
    assert isinstance(waited[0], NodeBack)
    assert waited[0].gone == ("n1/1",)
    assert waited[0].lost == (RunKey(StreamId("x"), "1", 1),)
    assert not [e for e in rig.effects if isinstance(e, Send) and isinstance(e.body, Start)]
    assert not rig.stream.live


def test_other_events_of_the_experiment_are_refused() -> None:
    rig = Thinking()
    call = rig.ponder()
    with pytest.raises(RuntimeError, match="experiment x waits for its policy's answer, found Operated"):
        rig.core.handle(Operated(rig.now, StreamId("x"), "pause"))
    assert rig.core.handle(PolicyAnswered(rig.now, StreamId("x"), Answer(call.number - 1, None, ()))) == []
    assert rig.core.awaits_answer(StreamId("x"))


# --------------------------------------------------------------------------------------------------------- given up


def given_up(rig: Thinking, call: UpCall) -> None:
    rig.hold = False
    rig.now += 1.0
    rig.held.clear()
    rig.feed(PolicyFailed(rig.now, StreamId("x"), call.number, failure("policy p took longer than 10 s"), unheard=True))


def test_a_policy_that_was_given_up_is_asked_again_when_resumed_in_order() -> None:
    rig = Thinking()
    rig.create()
    rig.start()
    call = rig.ponder()
    assert isinstance(call.call, RequestMade)
    made = len(rig.calls)
    given_up(rig, call)
    assert rig.stream.state in (ExperimentState.PAUSING, ExperimentState.PAUSED)
    assert str(rig.stream.reason) == "policy error: policy p took longer than 10 s"
    assert len(rig.calls) == made  # No up-call is made before the resume.
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.reason is None
    told = [c for c in rig.calls[made:] if isinstance(c, RequestMade | ExperimentChange)]
    assert told == [call.call, ExperimentChange("paused", "x"), ExperimentChange("resumed", "x")]


def test_an_offer_that_was_not_answered_comes_when_nothing_else_waits() -> None:
    rig = Thinking(capacity=1)
    rig.create()
    rig.hold = True
    rig.join("n2")  # A share, a slot, then the offer.
    while not isinstance(rig.held[-1].call, AllocateJobs):
        call = rig.held.pop()
        rig.feed(PolicyAnswered(rig.now, StreamId("x"), Answer(call.number, None, ())))
    made = len(rig.calls)
    given_up(rig, rig.held[-1])
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert isinstance(rig.calls[-1], AllocateJobs)
    assert ExperimentChange("resumed", "x") in rig.calls[made:-1]


def test_what_was_refused_is_told_with_the_up_call_that_comes_again() -> None:
    rig = Thinking()
    rig.hold = True
    rig.feed(Requested(rig.now, StreamId("x"), "r1", {}, 1))
    first = rig.held.pop()
    rig.feed(Requested(rig.now, StreamId("x"), "r2", {}, 1))
    rig.feed(PolicyAnswered(rig.now, StreamId("x"), Answer(first.number, None, (ReleaseSlot("nowhere"),))))
    second = rig.held.pop()
    assert [v.command for v in second.verdicts] == [ReleaseSlot("nowhere")]
    given_up(rig, second)
    rig.hold = True
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.held[-1].call == second.call
    assert rig.held[-1].verdicts == second.verdicts
    assert rig.held[-1].number > second.number


def test_a_decision_on_a_run_that_was_suspended_meanwhile_is_not_asked_for_again() -> None:
    rig = Thinking()
    rig.create()
    rig.start()
    rig.hold = True
    rig.report(1)
    while not isinstance(rig.held[-1].call, IterationFinish):
        call = rig.held.pop()
        rig.feed(PolicyAnswered(rig.now, StreamId("x"), Answer(call.number, None, ())))
    given_up(rig, rig.held[-1])
    asked = len(rig.called(IterationFinish))
    rig.expire("n1")
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert len(rig.called(IterationFinish)) == asked


def test_a_revived_experiment_asks_its_policy_again() -> None:
    rig = Thinking()
    call = rig.ponder()
    given_up(rig, call)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.STOPPED
    assert rig.stream.conversation.in_flight is None


def test_copies_that_a_node_deletes_before_it_is_told_of_as_back_are_not_believed_in() -> None:
    rig = Thinking(capacity=1)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0")
    rig.kept(1)
    rig.expire("n1")
    rig.ponder()
    rig.join("n1", 1, life="b", snapshots=("s1",))
    rig.feed(NodeEvicted(rig.now, "n1", ("s1", "unknown")))
    waited = rig.wake()
    assert [type(event) for event in waited[:2]] == [NodeBack, CopiesEvicted]
    entry = rig.stream.snapshots.get("1", 1)
    assert entry is not None
    assert entry.stored
    assert "n1" not in entry.nodes
