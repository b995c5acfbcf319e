"""Connections: one engine that writes, one that only reads; SQLite in WAL mode unless told otherwise."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from hopyard.errors import InvalidInput

BUSY_SECONDS: Final = 30.0
"""How long SQLite waits for another process's lock, such as a backup's."""

READERS: Final = 4
"""Connections that read at the same time."""


WAL_PAGES: Final = 8192
"""From so many pages on the writer itself folds SQLite's WAL into the database: only when `Database.fold` cannot keep up."""


class Synchronous(enum.StrEnum):
    """When SQLite waits for the disk.

    NORMAL: what was committed survives the death of any process; a power failure may cost the last commits, never the
    database's integrity. FULL: each commit waits for the disk and survives a power failure too.
    """

    NORMAL = "normal"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Database:
    """An opened database. `writer` has one connection, `reader` refuses to write."""

    writer: Engine
    reader: Engine

    def fold(self) -> None:
        """Fold SQLite's WAL into the database file, as far as that goes beside the writer, who need not wait for the disk then.

        Raises:
            DBAPIError: The disk does not take it; the WAL is then as it was.
        """
        if self.reader.dialect.name != "sqlite":
            return
        with self.reader.connect() as connection:
            # Inside of a transaction there is nothing to be folded: straight to the driver.
            driver = connection.dialect.loaded_dbapi
            cursor = connection.connection.cursor()
            try:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except driver.Error as error:
                raise DBAPIError.instance("wal_checkpoint", [], error, driver.Error) from error
            finally:
                cursor.close()

    def close(self) -> None:
        """Close all connections; SQLite then folds its WAL into the database file."""
        self.reader.dispose()
        self.writer.dispose()


def database_url(text: str | None, data: Path) -> URL:
    """The URL of the database: `text`, or SQLite in the data folder without one.

    Raises:
        InvalidInput: It is no URL of a database that is supported.
    """
    if text is None:
        return URL.create("sqlite", database=str(data / "appstat.sqlite"))
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise InvalidInput(f"--database: {error}; allowed is a URL such as sqlite:///FILE or {_POSTGRESQL}") from error
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise InvalidInput(f"--database: found {url.get_backend_name()!r}, allowed are sqlite and postgresql")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InvalidInput("--database: a SQLite database in memory would be lost; name a file: sqlite:///FILE")
    return url


def open_database(url: URL, *, synchronous: Synchronous = Synchronous.NORMAL) -> Database:
    """Open a database that is there, or (SQLite) make an empty one. Its tables are `migrate`'s business.

    Raises:
        InvalidInput: The driver is not installed.
    """
    sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}} if sqlite else {}
    try:
        writer = create_engine(url, pool_size=1, max_overflow=0, **options)
        reader = create_engine(url, pool_size=READERS, max_overflow=0, **options)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise InvalidInput(f"--database: the driver of {url.drivername} is missing ({error}); {_POSTGRESQL}") from error
    if sqlite:
        _set_up_sqlite(writer, synchronous, reads_only=False)
        _set_up_sqlite(reader, synchronous, reads_only=True)
    else:
        reader = reader.execution_options(postgresql_readonly=True)
    return Database(writer, reader)


_POSTGRESQL: Final = "postgresql+psycopg://USER@HOST/NAME (pip install 'psycopg[binary]')"


def _set_up_sqlite(engine: Engine, synchronous: Synchronous, *, reads_only: bool) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling begins transactions late and commits around DDL; ours is explicit
        # (below).
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {synchronous.name}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        if reads_only:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        # A writer takes the lock at once: one that reads first may find it taken when it wants to write.
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")
