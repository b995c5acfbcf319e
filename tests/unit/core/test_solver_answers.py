"""Tests of a policy's questions to solvers: one answer per ticket, also if messages are repeated, late or out of order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy.vocabulary import AnswerReady, Ask, ExperimentId, ExperimentState, Predict, StreamId, WakeAt
from hopyard_engine.core import Core
from hopyard_engine.core.core import outstanding
from hopyard_engine.core.effects import AskOutside, WithdrawQuestion
from hopyard_engine.core.events import Answered, Event, Operated, Requested
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


def refusal(rig: Rig, *commands: Ask | Predict | WakeAt) -> str:
    rig.command(*commands)
    conversation = rig.stream.conversation
    return str([*conversation.sent_verdicts, *conversation.verdicts][-1].reason)


def answer(rig: Rig, ticket: str, result: object = None, error: str = "") -> None:
    rig.feed(Answered(rig.now, StreamId("x"), f"policy/{ticket}", result, error))


def test_a_question_is_put_once_and_answered_once() -> None:
    rig = Rig()
    rig.command(Ask("t", "plan", {"n": [1, 2]}, 7.0))
    assert rig.of(AskOutside) == [AskOutside(StreamId("x"), "policy/t", "plan", {"n": [1, 2]}, ExperimentId(""), 7.0)]
    answer(rig, "t", {"n": 3})
    answer(rig, "t", {"n": 4})
    answer(rig, "nobody asked", 5)
    assert rig.called(AnswerReady) == [AnswerReady("t", {"n": 3})]


def test_a_ticket_that_is_open_is_not_given_again() -> None:
    rig = Rig()
    rig.command(Ask("t", "plan", 1))
    assert refusal(rig, Ask("t", "plan", 2)) == "question 't' is already open"
    rig.create()
    rig.start("1")
    assert refusal(rig, Predict("t", "1")) == "question 't' is already open"
    answer(rig, "t", "one")
    rig.command(Ask("t", "plan", 2))
    answer(rig, "t", "two")
    assert [call.result for call in rig.called(AnswerReady)] == ["one", "two"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            Ask("t", "create_job", {}),
            "'create_job' is not a solver; use the commands for generators and predictors",
        ),
        (Ask("t", "predict", {}), "'predict' is not a solver"),
        (Ask("t", ""), "a question must name a solver; found none"),
        (Ask("", "plan"), "a question needs a ticket; found none"),
        (Ask("t", "plan", {}, 0.0), "the time limit of a solver is at most 86400 seconds, found 0"),
        (Ask("t", "plan", {}, math.nan), "found nan"),
        (Ask("t", "plan", {}, 1e6), "found 1e+06"),
    ],
)
def test_what_no_solver_is_asked(command: Ask, why: str) -> None:
    rig = Rig()
    assert why in refusal(rig, command)
    assert not rig.stream.asks


def test_the_end_of_the_experiment_withdraws_its_questions() -> None:
    rig = Rig()
    rig.command(Ask("t", "plan", 1), Ask("u", "plan", 2))
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert [effect.ticket for effect in rig.of(WithdrawQuestion)] == ["policy/t", "policy/u"]
    assert not rig.stream.asks


def test_an_older_journal_says_nothing_of_seconds() -> None:
    rig = Rig()
    rig.command(Ask("t", "plan", 1))
    (answered,) = [event for event in rig.journal if '"Ask"' in encode(event).decode()]
    assert b"seconds" not in encode(answered)
    assert decode(kind_of(answered), encode(answered)) == answered


@pytest.mark.merge
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ask", "answer", "fail"]), st.sampled_from("abc")), min_size=1, max_size=20
    ),
)
def test_each_question_has_one_answer_and_a_recovery_asks_what_is_open(steps: list[tuple[str, str]]) -> None:
    rig = Rig()
    waiting: dict[str, int] = {}
    heard: list[tuple[str, object]] = []
    for number, (what, ticket) in enumerate(steps):
        if what == "ask":
            rig.command(Ask(ticket, "plan", number))
            waiting.setdefault(ticket, number)
        else:
            answer(rig, ticket, number if what == "answer" else None, "" if what == "answer" else "failed")
            if ticket in waiting:
                del waiting[ticket]
                heard.append((ticket, number if what == "answer" else None))
    assert [(call.ticket, call.result) for call in rig.called(AnswerReady)] == heard
    assert {name.removeprefix("policy/"): asked.payload for name, asked in rig.stream.asks.items()} == waiting
    # Replaying the journal gives the same open questions.
    recorded: list[Event] = [decode(kind_of(event), encode(event)) for event in rig.journal]
    again = Core()
    for event in recorded:
        again.restore(event)  # type: ignore[arg-type]
    assert [e for e in outstanding(again.streams[StreamId("x")]) if isinstance(e, AskOutside)] == [
        *rig.stream.asks.values()
    ]


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf])
def test_a_time_that_never_comes_is_refused(at: float) -> None:
    rig = Rig()
    assert refusal(rig, WakeAt("w", at)) == f"a time is a finite number of seconds since the epoch, found {at}"
    assert list(rig.stream.timers) == ["policy/keep"]


def test_a_policy_that_asks_anew_at_every_answer_is_paused() -> None:
    rig = Rig()
    rig.script = lambda call: (None, [Ask(f"t{len(rig.calls)}", "nobody")])
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    for _ in range(2_000):
        if rig.stream.state is not ExperimentState.RUNNING:
            break
        rig.now += 0.005
        rig.feed(Answered(rig.now, StreamId("x"), next(iter(rig.stream.asks)), None, "there is no solver"))
    assert "policy error: it does not stop: 504 up-calls" in str(rig.stream.reason)


def test_a_policy_that_asks_anew_now_and_then_is_left_alone() -> None:
    rig = Rig()
    rig.script = lambda call: (None, [] if rig.stream.asks else [Ask(f"t{len(rig.calls)}", "nobody")])
    rig.command(WakeAt("w", 200.0))
    rig.feed(Requested(rig.now, StreamId("x"), "r", {}, 1))
    for _ in range(2_000):
        rig.now += 0.05
        rig.feed(Answered(rig.now, StreamId("x"), next(iter(rig.stream.asks)), None, "there is no solver"))
    assert rig.stream.state is ExperimentState.RUNNING
