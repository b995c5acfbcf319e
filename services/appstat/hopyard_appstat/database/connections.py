"""Database connections: one SQLAlchemy engine that writes, one that only reads. SQLite uses WAL mode (write-ahead log)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError

from hopyard.errors import DataLoss, InvalidInput
from hopyard_appstat.database.record_chain import RESTORE

BUSY_SECONDS: Final = 30.0
"""Maximum seconds that SQLite waits for the lock of another process, such as a backup."""

READERS: Final = 4
"""Number of concurrent read connections."""


WAL_PAGES: Final = 8192
"""WAL size in pages at which the writer itself runs a checkpoint. Normally `Database.fold` runs one before."""


class Synchronous(enum.StrEnum):
    """When SQLite waits for the disk.

    NORMAL: commits survive the death of any process; a power failure may lose the last commits but does not damage the
    database. FULL: each commit waits for the disk and survives a power failure.
    """

    NORMAL = "normal"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Database:
    """An open database.

    Attributes:
        writer: SQLAlchemy engine with a single connection, which may write.
        reader: SQLAlchemy engine with `READERS` connections, which refuse to write.
    """

    writer: Engine
    reader: Engine

    def fold(self) -> None:
        """Run a passive WAL checkpoint of SQLite, which copies the write-ahead log to the database file without blocking the writer.

        Otherwise the writer would run checkpoints itself, during commits. With other databases this does nothing.

        Raises:
            DBAPIError: The checkpoint failed; the WAL is unchanged.
        """
        if self.reader.dialect.name != "sqlite":
            return
        with self.reader.connect() as connection:
            # A checkpoint fails inside a transaction, which SQLAlchemy would begin, so the driver executes it.
            driver = connection.dialect.loaded_dbapi
            cursor = connection.connection.cursor()
            try:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except driver.Error as error:
                raise DBAPIError.instance("wal_checkpoint", [], error, driver.Error) from error
            finally:
                cursor.close()

    def close(self) -> None:
        """Close all connections; SQLite then runs a checkpoint."""
        self.reader.dispose()
        self.writer.dispose()


def database_url(text: str | None, data: Path) -> URL:
    """Return the URL of the database.

    Args:
        text: The URL as the user gave it; None: a SQLite database in the data folder.
        data: The data folder of the service.

    Raises:
        InvalidInput: The URL is invalid, or its database is not supported.
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
    """Open the database at `url`. A SQLite database that does not exist is created empty; `migrate` creates the tables.

    Args:
        url: The URL, as `database_url` returns it.
        synchronous: When SQLite waits for the disk; ignored by PostgreSQL.

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
        # A reader needs one state of the database for all its statements, as SQLite gives it.
        reader = reader.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")
    return Database(writer, reader)


def damage_of(error: BaseException, database: URL | Path | str) -> DataLoss | None:
    """Return the error to raise if `error` of SQLAlchemy says that a SQLite file is damaged or not a database; None: it says otherwise.

    Args:
        error: The error of a statement or a connection.
        database: The URL or the file of the database, for the message.
    """
    # The driver raises subclasses for all failures but SQLITE_CORRUPT and SQLITE_NOTADB.
    if type(error) is not DatabaseError:
        return None
    name = database.render_as_string() if isinstance(database, URL) else database
    return DataLoss(f"{name}: cannot be read as a database ({error.orig}); {RESTORE}")


_POSTGRESQL: Final = "postgresql+psycopg://USER@HOST/NAME (pip install 'psycopg[binary]')"


def _set_up_sqlite(engine: Engine, synchronous: Synchronous, *, reads_only: bool) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        # Disables the driver's transaction handling, which begins transactions late and commits around DDL. `begin`
        # below begins them explicitly.
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
        # A writer acquires the lock at once. If it read first, another process could acquire the lock before its first write.
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")
