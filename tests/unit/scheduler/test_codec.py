"""Tests of the codec of journal records: decoding returns every event of the core exactly."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy.vocabulary import (
    CONTINUE,
    AmendRun,
    Answer,
    AnswerJob,
    Command,
    CreateJob,
    EndExperiment,
    ForkJob,
    ReleaseSlot,
    Report,
    ReserveSlot,
    RunEndReason,
    RunKey,
    RunMode,
    StartJob,
    StreamId,
    WakeAt,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.events import (
    Ended,
    Event,
    JobOperated,
    NodeJoined,
    PolicyAnswered,
    Reports,
    RunMessage,
    StreamCreated,
)
from hopyard_engine.core.types import PolicyVersion, Settings, SlotSpec, SnapshotInfo
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.reasons import example, said

pytestmark = pytest.mark.quick


def again(event: Event) -> Event:
    return decode(kind_of(event), encode(event))


_JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of an annotated type; `Any` gives JSON values."""
    if hint is Any:
        return _JSON
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is Reason:
        return st.sampled_from(list(ReasonCode)).map(example)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(member) for member in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple and inner[1:] == (Ellipsis,):
        return st.lists(values_of(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(member) for member in inner))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=2)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return st.builds(hint, **{name: values_of(field) for name, field in hints.items()})
    return st.from_type(hint)


@pytest.mark.merge
@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_event_survives_the_journal(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(values_of(cls))
    assert again(event) == event


def test_commands_that_look_alike_stay_apart() -> None:
    commands: tuple[Command, ...] = (
        ReserveSlot("n/0"),
        ReleaseSlot("n/0"),
        CreateJob("3", {"lr": 0.1, "layers": [1, 2]}),
        StartJob("1", ("n/0", "n/1"), 5, 3, (4,), {"n/0": "p0"}, RunMode.EVALUATE, ("2", 3), preemptible=False),
        AmendRun("1", "t", None, (7,)),
        ForkJob("4", "1", 2, {"lr": 1}),
        AnswerJob("5", "1", 2),
        AnswerJob("5", "1", 2, completes=False),
        WakeAt("w", 1.5),
        EndExperiment("enough", "3", "x"),
    )
    event = PolicyAnswered(1.0, StreamId("x"), Answer(3, CONTINUE, commands), 2)
    assert again(event) == event


def test_numbers_that_are_not_finite_survive() -> None:
    report = Report(1, {"a": math.nan, "b": math.inf, "c": -math.inf}, at_until=True)
    found = again(RunMessage(1.0, StreamId("x"), "1", 1, 0, 1, Reports((report,))))
    assert isinstance(found, RunMessage)
    assert isinstance(found.body, Reports)
    metrics = found.body.reports[0].metrics
    assert math.isnan(metrics["a"])
    assert metrics["b"] == math.inf
    assert metrics["c"] == -math.inf


def test_named_tuples_and_ends_survive() -> None:
    joined = NodeJoined(1.0, "n", "i", (SlotSpec("n/0", 2, (0, 1)),), (RunKey(StreamId("x"), "1", 2, 0),), ("aa",))
    assert again(joined) == joined
    ended = Ended(RunEndReason.UNTIL, 4, SnapshotInfo(4, "aa", 10), user_code=False, cause=said("m"))
    message = RunMessage(1.0, StreamId("x"), "1", 1, 0, 1, ended)
    assert again(message) == message


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="unknown kind 'Nonsense'"):
        decode("Nonsense", b"{}")


def test_a_payload_that_does_not_fit_is_shown() -> None:
    created = StreamCreated(
        1.0, StreamId("x"), Settings("a", "max", 3, 4), {"spec": "{}"}, policy=PolicyVersion("asha", "1")
    )
    assert again(created) == created
    with pytest.raises(ValueError, match="kind StreamCreated"):
        decode("StreamCreated", b'{"at": 1.0}')


def test_a_person_s_command_survives() -> None:
    event = JobOperated(1.0, StreamId("x"), ReleaseSlot("n/0"))
    assert again(event) == event
