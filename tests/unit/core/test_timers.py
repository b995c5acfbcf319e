"""Tests of timer keys and their tickets."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentId
from hopyard_engine.core.state.timers import (
    BackoffTimer,
    EndTimer,
    IdleTimer,
    KillTimer,
    PolicyTimer,
    ShareTimer,
    TimerKey,
    timer_of,
)

pytestmark = pytest.mark.quick

KEYS: list[tuple[TimerKey, str]] = [
    (BackoffTimer("7"), "core/hold/7"),
    (EndTimer(ExperimentId("digits-1f3a")), "core/end/digits-1f3a"),
    (IdleTimer(ExperimentId("digits-1f3a")), "core/idle/digits-1f3a"),
    (KillTimer("7", 12), "core/kill/7.12"),
    (KillTimer("a.b", 1), "core/kill/a.b.1"),
    (ShareTimer(), "core/share"),
    (PolicyTimer("rung/2"), "policy/rung/2"),
    (PolicyTimer("core/share"), "policy/core/share"),
]


@pytest.mark.parametrize(("key", "ticket"), KEYS, ids=[ticket for _, ticket in KEYS])
def test_a_key_and_its_ticket_name_each_other(key: TimerKey, ticket: str) -> None:
    assert key.ticket == ticket
    assert timer_of(ticket) == key


@pytest.mark.parametrize("ticket", ["", "core/", "core/kill/7", "core/kill/7.x", "create/1", "share"])
def test_other_texts_are_no_tickets_of_timers(ticket: str) -> None:
    with pytest.raises(ValueError, match="no timer has the ticket"):
        timer_of(ticket)
