"""Tests of the checkpoint of SQLite's write-ahead log, which runs next to the writer."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.transaction import Transaction
from hopyard_appstat.migrations.migrate import migrate
from tests.unit.appstat.messages import append, record

pytestmark = pytest.mark.quick


def records_in(file: Path) -> int:
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("SELECT count(*) FROM journal").fetchone()[0])
    finally:
        connection.close()


def test_what_is_folded_lies_in_the_database_file_itself(tmp_path: Path) -> None:
    database = open_database(database_url(None, tmp_path))
    try:
        migrate(database.writer)
        database.fold()
        with database.writer.begin() as connection:
            transaction = Transaction(connection, now=1.0)
            epoch = transaction.begin_epoch("test")
            transaction.append(append(epoch, (record("s", 1, payload=b"payload"),)))
        file, alone = tmp_path / "appstat.sqlite", tmp_path / "alone.sqlite"
        shutil.copy(file, alone)
        assert records_in(alone) == 0
        database.fold()
        shutil.copy(file, alone)
        assert records_in(alone) == 1
    finally:
        database.close()
