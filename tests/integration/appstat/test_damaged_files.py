"""Tests that AppStat, and readers of a stopped cluster, refuse damaged files of a database in one sentence, and change nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from hopyard.errors import Conflict, DataLoss, HopyardError, Unavailable
from hopyard_appstat.database import connections, read_only, writer
from hopyard_appstat.database.file_check import check_data
from hopyard_appstat.database.read_only import check_database, read_only_engine
from hopyard_appstat.reader import AppStatReader
from hopyard_appstat.service import AppStatService
from tests.damage import overwrite, replace_by_folder

DATABASE = "appstat.sqlite"


async def stopped(data: Path) -> Path:
    """Return the database of a stopped AppStat."""
    service = AppStatService(data)
    await service.start()
    await service.stop(0)
    return data / DATABASE


def log_of(file: Path) -> Path:
    """Return the write-ahead log of a database."""
    return file.with_name(f"{file.name}-wal")


def remove_log(file: Path) -> None:
    for ending in ("-wal", "-shm"):
        file.with_name(f"{file.name}{ending}").unlink()


def contents(data: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in data.glob(f"{DATABASE}*") if file.is_file()}


async def refused(data: Path, kind: type[HopyardError], match: str, *, early: bool = True) -> None:
    """Expect that AppStat does not start, and that readers fail in the same way, without any change of the files."""
    before = contents(data)
    with pytest.raises(kind, match=match) as raised:
        await AppStatService(data).start()
    assert "\n" not in str(raised.value)
    if early:
        with pytest.raises(kind, match=match):
            AppStatReader(data)
        with pytest.raises(kind, match=match):
            check_data(data)
    with pytest.raises(kind, match=match):
        check_database(data)
    assert contents(data) == before


@pytest.mark.parametrize("size", [1, 50, 99, 100, 4096, 0.5])
async def test_a_truncated_database(tmp_path: Path, size: float) -> None:
    file = await stopped(tmp_path)
    os.truncate(file, int(file.stat().st_size * size) if size < 1 else int(size))
    await refused(
        tmp_path,
        DataLoss,
        rf"{DATABASE}: found \d+ bytes.*the rest is missing; move the data directory away and restore",
    )


def overwritten(file: Path) -> None:
    file.write_bytes(b"-- a dump, not a database\n" * 100)


def without_log(file: Path) -> None:
    Path(f"{file}-shm").touch()


def log_of_another_kind(file: Path) -> None:
    log_of(file).write_bytes(b"no log" * 10)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (overwritten, "found a file that is not a database"),
        (replace_by_folder, "found a folder, needed is the file of a database"),
        (without_log, "the write-ahead log of the database is missing"),
        (log_of_another_kind, "not a write-ahead log"),
    ],
)
async def test_other_damage(tmp_path: Path, damage: Callable[[Path], None], match: str) -> None:
    damage(await stopped(tmp_path))
    await refused(tmp_path, DataLoss, match)


async def test_a_link_to_a_missing_file(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    await stopped(tmp_path)
    (tmp_path / "elsewhere").unlink()
    await refused(tmp_path, Conflict, "which does not exist; restore that file")


async def test_a_newer_schema(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Conflict, match="9999"):
        await AppStatService(tmp_path).start()
    with pytest.raises(Conflict, match="use the version of Hopyard that wrote it"):
        AppStatReader(tmp_path)


async def test_the_log_of_another_database(tmp_path: Path) -> None:
    # It contains all pages of that database, so the result is a sound database, but not this one.
    file = await stopped(tmp_path / "a")
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE t (a)")
        other.executemany("INSERT INTO t VALUES (?)", [("text " * 100,)] * 200)
        other.commit()
        shutil.copy(tmp_path / "other-wal", f"{file}-wal")
    assert len(contents(tmp_path / "a")[f"{DATABASE}-wal"]) > 10_000
    before = contents(tmp_path / "a")
    with pytest.raises(
        Conflict,
        match=r"is empty, or its -wal file is of another database, but the store .* move the data directory away and restore",
    ):
        await AppStatService(tmp_path / "a").start()
    found = contents(tmp_path / "a")
    assert {name: found[name] for name in (DATABASE, f"{DATABASE}-wal")} == before
    remove_log(file)
    await stopped(tmp_path / "a")


async def test_the_log_of_another_cluster(tmp_path: Path) -> None:
    file = await stopped(tmp_path / "a")
    other = AppStatService(tmp_path / "b")
    await other.start()
    shutil.copy(tmp_path / "b" / f"{DATABASE}-wal", f"{file}-wal")
    await other.stop(0)
    before = contents(tmp_path / "a")
    with pytest.raises(Conflict, match=r"the store .* belongs to cluster .*, the database to cluster"):
        await AppStatService(tmp_path / "a").start()
    found = contents(tmp_path / "a")
    assert {name: found[name] for name in (DATABASE, f"{DATABASE}-wal")} == before


async def test_a_database_that_another_process_has_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await stopped(tmp_path)
    for module in (connections, read_only, writer):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        message = (
            rf"{DATABASE}: another process has locked the database for more than 0.1 s; end that process \(`fuser -v"
        )
        with pytest.raises(Unavailable, match=message):
            await AppStatService(tmp_path).start()
        with pytest.raises(Unavailable, match=message):
            AppStatReader(tmp_path)
    await stopped(tmp_path)


async def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    with pytest.raises(OperationalError) as raised, read_only_engine(file).begin() as connection:
        connection.exec_driver_sql("DELETE FROM epochs")
    assert str(writer.cause_of(raised.value, file)).endswith(f"; make {file} and its folder writable")


async def test_damaged_pages_are_found_by_the_check_of_doctor_and_after_a_kill(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    assert "all pages intact" in check_database(tmp_path)
    with closing(sqlite3.connect(file)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'statistics'").fetchone()
    overwrite(file, (root - 1) * 4096, 64)
    with pytest.raises(DataLoss, match=rf"{DATABASE}: (the database is damaged|cannot be read)"):
        check_database(tmp_path)
