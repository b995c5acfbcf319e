"""Tests of the events that wait while their experiment's policy computes an answer."""

import pytest

from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.runtime.event_inbox import EventInboxes

pytestmark = pytest.mark.quick


def test_nothing_is_kept_for_an_experiment_that_does_not_think() -> None:
    inboxes = EventInboxes[int](lambda name: False)
    assert not inboxes.keep(StreamId("x"), 1)
    assert not inboxes.ready
    assert inboxes.take() is None


def test_items_wait_in_order_and_later_ones_behind_them() -> None:
    thinking = {"x"}
    inboxes = EventInboxes[int](thinking.__contains__)
    assert inboxes.keep(StreamId("x"), 1)
    assert inboxes.keep(StreamId("x"), 2)
    assert not inboxes.keep(StreamId("y"), 9)
    assert (inboxes.ready, inboxes.take(), inboxes.waiting(StreamId("x"))) == (False, None, 2)
    thinking.clear()
    assert inboxes.ready
    assert inboxes.take() == 1
    assert inboxes.keep(StreamId("x"), 3)  # after the second one, although the policy has answered
    assert [inboxes.take(), inboxes.take()] == [2, 3]
    assert not inboxes.keep(StreamId("x"), 4)


def test_thinking_again_keeps_the_rest() -> None:
    thinking = {"x"}
    inboxes = EventInboxes[int](thinking.__contains__)
    for item in (1, 2):
        inboxes.keep(StreamId("x"), item)
    thinking.clear()
    assert inboxes.take() == 1
    thinking.add("x")
    assert inboxes.take() is None
    assert inboxes.waiting(StreamId("x")) == 1


def test_experiments_take_turns() -> None:
    thinking = {"x", "y", "z"}
    inboxes = EventInboxes[str](thinking.__contains__)
    for name in "xyz":
        for number in "12":
            inboxes.keep(StreamId(name), name + number)
    thinking.discard("x")
    thinking.discard("z")
    assert [inboxes.take() for _ in range(5)] == ["x1", "z1", "x2", "z2", None]
    assert inboxes.waiting(StreamId("y")) == 2
