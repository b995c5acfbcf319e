"""Tests of the version of the journal format: older records are upgraded, others are refused with one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard_engine.core.events import Operated
from hopyard_engine.journal import format as journal_format
from hopyard_engine.journal.codec import encode, event_of, kind_of
from hopyard_engine.journal.format import FORMAT, RecordError, StoredRecord, check_sequence, upgrade
from hopyard_scheduler.experiments.stream_import import LineReader, StreamImport
from tests.unit.core.rig import Rig
from tests.unit.scheduler.test_stream_import import travelled

pytestmark = pytest.mark.quick

EVENT = Operated(7.0, StreamId("x"), "pause", ExperimentId("x"))


def record(version: Any = FORMAT, **changes: Any) -> StoredRecord:
    return replace(StoredRecord(StreamId("x"), 12, version, kind_of(EVENT), encode(EVENT)), **changes)


def renamed_action(old: StoredRecord) -> StoredRecord:
    """Upgrade a record of an invented version 1, in which `Operated` was `Ordered` and its field `action` was `order`."""
    if old.kind != "Ordered":
        return old
    payload = json.loads(old.payload)
    payload["action"] = payload.pop("order")
    return replace(old, kind="Operated", payload=json.dumps(payload).encode())


@pytest.fixture
def upgrades(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[StoredRecord], StoredRecord]]:
    """The table of upgrades, empty; the test fills it."""
    table: dict[int, Callable[[StoredRecord], StoredRecord]] = {}
    monkeypatch.setattr(journal_format, "UPGRADES", table)
    return table


def refused(one: StoredRecord) -> str:
    with pytest.raises(RecordError) as caught:
        event_of(one)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_record_of_the_present_version_is_read_as_it_is() -> None:
    assert upgrade(record()) is not None
    assert upgrade(record()) == record()
    assert event_of(record()) == EVENT


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, "found no format version, supported is version 2; use the version of Hopyard that wrote it"),
        (None, "found no format version, supported is version 2; use the version of Hopyard that wrote it"),
        ("2", "found format version '2', supported is version 2; use the version of Hopyard that wrote it"),
        (-1, "found format version -1, supported is version 2; use the version of Hopyard that wrote it"),
        (1, "found format version 1, supported is version 2; use the version of Hopyard that wrote it"),
        (2.0, "found format version 2.0, supported is version 2; use the version of Hopyard that wrote it"),
        (
            "2" * 99,
            f"found format version '{'2' * 39}, supported is version 2; use the version of Hopyard that wrote it",
        ),
        (3, "found format version 3, supported is version 2; install a Hopyard that supports version 3"),
    ],
)
def test_a_record_of_another_version_is_refused_before_it_is_decoded(version: Any, message: str) -> None:
    assert FORMAT == 2
    assert refused(record(version, kind="?", payload=b"not JSON")) == f"journal of x, record 12: {message}"


def test_an_older_record_goes_through_each_upgrade(
    upgrades: dict[int, Callable[[StoredRecord], StoredRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_format, "FORMAT", 3)
    upgrades[1] = lambda old: replace(old, kind=f"{old.kind}+")
    upgrades[2] = lambda old: replace(old, kind=f"{old.kind}*")
    found = upgrade(record(1, kind="k"))
    assert (found.version, found.kind) == (3, "k+*")
    assert refused(record(4)).endswith(
        "found format version 4, supported are versions 1 to 3; install a Hopyard that supports version 4"
    )
    del upgrades[1]
    assert "found format version 1, supported are versions 2 to 3" in refused(record(1))


def test_an_upgrade_that_fails_and_a_payload_that_does_not_fit_name_the_record(
    upgrades: dict[int, Callable[[StoredRecord], StoredRecord]],
) -> None:
    upgrades[1] = renamed_action
    assert refused(record(1, kind="Ordered")) == (
        "journal of x, record 12: the upgrade to format version 2 failed: KeyError: 'order'"
    )
    assert refused(record(kind="Nonsense")).startswith(
        "journal of x, record 12: journal record of unknown kind 'Nonsense'"
    )


@pytest.mark.parametrize(
    ("previous", "reason"),
    [
        (0, "records 1 to 11 before it are missing; restore the data directory from a backup"),
        (10, "record 11 before it is missing; restore the data directory from a backup"),
        (12, "found it after record 12; the records are out of order"),
        (13, "found it after record 13; the records are out of order"),
    ],
)
def test_a_record_that_does_not_follow_the_one_before_is_refused(previous: int, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        check_sequence(record(), previous)
    assert str(caught.value) == f"journal of x, record 12: {reason}"


def test_a_record_that_follows_the_one_before_is_accepted() -> None:
    check_sequence(record(), 11)


# ------------------------------------------------------------------------------------------------------- a stored file


def stored(folder: Path, lines: list[bytes]) -> Path:
    """Write a compressed journal file, as an export contains it, and return its path."""
    file = folder / "journal.jsonl.zst"
    file.write_bytes(zstandard.compress(b"".join(one + b"\n" for one in lines)))
    return file


def taken(file: Path) -> tuple[StreamImport, list[Any]]:
    reader, stream = LineReader(), StreamImport()
    reader.feed(file.read_bytes())
    part = stream.take(reader.lines(1000))
    reader.end()
    return stream, list(part.records)


@pytest.fixture
def lines() -> list[bytes]:
    """The lines of a journal in which a person pauses the experiment."""
    rig = Rig()
    rig.create()
    rig.feed(Operated(rig.now, StreamId("x"), "pause", ExperimentId("x")))
    return travelled(rig)


def changed(line: bytes, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> bytes:
    return json.dumps(change(json.loads(line))).encode()


def in_version_1(raw: dict[str, Any]) -> dict[str, Any]:
    raw["version"] = 1
    if raw["kind"] == "Operated":
        raw["kind"] = "Ordered"
        raw["payload"]["order"] = raw["payload"].pop("action")
    return raw


def test_a_stored_file_of_an_older_version_is_upgraded(
    upgrades: dict[int, Callable[[StoredRecord], StoredRecord]], lines: list[bytes], tmp_path: Path
) -> None:
    present, records = taken(stored(tmp_path, lines))
    file = stored(tmp_path, [changed(one, in_version_1) for one in lines])
    with pytest.raises(RecordError, match="record 1: found format version 1, supported is version 2"):
        taken(file)
    upgrades[1] = renamed_action
    stream, upgraded = taken(file)
    assert upgraded == records
    assert {one.version for one in upgraded} == {FORMAT}
    assert stream.experiment.state is present.experiment.state


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, r"^journal of x, record 2: found no format version, supported is version 2; use the version"),
        (1, r"^journal of x, record 2: found format version 1, supported is version 2; use the version"),
        (9, r"^journal of x, record 2: found format version 9, supported is version 2; install a Hopyard"),
    ],
)
def test_a_stored_file_of_another_version_is_refused(
    version: int | None, message: str, lines: list[bytes], tmp_path: Path
) -> None:
    def other(raw: dict[str, Any]) -> dict[str, Any]:
        return {key: item for key, item in {**raw, "version": version}.items() if item is not None}

    with pytest.raises(InvalidInput, match=message):
        taken(stored(tmp_path, [lines[0], changed(lines[1], other), *lines[2:]]))
