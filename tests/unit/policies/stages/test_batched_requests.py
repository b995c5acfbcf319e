"""Tests of requests that belong to one client call: the policy decides on all of them when the last arrives."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentId, JobState, RequestMade, RunEndReason, StreamId
from hopyard_engine.core.events import PolicyAnswered, Requested, TimerElapsed
from hopyard_engine.core.state.timers import POLICY
from hopyard_policies.stage_tree.policy import StageTreePolicy
from tests.unit.core.rig import snapshot
from tests.unit.policies.searching import Searching

pytestmark = pytest.mark.quick


def study() -> Searching:
    """Return a study with two slots and one configuration that was trained to position 4."""
    rig = Searching(StageTreePolicy(), capacity=2, max_position=4, jobs=0, idle=60.0, requests=True)
    ask(rig, [(0.5, 4)], "first")
    rig.begin()
    for position in range(1, 5):
        rig.report(position, name="1")
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4), name="1")
    return rig


def ask(rig: Searching, wanted: list[tuple[float, int]], tag: str, *, cut: int = 0) -> None:
    """Send the requests of one client call, except the last `cut` of them."""
    for number, (lr, position) in enumerate(wanted[: len(wanted) - cut]):
        more = len(wanted) - 1 - number
        rig.feed(Requested(rig.now, StreamId("x"), f"{tag}/{number}", {"lr": lr}, position, ExperimentId("x"), more))


def test_the_last_one_brings_all_answers() -> None:
    rig = study()
    before = len(rig.journal)
    ask(rig, [(0.5, 1), (0.5, 2), (0.25, 3), (0.5, 3)], "second")
    assert [call.more for call in rig.called(RequestMade)] == [0, 3, 2, 1, 0]
    commands = [len(event.answer.commands) for event in rig.journal[before:] if isinstance(event, PolicyAnswered)]
    # The first request sets a timer; the fourth answers three, and the new configuration waits for a slot.
    assert commands[:4] == [1, 0, 0, 3]
    assert [rig.job(name).state for name in "2345"] == [
        JobState.COMPLETED,
        JobState.COMPLETED,
        JobState.STARTING,
        JobState.COMPLETED,
    ]


def test_one_that_never_comes_is_not_waited_for_long() -> None:
    rig = study()
    ask(rig, [(0.5, 1), (0.25, 3), (0.5, 2)], "second", cut=1)
    assert [rig.job(name).state for name in "23"] == [JobState.PENDING] * 2
    (ticket,) = [ticket for ticket in rig.stream.timers if ticket.startswith(POLICY)]
    assert "core/idle/x" not in rig.stream.timers
    rig.now = rig.stream.timers[ticket]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), ticket))
    assert [rig.job(name).state for name in "23"] == [JobState.COMPLETED, JobState.STARTING]


def test_one_that_never_comes_is_made_good_by_who_asks_again() -> None:
    rig = study()
    ask(rig, [(0.5, 1), (0.25, 3), (0.5, 2)], "second", cut=1)
    assert [rig.job(name).state for name in "23"] == [JobState.PENDING] * 2
    rig.feed(
        Requested(rig.now, StreamId("x"), "second/2", {"lr": 0.5}, 2, ExperimentId("x"))
    )  # The repeated call of the client leaves out what was answered.
    assert [rig.job(name).state for name in "234"] == [JobState.COMPLETED, JobState.STARTING, JobState.COMPLETED]
