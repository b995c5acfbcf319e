"""Damage in the journal is found when a stream is read, at the position where it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from hopyard.errors import DataLoss
from hopyard_appstat.database import queries
from hopyard_appstat.database.connections import Database, database_url, open_database
from hopyard_appstat.database.record_chain import START, checksum
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate
from tests.unit.appstat.messages import append, record

RECORDS = 6

ROWS = st.fixed_dictionaries(
    {
        "stream": st.text(max_size=3),
        "position": st.integers(1, 2**40),
        "at": st.floats(allow_nan=False),
        "kind": st.text(max_size=3),
        "version": st.integers(0, 2**31 - 1),
        "payload": st.binary(max_size=3),
    }
)


@pytest.mark.merge
@given(ROWS, ROWS, st.sampled_from(["", "a" * 32]), st.sampled_from(["", "a" * 32]))
def test_equal_checksums_mean_equal_records(one: dict[str, Any], other: dict[str, Any], before: str, also: str) -> None:
    equal = repr((one, before)) == repr((other, also))  # 0.0 and -0.0 differ.
    assert (checksum(before, one) == checksum(also, other)) == equal


@dataclass
class Journal:
    """A database with two streams of `RECORDS` records, and its store."""

    database: Database
    store: Store

    def change(self, *statements: str) -> None:
        """Execute SQL as a tool would that knows nothing of Hopyard."""
        with self.database.writer.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    async def read(self, stream: str = "e1", first: int = 1) -> list[int]:
        """Return the positions of the records of a stream."""
        return [row["position"] async for part in self.store.read_journal(stream, first) for row in part]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    store = Store(database)
    running = asyncio.create_task(store.run())
    epoch = await store.begin_epoch("test")
    for stream in ("e1", "e2"):
        for position in (1, 4):
            records = [record(stream, position + more, payload=b"%d" % (position + more)) for more in range(3)]
            await store.append(append(epoch, records))
    yield Journal(database, store)
    await store.close()
    await running
    store.release()


MOVE = "update journal set position = {} where stream = 'e1' and position = {}"

DAMAGE = {
    "a changed payload": ("update journal set payload = x'39' where stream = 'e1' and position = 3", 3),
    "a changed time": ("update journal set at = at + 1e-9 where stream = 'e1' and position = 3", 3),
    "a changed kind": ("update journal set kind = 'Kine' where stream = 'e1' and position = 3", 3),
    "a changed version": ("update journal set version = 3 where stream = 'e1' and position = 3", 3),
    "a changed checksum": ("update journal set checksum = 'c0ffee' where stream = 'e1' and position = 3", 3),
    "no checksum": ("update journal set checksum = '' where stream = 'e1' and position = 1", 1),
    "a removed record": ("delete from journal where stream = 'e1' and position = 3", 3),
    "the first removed": ("delete from journal where stream = 'e1' and position = 1", 1),
    "the last removed": ("delete from journal where stream = 'e1' and position = 6", 6),
    "all removed": ("delete from journal where stream = 'e1'", 1),
    "two swapped": (";".join((MOVE.format(99, 3), MOVE.format(3, 4), MOVE.format(4, 99))), 3),
    "a gap closed": (
        "delete from journal where stream = 'e1' and position = 3;"
        + ";".join(MOVE.format(position - 1, position) for position in (4, 5, 6))
        + ";update streams set length = 5 where name = 'e1'",
        3,
    ),
    "one doubled": (
        ";".join(MOVE.format(position + 1, position) for position in (6, 5, 4))
        + ";insert into journal select stream, 4, at, kind, payload, version, checksum from journal "
        "where stream = 'e1' and position = 3;update streams set length = 7 where name = 'e1'",
        4,
    ),
    "of another stream": (
        "delete from journal where stream = 'e1' and position = 3;"
        "insert into journal select 'e1', position, at, kind, payload, version, checksum from journal "
        "where stream = 'e2' and position = 3",
        3,
    ),
    "the end cut off": (
        "delete from journal where stream = 'e1' and position > 4;update streams set length = 4 where name = 'e1'",
        4,
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_damage_is_found_where_it_is(journal: Journal, what: str) -> None:
    statements, position = DAMAGE[what]
    journal.change(*statements.split(";"))
    with pytest.raises(
        DataLoss, match=rf"journal of e1: record {position} .*move the data directory away and restore a backup"
    ):
        await journal.read()
    assert await journal.read("e2") == [1, 2, 3, 4, 5, 6]


async def test_a_stream_without_its_row_is_damaged(journal: Journal) -> None:
    with journal.database.writer.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.execute("pragma foreign_keys = off")
        driver.execute("delete from streams where name = 'e1'")
        driver.execute("pragma foreign_keys = on")
    with pytest.raises(DataLoss, match="journal of e1: its row is missing"):
        await journal.read()


async def test_damage_of_a_stream_that_grows_during_the_read_is_found(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.change("delete from journal where stream = 'e1' and position > 4")
    part = queries.journal_part

    def grown(connection: Any, stream: str, first: int, last: int) -> Any:
        journal.change("update streams set length = 7 where name = 'e1'")
        return part(connection, stream, first, last)

    monkeypatch.setattr(queries, "journal_part", grown)
    with pytest.raises(DataLoss, match="journal of e1"):
        await journal.read()


async def test_a_reader_that_begins_later_checks_what_it_reads(journal: Journal) -> None:
    assert await journal.read("e1", 5) == [5, 6]
    assert await journal.read("e1", 7) == []
    journal.change("update journal set payload = x'39' where stream = 'e1' and position = 3")
    assert await journal.read("e1", 5) == [5, 6]
    with pytest.raises(DataLoss, match="record 3 or the one before it was changed"):
        await journal.read("e1", 2)
    with pytest.raises(DataLoss, match="record 3 "):
        await journal.read("e1", 3)


def test_the_first_record_has_none_before_it() -> None:
    row = {"stream": "e1", "position": 1, "at": 1.5, "kind": "Kind", "payload": b"1", "version": 2}
    assert checksum(START, row) == checksum("", {**row, "checksum": "other"})
