"""Tests of the acknowledgements of a batch: which ones are sent, and in which order with other effects."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard_engine.core.effects import Acknowledge, Effect, ForgetSnapshot, Noted
from hopyard_scheduler.runtime.ack_coalescing import acknowledged
from tests.reasons import failure

pytestmark = pytest.mark.quick

ONE, OTHER = RunKey(StreamId("x"), "1", 1, 0), RunKey(StreamId("x"), "2", 1, 0)
NOTED = Noted(StreamId("x"), "", failure("something"))


def test_a_run_is_acknowledged_once_a_batch() -> None:
    effects: list[Effect] = [
        Acknowledge(ONE, 1),
        Acknowledge(OTHER, 4),
        NOTED,
        Acknowledge(ONE, 3),
        Acknowledge(ONE, 2),
    ]
    assert list(acknowledged(effects)) == [Acknowledge(OTHER, 4), NOTED, Acknowledge(ONE, 3)]


def test_what_was_heard_before_a_snapshot_is_let_go_is_acknowledged_before() -> None:
    forget = ForgetSnapshot(StreamId("x"), "s1", ("n",), True)
    effects: list[Effect] = [Acknowledge(ONE, 1), Acknowledge(ONE, 2), forget, Acknowledge(ONE, 3), NOTED, forget]
    assert list(acknowledged(effects)) == [Acknowledge(ONE, 2), forget, Acknowledge(ONE, 3), NOTED, forget]
