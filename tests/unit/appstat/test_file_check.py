"""Tests of `file_check`: damaged files of a SQLite database are named before anything is opened, and sound ones are not."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hopyard.errors import Conflict, DataLoss
from hopyard_appstat.database.file_check import check_files, has_log
from hopyard_appstat.database.read_only import check_pages, read_only_connection, read_only_engine
from tests.damage import replace_by_folder, replace_by_pipe

PAGE = 4096


def make(file: Path, rows: int = 200) -> None:
    """Create a closed database of several pages."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (a, b)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"{file.name} {n} " * 20) for n in range(rows)])
        database.execute("CREATE INDEX i ON t (b)")
        database.commit()


def killed(folder: Path, *, fold: bool = False) -> Path:
    """Return a database as a killed process leaves it: its last transaction is in the write-ahead log."""
    folder.mkdir(exist_ok=True)
    made, copy = folder / "made.sqlite", folder / "killed"
    make(made)
    copy.mkdir(parents=True)
    with closing(sqlite3.connect(made)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"late {n} " * 40) for n in range(300)])
        database.commit()
        if fold:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        for ending in ("", "-wal", "-shm"):
            shutil.copy(f"{made}{ending}", copy)
    return copy / made.name


def rows(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM t").fetchone()[0])


def test_sound_files_pass(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    check_files(file)  # It is missing.
    file.touch()
    check_files(file)
    file.unlink()
    make(file)
    check_files(file)
    assert not has_log(file)
    (tmp_path / "link").symlink_to(file)
    check_files(tmp_path / "link")
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as reader:
        reader.execute("SELECT * FROM t").fetchone()
    check_files(file)  # A reader leaves an empty log.


@pytest.mark.parametrize("fold", [False, True])
def test_the_files_of_a_killed_process_pass(tmp_path: Path, fold: bool) -> None:
    file = killed(tmp_path, fold=fold)
    check_files(file)
    assert has_log(file)
    check_pages(read_only_engine(file), file)
    assert rows(file) == 500


def test_a_database_whose_fold_was_interrupted_passes(tmp_path: Path) -> None:
    file = killed(tmp_path)
    before = file.stat().st_size
    whole = killed(tmp_path / "x", fold=True)
    with file.open("r+b") as opened:  # The first page was copied from the log, those at the end were not.
        opened.write(whole.read_bytes()[:PAGE])
    assert whole.stat().st_size > before
    check_files(file)
    assert rows(file) == 500


def test_a_log_that_its_process_deletes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.sqlite"
    make(file)
    log = Path(f"{file}-wal")
    log.touch()
    open_ = Path.open

    def close_first(path: Path, *given: Any, **named: Any) -> Any:
        if path == log:
            log.unlink()
        return open_(path, *given, **named)

    monkeypatch.setattr(Path, "open", close_first)
    check_files(file)
    assert not log.exists()


def test_the_log_of_a_linked_database_is_beside_the_file(tmp_path: Path) -> None:
    file, link = killed(tmp_path), tmp_path / "link"
    link.symlink_to(file)
    check_files(link)
    assert has_log(link)
    with closing(read_only_connection(link)) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (500,)
    Path(f"{file}-wal").unlink()
    with pytest.raises(DataLoss, match=rf"{file}-wal: the write-ahead log .* is missing.*remove {file}-shm"):
        check_files(link)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("size", [1, 15, 16, 50, 99, 100, PAGE, PAGE + 1, 3 * PAGE, "half", "all but a page"])
def test_a_truncated_database_is_named(tmp_path: Path, size: int | str, log: bool) -> None:
    file = killed(tmp_path, fold=True) if log else tmp_path / "a.sqlite"
    if log:
        Path(f"{file}-wal").write_bytes(b"")  # It was folded, then reset.
    else:
        make(file)
    whole = file.stat().st_size
    left = {"half": whole // 2 // PAGE * PAGE, "all but a page": whole - PAGE}.get(str(size), size)
    os.truncate(file, int(left))
    with pytest.raises(
        DataLoss, match=rf"a.*sqlite: found {left} bytes.*the rest is missing; move the data directory away and restore"
    ):
        check_files(file)
    assert file.stat().st_size == left


def test_pages_that_only_the_log_has_are_not_missing_but_others_are(tmp_path: Path) -> None:
    file = killed(tmp_path)
    os.truncate(file, PAGE)
    with pytest.raises(DataLoss, match="the rest is missing"):
        check_files(file)


def overwritten(file: Path) -> None:
    file.write_bytes(b"PK\3\4" * 5000)


def header_overwritten(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(16)
        opened.write(b"\0\3")


def short_and_foreign(file: Path) -> None:
    file.write_bytes(b"hello")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (replace_by_folder, "found a folder, needed is the file of a database"),
        (replace_by_pipe, "found a device, a pipe or a socket"),
        (overwritten, "found a file that is not a database .it begins with b'PK"),
        (short_and_foreign, "found a file that is not a database .it begins with b'hello'"),
        (header_overwritten, "found a database whose header is damaged .pages of 3 bytes"),
    ],
)
def test_something_else_than_a_database_is_named(tmp_path: Path, damage: Callable[[Path], None], found: str) -> None:
    file = tmp_path / "a.sqlite"
    make(file)
    damage(file)
    with pytest.raises(DataLoss, match=f"{file}: {found}"):
        check_files(file)


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").symlink_to("elsewhere")
    with pytest.raises(Conflict, match="found a link to elsewhere, which does not exist"):
        check_files(tmp_path / "a.sqlite")


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    file = killed(tmp_path)
    Path(f"{file}-wal").unlink()
    with pytest.raises(
        DataLoss, match=r"sqlite-wal: the write-ahead log of the database is missing.*remove .*sqlite-shm"
    ):
        check_files(file)
    Path(f"{file}-shm").unlink()
    check_files(file)
    assert rows(file) == 200


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"not a log" * 10, "not a write-ahead log"),
        (
            bytes.fromhex("377f0682 002de218 00000200 00000000") + b"\1" * 16,
            "pages of 512 bytes, the database has 4096",
        ),
    ],
)
def test_a_log_of_another_kind_is_named(tmp_path: Path, content: bytes, found: str) -> None:
    file = killed(tmp_path)
    Path(f"{file}-wal").write_bytes(content)
    with pytest.raises(DataLoss, match=rf"sqlite-wal: found the file of another database or damage \({found}\); put"):
        check_files(file)


def test_a_log_folder_is_named(tmp_path: Path) -> None:
    file = killed(tmp_path)
    Path(f"{file}-wal").unlink()
    Path(f"{file}-wal").mkdir()
    with pytest.raises(DataLoss, match="found something else than the write-ahead log"):
        check_files(file)


def test_a_header_of_a_log_that_was_never_written_is_no_damage(tmp_path: Path) -> None:
    file = killed(tmp_path)
    Path(f"{file}-wal").write_bytes(bytes(3 * PAGE))
    check_files(file)
    assert rows(file) == 200


def test_a_log_of_another_database_is_found_by_reading_all_pages(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    make(file, rows=5000)
    before = file.read_bytes()
    other = killed(tmp_path / "other")
    shutil.copy(f"{other}-wal", f"{file}-wal")
    check_files(file)
    engine = read_only_engine(file)
    with pytest.raises(DataLoss, match=rf"{file}: .*(the database is damaged|malformed).*restore"):
        check_pages(engine, file)
    engine.dispose()
    assert file.read_bytes() == before
    assert Path(f"{file}-wal").exists()
