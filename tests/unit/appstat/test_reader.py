"""AppStat's data are read without the service: read-only, beside a writer, and only in the schema of this version."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from hopyard._net.rpc.servicer_channel import ServicerChannel
from hopyard.errors import Conflict, DataLoss
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1.appstat_pb2_grpc import AppStatServiceStub, CatalogServiceStub
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.read_only import read_only_engine
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import NEWEST, migrate
from hopyard_appstat.reader import AppStatReader
from tests.damage import overwrite

FILE = "appstat.sqlite"


def stub_of(reader: AppStatReader) -> Any:
    channel: Any = ServicerChannel("refused")
    reader.register(channel)
    return AppStatServiceStub(channel)


async def streams(reader: AppStatReader) -> list[str]:
    answer = await stub_of(reader).ListStreams(pb.ListStreamsRequest())
    return [one.stream for one in answer.streams]


def add_stream(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("INSERT INTO streams (name, length) VALUES (?, 1)", (name,))


async def test_committed_data_are_read_while_another_process_writes(store: Store, tmp_path: Path) -> None:
    assert await store.begin_epoch("a scheduler") == 1
    writer = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    add_stream(writer, "committed")
    reader = AppStatReader(tmp_path)
    try:
        writer.execute("BEGIN IMMEDIATE")
        add_stream(writer, "under way")
        assert await streams(reader) == ["committed"]
        writer.execute("COMMIT")  # The reader does not block it.
        assert await streams(reader) == ["committed", "under way"]
    finally:
        reader.close()
        writer.close()
    assert await store.begin_epoch("another scheduler") == 2


async def test_a_reader_cannot_write(store: Store, tmp_path: Path) -> None:
    await store.begin_epoch("a scheduler")
    engine = read_only_engine(tmp_path / FILE)
    with pytest.raises(OperationalError, match="readonly"), engine.begin() as connection:
        connection.execute(text("DELETE FROM epochs"))
    engine.dispose()


def test_a_folder_without_write_permission_is_read_without_further_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE one (x); INSERT INTO one VALUES (7);")
    connection.close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    engine = read_only_engine(tmp_path / FILE)
    with engine.begin() as reading:
        assert reading.scalar(text("SELECT x FROM one")) == 7
    engine.dispose()
    assert os.listdir(tmp_path) == [FILE]


@pytest.mark.parametrize(
    ("revision", "advice"),
    [
        ("0004", "`hopyard gc --dry-run --data DIR` upgrades the database without training anything"),
        ("9999", "use the version of Hopyard that wrote it, or a newer one"),
    ],
)
async def test_a_database_of_another_version_is_refused_and_left_as_it_is(
    revision: str, advice: str, store: Store, tmp_path: Path
) -> None:
    await store.begin_epoch("a scheduler")
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    with pytest.raises(Conflict) as raised:
        AppStatReader(tmp_path)
    what = f"found schema revision {revision}, and this version of Hopyard reads {NEWEST}"
    assert str(raised.value).startswith(f"{tmp_path / FILE}: {what}; ")
    assert str(raised.value).endswith(advice.replace("DIR", str(tmp_path)))
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(revision,)]
    connection.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to look like something" * 20)
    with pytest.raises(
        DataLoss, match=r"found a file that is not a database .* move the data directory away and restore a backup"
    ):
        AppStatReader(tmp_path)


async def test_a_damaged_page_is_named_by_readers_and_writers(tmp_path: Path) -> None:
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    database.close()
    connection = sqlite3.connect(tmp_path / FILE)
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    pages = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name in ('streams', 'epochs')").fetchall()
    connection.close()
    for (page,) in pages:
        overwrite(tmp_path / FILE, (page - 1) * size, size)
    reader = AppStatReader(tmp_path)
    with pytest.raises(DataLoss, match="move the data directory away and restore a backup"):
        await streams(reader)
    reader.close()
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    store = Store(database, wall_clock=lambda: 1000.0)
    running = asyncio.create_task(store.run())
    with pytest.raises(DataLoss, match="move the data directory away and restore a backup"):
        await store.begin_epoch("a scheduler")
    await store.close()
    await running
    store.release()


async def test_without_a_database_everything_is_empty_and_nothing_is_created(tmp_path: Path) -> None:
    reader = AppStatReader(tmp_path)
    assert await streams(reader) == []
    channel: Any = ServicerChannel("refused")
    reader.register(channel)
    assert not (await CatalogServiceStub(channel).QueryDataSets(pb.QueryDataSetsRequest())).data
    reader.close()
    assert os.listdir(tmp_path) == []


async def test_blobs_are_read_from_their_folder(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "store" / sha256[:2]).mkdir(parents=True)
    (tmp_path / "store" / sha256[:2] / sha256).write_bytes(b"weights")
    reader = AppStatReader(tmp_path)
    found = [part.data async for part in stub_of(reader).GetBlob(pb.GetBlobRequest(sha256=sha256))]
    reader.close()
    assert found == [b"weights"]
