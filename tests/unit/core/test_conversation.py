"""Tests of the policy conversation: one up-call at a time, none lost and none repeated."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    IterationFinish,
    Report,
    ShareChange,
    StreamId,
    TerminateJob,
    TimerFired,
    Verdict,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.state.policy_conversation import ConversationState, PolicyConversation
from hopyard_engine.core.state_machines.transitions import IllegalTransitionError

pytestmark = pytest.mark.quick

FIRED = TimerFired("t")
REFUSED = Verdict(TerminateJob("9"), False, Reason.of(ReasonCode.NO_SUCH_JOB, job="9"))


@pytest.fixture
def conversation() -> PolicyConversation:
    return PolicyConversation(StreamId("x"))


def test_up_calls_have_increasing_numbers_and_take_the_refusals_along(conversation: PolicyConversation) -> None:
    conversation.refused(REFUSED)
    assert conversation.ask(FIRED, None, 5.0) == (1, (REFUSED,))
    assert (conversation.asked_at, conversation.verdicts, conversation.refusal) == (5.0, [], REFUSED.reason)
    conversation.answered()
    assert conversation.ask(FIRED, None, 6.0) == (2, ())


def test_no_second_up_call_is_made_before_the_answer(conversation: PolicyConversation) -> None:
    conversation.ask(FIRED, None, 1.0)
    with pytest.raises(
        IllegalTransitionError,
        match=r"policy of stream x: ASKED -> ASKED \(AllocateJobs\); story: ASKED \(TimerFired\)",
    ):
        conversation.ask(AllocateJobs(), None, 2.0)


def test_only_the_number_in_flight_is_answered(conversation: PolicyConversation) -> None:
    assert not conversation.is_answered_by(0)
    conversation.ask(FIRED, None, 1.0)
    assert (conversation.is_answered_by(1), conversation.is_answered_by(2)) == (True, False)
    assert conversation.answered() == (1, FIRED, None)
    assert not conversation.is_answered_by(1)


def test_a_decision_for_a_run_that_is_over_is_not_asked(conversation: PolicyConversation) -> None:
    conversation.queue(IterationFinish("1", Report(3, {})))
    conversation.queue(FIRED)
    assert conversation.take_next(lambda run: False) == (FIRED, None)
    assert conversation.take_next(lambda run: False) is None


def test_an_allocation_is_due_once_for_each_reason(conversation: PolicyConversation) -> None:
    due = [conversation.allocation_due]
    conversation.ask(AllocateJobs(), None, 1.0)
    due.append(conversation.allocation_due)
    conversation.answered()
    conversation.wake()
    assert [*due, conversation.allocation_due] == [True, False, True]


def test_the_up_call_of_a_policy_that_is_given_up_comes_first_afterwards(conversation: PolicyConversation) -> None:
    share = ShareChange(2, None)
    conversation.queue(share)
    conversation.refused(REFUSED)
    conversation.ask(FIRED, None, 1.0)
    conversation.give_up()
    assert (conversation.state, conversation.in_flight) == (ConversationState.SILENT, None)
    assert (list(conversation.calls), conversation.verdicts) == ([(FIRED, None), (share, None)], [REFUSED])
    with pytest.raises(IllegalTransitionError, match="SILENT -> ASKED"):
        conversation.ask(FIRED, None, 2.0)
    conversation.listen()
    conversation.listen()
    assert conversation.ask(FIRED, None, 3.0) == (2, (REFUSED,))


def test_an_allocation_that_was_given_up_is_due_again_and_does_not_queue(conversation: PolicyConversation) -> None:
    conversation.ask(AllocateJobs(), None, 1.0)
    conversation.give_up()
    assert (list(conversation.calls), conversation.allocation_due) == ([], True)


def test_the_end_of_a_stream_leaves_nothing_in_flight(conversation: PolicyConversation) -> None:
    conversation.queue(FIRED)
    conversation.ask(FIRED, None, 1.0)
    conversation.end(drop_calls=False)
    assert (conversation.busy, conversation.in_flight, conversation.state) == (True, None, ConversationState.IDLE)
    conversation.end(drop_calls=True)
    assert not conversation.busy


def test_a_policy_that_was_given_up_stays_silent_over_the_end(conversation: PolicyConversation) -> None:
    conversation.ask(FIRED, None, 1.0)
    conversation.give_up()
    conversation.end(drop_calls=True)
    assert conversation.state is ConversationState.SILENT


def test_answers_are_counted_from_what_the_policy_did_not_cause(conversation: PolicyConversation) -> None:
    conversation.refused(REFUSED)
    for _ in range(5):
        conversation.queue(FIRED)
    conversation.rest(8.0, 2)
    assert (conversation.answers, conversation.rested_at, conversation.refusal) == (-3, 8.0, None)
