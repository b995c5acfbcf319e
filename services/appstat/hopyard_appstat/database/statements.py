"""The SQL statements of each commit, compiled to text once: compiling a statement takes longer than SQLite takes to execute it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Executable, Table, bindparam, delete, func, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError

from hopyard_appstat.database.schema import epochs, jobs, journal, streams

NEWEST_EPOCH: Final = select(func.max(epochs.c.epoch))
END: Final = select(streams.c.length, streams.c.head).where(streams.c.name == bindparam("stream_name"))
SET_END: Final = (
    update(streams)
    .where(streams.c.name == bindparam("stream_name"))
    .values(length=bindparam("stream_length"), head=bindparam("stream_head"))
)
DELETE_JOB: Final = delete(jobs).where(
    jobs.c.experiment == bindparam("of_experiment"), jobs.c.id == bindparam("job_id")
)
ADD_STREAM: Final = streams.insert()
ADD_RECORD: Final = journal.insert()

# Rows are passed to SQLite's driver unconverted, because it accepts named parameters and int, float, str, bytes and bool values.
_SQLITE: Final = sqlite.dialect(paramstyle="named")

Row = Mapping[str, Any]


def execute(connection: Connection, statement: Executable, rows: Sequence[Row]) -> None:
    """Execute one of this module's constant statements once for each row, which contains the statement's parameters by name.

    Without rows, nothing is executed.
    """
    if rows:
        _run(connection, _text(statement, _spoken(connection)), rows)


def first(connection: Connection, statement: Executable, row: Row) -> Any:
    """Return the first row that one of this module's constant statements finds; None: it finds no row.

    `row` contains the statement's parameters by name.
    """
    return _run(connection, _text(statement, _spoken(connection)), [row]).fetchone()


def upsert(connection: Connection, table: Table, key: tuple[str, ...], rows: Sequence[Row], *, replace: bool) -> None:
    """Insert rows into a table.

    Args:
        connection: Connection with a transaction that may write.
        table: The table.
        key: Names of the columns that identify a row.
        rows: The rows, as values by column name.
        replace: What to do if a row with the same key exists. True: replace it. False: keep it and ignore the new one.
    """
    if rows:
        _run(connection, _upsert_text(table, key, replace, _spoken(connection)), rows)


def _spoken(connection: Connection) -> Dialect:
    return _SQLITE if connection.dialect.name == "sqlite" else connection.dialect


def _run(connection: Connection, text: str, rows: Sequence[Row]) -> DBAPICursor:
    """Execute SQL text once for each row of parameters with the driver's cursor, without SQLAlchemy's overhead; return the cursor.

    Raises:
        DBAPIError: The statement failed; the same error as from SQLAlchemy.
    """
    driver = connection.dialect.loaded_dbapi
    cursor = connection.connection.cursor()
    try:
        if len(rows) == 1:
            cursor.execute(text, rows[0])
        else:
            cursor.executemany(text, rows)
    except driver.Error as error:
        raise DBAPIError.instance(text, list(rows), error, driver.Error, dialect=connection.dialect) from error
    return cursor


@functools.cache
def _text(statement: Any, dialect: Dialect) -> str:
    return str(statement.compile(dialect=dialect))


@functools.cache
def _upsert_text(table: Table, key: tuple[str, ...], replace: bool, dialect: Dialect) -> str:
    speaks: Any = sqlite
    if dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql as speaks  # A slow import that SQLite does not need.
    insert = speaks.insert(table).inline()
    if replace:
        changed = {c.name: insert.excluded[c.name] for c in table.columns if c.name not in key}
        statement = insert.on_conflict_do_update(index_elements=key, set_=changed)
    else:
        statement = insert.on_conflict_do_nothing(index_elements=key)
    given = [c.name for c in table.columns if c is not table.autoincrement_column]
    return str(statement.compile(dialect=dialect, column_keys=given))
