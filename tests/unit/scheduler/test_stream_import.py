"""Tests of the import of a journal: it is accepted exactly, or refused with the place of the error."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from typing import Any

import pytest
import zstandard

from hopyard.errors import Conflict, InvalidInput
from hopyard.policy.vocabulary import (
    Answer,
    CreateJob,
    ExperimentId,
    ForkJob,
    Report,
    RunEndReason,
    RunKey,
    StreamId,
    WakeAt,
)
from hopyard.spec import canonical_json, load_spec
from hopyard.v1 import appstat_pb2
from hopyard.v1.experiment_pb2 import EXPERIMENT_STATE_PAUSED
from hopyard_engine.core import Core
from hopyard_engine.core.events import (
    Event,
    ExperimentJoined,
    Imported,
    JobOperated,
    NodeBack,
    NodeJoined,
    Operated,
    PolicyAnswered,
    Reports,
    Requested,
    RunMessage,
    SnapshotTaken,
    StreamCreated,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.types import SnapshotInfo
from hopyard_engine.journal.codec import decode, encode, kind_of
from hopyard_engine.journal.format import FORMAT
from hopyard_scheduler.experiments import stream_import
from hopyard_scheduler.experiments.id_translation import renamed
from hopyard_scheduler.experiments.import_bounds import check_numbers
from hopyard_scheduler.experiments.stream_import import LineReader, StreamImport, check_id
from tests.simulation import dump
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick

SPEC_DATA = {
    "name": "small",
    "trainer": "train.py:Small",
    "metric": {"name": "score", "mode": "max"},
    "space": {"lr": {"uniform": [0.0, 1.0]}},
    "stop": {"jobs": 8, "max_iterations": 10},
}
SPEC = canonical_json(load_spec(json.dumps(SPEC_DATA)))
PAYLOAD = {"name": "small", "spec": SPEC, "bundle": "", "interpreter": "", "request": "r0"}


def line(event: Event, at: float = 5.0, **changes: Any) -> bytes:
    raw = {
        "position": 1,
        "at": at,
        "version": FORMAT,
        "kind": kind_of(event),
        "payload": json.loads(encode(event)),
        **changes,
    }
    return json.dumps(raw).encode()


def travelled(rig: Rig) -> list[bytes]:
    """Return the lines of a rig's journal, as an export writes them."""
    first = rig.journal[0]
    assert isinstance(first, StreamCreated)
    events = [StreamCreated(first.at, StreamId("x"), first.settings, PAYLOAD), *rig.journal[1:]]
    return numbered([line(event, at=event.at) for event in events])


def numbered(lines: list[bytes]) -> list[bytes]:
    """Return the lines with consecutive positions of records, from 1."""
    return [re.sub(rb'"position": \d+', b'"position": %d' % n, one, count=1) for n, one in enumerate(lines, 1)]


@pytest.fixture
def rig() -> Rig:
    """A paused experiment with reports, a snapshot, and many kinds of events in its journal."""
    made = Rig(max_seconds=1e6)
    made.create()
    made.create(0.2)
    made.start("1", "n1/0")
    made.report(1)
    made.report(2)
    made.join("n1", 2, runs=(made.key(),))
    made.feed(Updated(made.now, StreamId("x"), "u", more_jobs=1, experiment=ExperimentId("x")))
    made.feed(Operated(made.now, StreamId("x"), "pause", ExperimentId("x")))
    made.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    made.stored(2)
    return made


def rows(parts: Iterable[appstat_pb2.ImportJournalRequest]) -> list[appstat_pb2.Projection]:
    return [row for part in parts for row in part.projections]


def test_records_and_what_follows_from_them_come_out(rig: Rig) -> None:
    stream = StreamImport()
    part = stream.take(travelled(rig))
    stream.at_rest()
    assert stream.experiments == ["x"]
    assert [r.position for r in part.records] == list(range(1, len(rig.journal) + 1))
    assert [decode(r.kind, r.payload) for r in part.records[1:]] == rig.journal[1:]
    statistics = [row.statistics for row in part.projections]
    assert [(s.job, r.position, s.attempt) for s in statistics for r in s.reports] == [("1", 1, 1), ("1", 2, 1)]
    last = list(stream.finish(Imported(rig.now, StreamId("x"), "r", ("s2",))))
    assert last[0].records[0].position == len(rig.journal) + 1
    kinds = [row.WhichOneof("row") for row in rows(last)]
    assert kinds == ["experiment", "job", "job"]
    assert rows(last)[0].experiment.state == EXPERIMENT_STATE_PAUSED


def test_under_another_id_the_state_is_the_same(rig: Rig) -> None:
    one, two = StreamImport(), StreamImport("other")
    one.take(travelled(rig))
    part = two.take(travelled(rig))
    assert {r.stream for r in part.records} == {"other"}
    assert {row.statistics.experiment for row in part.projections} == {"other"}
    assert str(dump.picture(two.experiment)).replace("other", "x") == str(dump.picture(one.experiment))


def test_every_place_of_an_id_is_renamed() -> None:
    key = RunKey(StreamId("x"), "1", 2)
    created = CreateJob("3", None, experiment="x")
    events: list[Any] = [
        NodeBack(1.0, StreamId("x"), "n", (key,), lost=(key,)),
        Operated(1.0, StreamId("x"), "pause", ExperimentId("x")),
        Updated(1.0, StreamId("x"), "u", experiment=ExperimentId("x")),
        TimerElapsed(1.0, StreamId("x"), "core/end/x"),
        PolicyAnswered(1.0, StreamId("x"), Answer(1, None, (created,))),
        JobOperated(1.0, StreamId("x"), created),
    ]
    for event in events:
        there = renamed(event, "x", "a-new-one")
        assert there.stream == "a-new-one"
        assert b'"x"' not in encode(there)
        assert b"core/end/x" not in encode(there)
        assert renamed(there, "a-new-one", "x") == event
    assert renamed(TimerElapsed(1.0, StreamId("x"), "policy/x"), "x", "y") == TimerElapsed(
        1.0, StreamId("y"), "policy/x"
    )


@pytest.mark.parametrize("name", ["", "cluster", "../x", "a b", "A", "-a", "a" * 101, "ä"])
def test_an_id_that_could_be_a_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="allowed is an id of small letters"):
        check_id(name, "id")


def refused(lines: list[bytes], target: str = "") -> str:
    with pytest.raises(InvalidInput) as caught:
        StreamImport(target).take(numbered(lines))
    return str(caught.value)


def test_what_is_no_journal_is_refused_with_its_place(rig: Rig) -> None:
    good = travelled(rig)
    assert "event 1: JSONDecodeError" in refused([b"{"])
    assert "event 1: a journal begins with StreamCreated" in refused(good[1:])
    assert f"event {len(good) + 1}: a journal begins with StreamCreated" in refused([*good, good[0]])
    assert "journal of x, record 2: journal record of unknown kind 'Later'" in refused(
        [good[0], good[1].replace(json.loads(good[1])["kind"].encode(), b"Later")]
    )
    assert "needed is a record as hopyard export writes it" in refused([good[0], b"[]"])
    assert len(refused([good[0], line(rig.journal[1], kind="Later" * 1000)])) < 1000
    assert len(refused([good[0], good[1].replace(b'"at": ', b'"at": "' + b"5" * 5000 + b'x", "was": ', 1)])) < 1000
    assert "event 2: NodeJoined belongs to a cluster" in refused([good[0], line(NodeJoined(1.0, "n", "a", ()))])
    assert "event 2: found an event of experiment 'y', the stream is 'x''s" in refused(
        [good[0], line(Operated(1.0, StreamId("y"), "pause"))]
    )
    created = StreamCreated(1.0, StreamId("../up"), settings(), PAYLOAD)
    assert "event 1: experiment: found '../up'" in refused([line(created)])
    assert "payload: needed are texts called name, spec" in refused(
        [line(StreamCreated(1.0, StreamId("x"), settings(), 3))]
    )
    broken = StreamCreated(1.0, StreamId("x"), settings(), {**PAYLOAD, "spec": "{}"})
    assert "event 1" in refused([line(broken)])


def taken(position: int = 1, size: int = 0) -> SnapshotTaken:
    return SnapshotTaken(SnapshotInfo(position, "s", size))


def reported(seconds: float = 1.0, examples: int = 0, **metrics: float) -> Reports:
    return Reports((Report(1, metrics, seconds, "", examples),))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {"body": taken(size=2**63 - 1)},
            "body.snapshot.size: found 9223372036854775807, allowed is 0 to 70368744177664",
        ),
        ({"body": taken(size=-5)}, "body.snapshot.size: found -5, allowed is 0 to 70368744177664"),
        ({"body": taken(position=2**31)}, "body.snapshot.position: found 2147483648, allowed is 0 to 2147483647"),
        (
            {"body": reported(examples=10**30)},
            f"body.reports[0].examples: found {10**30}, allowed is 0 to 70368744177664",
        ),
        ({"body": reported(seconds=-1.0)}, "body.reports[0].seconds: found -1.0, allowed is 0 to 1000000000000.0"),
        ({"attempt": 2**63 - 1}, "attempt: found 9223372036854775807, allowed is 0 to 1073741824"),
        ({"sequence": 10**40}, f"sequence: found {str(10**40)[:40]}, allowed is 0 to {2**62}"),
        ({"at": -1e300}, "at: found -1e+300, allowed is 0 to 253402300799"),
        ({"at": float("nan")}, "at: found nan, allowed is 0 to 253402300799"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused_with_their_field(rig: Rig, message: dict[str, Any], said: str) -> None:
    valid = RunMessage(1.0, StreamId("x"), "1", 1, 0, 9, taken())
    event = dataclasses.replace(valid, **message)
    assert refused([travelled(rig)[0], line(event)]) == f"journal: event 2: {said}"


def test_whole_numbers_beyond_64_bits_are_refused_also_in_values(rig: Rig) -> None:
    wanted = Requested(1.0, StreamId("x"), "t", {"layers": [1, 2**63]}, 1)
    said = "journal: event 2: hyperparameters.layers[1]: found 9223372036854775808, allowed is"
    assert refused([travelled(rig)[0], line(wanted)]).startswith(said)


def test_values_and_commands_of_a_policy_may_have_any_number_of_64_bits() -> None:
    check_numbers(Requested(1.0, StreamId("x"), "t", {"size": -(2**63), "seconds": -1.0, "at": math.nan}, 1))
    check_numbers(RunMessage(1.0, StreamId("x"), "1", 1, 0, 1, reported(position=-math.inf, at=1e300)))
    check_numbers(
        PolicyAnswered(1.0, StreamId("x"), Answer(1, None, (WakeAt("t", math.inf), ForkJob("2", "1", -1, {}))))
    )


@pytest.mark.parametrize("at", [-1e300, 1e300, float("nan"), 10**400])
def test_a_time_of_a_record_that_no_calendar_has_is_refused(rig: Rig, at: float) -> None:
    assert re.match("journal: event 1: (at: found|OverflowError)", refused([line(rig.journal[0], at=at)]))


@pytest.mark.parametrize("change", [slice(1, 2), slice(2, 4)])
def test_a_missing_record_is_refused_with_its_number(rig: Rig, change: slice) -> None:
    lines = travelled(rig)
    del lines[change]
    with pytest.raises(InvalidInput) as caught:
        StreamImport().take(lines)
    place, found = change.start + 1, change.stop + 1
    assert f"event {place}: ValueError: position: found {found}, needed is {place}: a record is" in str(caught.value)


def test_a_record_without_a_position_is_refused(rig: Rig) -> None:
    one = travelled(rig)[0].replace(b'"position": 1, ', b"")
    assert "event 1: KeyError: 'position'; needed is a record as hopyard export" in refused([one])


def test_events_that_cannot_have_happened_are_refused(rig: Rig) -> None:
    good = travelled(rig)
    answered = next(n for n, raw in enumerate(good) if json.loads(raw)["kind"] == "RunMessage")
    never = Operated(1.0, StreamId("x"), "pause", ExperimentId("nobody"))
    said = refused([*good[:answered], line(never)])
    assert said.startswith(f"journal: event {answered + 1} cannot be applied: KeyError")


def test_a_specification_that_does_not_fit_its_events_is_refused(rig: Rig) -> None:
    first = StreamCreated(100.0, StreamId("x"), settings(), {**PAYLOAD, "spec": json.dumps(SPEC_DATA)})
    stream = StreamImport()
    stream.take(numbered([line(first), *travelled(rig)[1:]]))
    with pytest.raises(InvalidInput, match="journal: what follows from it cannot be written: KeyError: 'resources'"):
        list(stream.finish(Imported(rig.now, StreamId("x"), "r")))


def test_a_group_keeps_its_ids(rig: Rig) -> None:
    joined = ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y-2"), settings(), PAYLOAD)
    stream = StreamImport()
    stream.take(numbered([*travelled(rig), line(joined)]))
    assert stream.experiments == ["x", "y-2"]
    assert "share a journal that names each of them, so they keep their ids" in refused(
        [*travelled(rig), line(joined)], "other"
    )


def test_one_that_runs_at_the_end_is_refused() -> None:
    stream = StreamImport()
    stream.take(travelled(Rig()))
    with pytest.raises(Conflict, match="ends while x is RUNNING: pause it"):
        stream.at_rest()


def test_an_empty_journal_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no events"):
        StreamImport().at_rest()


def fed(packed: bytes, size: int) -> list[bytes]:
    text, found = LineReader(), list[bytes]()
    for start in range(0, len(packed), size):
        text.feed(packed[start : start + size])
        while lines := text.lines(100):
            found += lines
    text.end()
    return found


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_lines_come_out_whole_however_they_come_in(size: int) -> None:
    lines = [f"line {n} {'x' * (n % 50)}".encode() for n in range(2000)]
    packed = zstandard.compress(b"".join(one + b"\n" for one in lines))
    assert fed(packed, size) == lines


def test_text_that_is_cut_or_altered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zstandard.compress(b"one\ntwo\n" * 100, 3)
    with pytest.raises(InvalidInput, match="ends in the middle"):
        fed(packed[:-1], 64)
    with pytest.raises(InvalidInput, match="ends in the middle"):
        fed(zstandard.compress(b"one\ntwo"), 64)
    with pytest.raises(InvalidInput, match="not compressed"):
        fed(b"one\n", 64)
    monkeypatch.setattr(stream_import, "MAX_LINE_BYTES", 100)
    with pytest.raises(InvalidInput, match="a line of more than 100 bytes"):
        fed(zstandard.compress(b"x" * 1000), 64)


def test_the_state_is_that_of_a_core_which_was_always_here(rig: Rig) -> None:
    stream = StreamImport()
    stream.take(travelled(rig))
    stream.experiment.founder.payload = None
    other = Core()
    for event in rig.journal:
        other.restore(event)  # type: ignore[arg-type]
    assert dump.picture(stream.experiment) == dump.picture(other.streams[StreamId("x")])
