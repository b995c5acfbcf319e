"""The only writer of the database. It commits all waiting operations together in one transaction (group commit)."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, StatementError

from hopyard.errors import Exhausted, HopyardError, InvalidInput, Unavailable
from hopyard_appstat.database.connections import BUSY_SECONDS, damage_of
from hopyard_appstat.database.transaction import Transaction

_log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[Transaction], T]
_Waiting = tuple[Operation[Any], asyncio.Future[Any]]
_Outcome = tuple[Any, BaseException | None]

MAX_GROUP: Final = 256
"""Maximum number of operations in one transaction, which limits how long the first of them waits for its commit."""

_FULL_BYTES: Final = 65536

MAX_WAITING: Final = 1024
"""Maximum number of operations in the queue; further callers wait until there is room."""


class Writer:
    """Executes operations on the database in order of arrival, one transaction at a time.

    An operation is a function that writes to the `Transaction` it gets and returns a result. Run `run` as a background task, call `do`
    for each operation, then `close`, await the task, and `release`.

    Args:
        engine: SQLAlchemy engine with the only connection that may write.
        on_commit: Called in the event loop after each commit that adds statistics, with the ids of their experiments.
        wall_clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self, engine: Engine, *, on_commit: Callable[[set[str]], None], wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._on_commit = on_commit
        self._wall_clock = wall_clock
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue(MAX_WAITING)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="appstat-writer")
        self._closing = False
        self.commits = 0
        """The number of committed transactions since this writer was created."""

    async def do(self, operation: Operation[T]) -> T:
        """Execute an operation, and return its result after it is committed.

        Raises:
            HopyardError: The operation raised this error; it changed nothing.
            DataLoss: The database is damaged.
            Exhausted: The disk is full.
            Unavailable: The database cannot be written at present, or the service is stopping.
        """
        if self._closing:
            raise Unavailable("appstat is stopping: try again after its restart")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self._queue.put((operation, done))
        return await done

    async def run(self) -> None:
        """Commit operations until `close` is called and the queue is empty."""
        ended = False
        while not ended:
            group: list[_Waiting] = []
            item = await self._queue.get()
            while True:
                if item is None:
                    ended = True
                    break
                group.append(item)
                if len(group) == MAX_GROUP or self._queue.empty():
                    break
                item = self._queue.get_nowait()
            if group:
                await self._serve(group)

    async def close(self) -> None:
        """Refuse new operations. `run` ends after the operations in the queue are committed."""
        if not self._closing:
            self._closing = True
            await self._queue.put(None)

    def release(self) -> None:
        """End the writer's thread. Call it after `run` has ended."""
        self._thread.shutdown()

    async def _serve(self, group: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        outcomes, touched = await loop.run_in_executor(self._thread, self._commit_or_split, [op for op, _ in group])
        if touched:
            self._on_commit(touched)
        for (_, done), (value, error) in zip(group, outcomes, strict=True):
            if done.done():
                continue  # The caller was cancelled.
            if error is None:
                done.set_result(value)
            else:
                done.set_exception(error)

    # ------------------------------------------------------------------------------------------- in the writer's thread

    def _commit_or_split(self, operations: list[Operation[Any]]) -> tuple[list[_Outcome], set[str]]:
        """Commit the operations in one transaction. If it fails and one operation may be the cause, commit each operation separately.

        Returns:
            For each operation its result or its error, and the ids of the experiments that have new statistics.
        """
        try:
            return self._commit(operations)
        except OperationalError as error:
            return [(None, cause_of(error, self._engine.url))] * len(operations), set()
        except Exception as error:  # noqa: BLE001
            if len(operations) == 1:
                return [(None, damage_of(error, self._engine.url) or _refusal_of(error) or error)], set()
            _log.warning(
                "a transaction of %d operations failed; each is now committed separately: %r", len(operations), error
            )
        outcomes: list[_Outcome] = []
        touched: set[str] = set()
        for operation in operations:
            alone, also = self._commit_or_split([operation])
            outcomes += alone
            touched |= also
        return outcomes, touched

    def _commit(self, operations: list[Operation[Any]]) -> tuple[list[_Outcome], set[str]]:
        outcomes: list[_Outcome] = []
        with self._engine.begin() as connection:
            transaction = Transaction(connection, now=self._wall_clock())
            for operation in operations:
                try:
                    outcomes.append((operation(transaction), None))
                except HopyardError as error:
                    outcomes.append((None, error))  # The operation was refused before it wrote anything.
        self.commits += 1
        return outcomes, transaction.touched


def cause_of(error: DBAPIError, database: URL | Path) -> HopyardError:
    """Return the error to raise for a failure of a database: `Exhausted` if its disk is full, else `Unavailable`.

    Args:
        error: The error of a statement or a connection.
        database: The URL of the database, or its file.
    """
    text = str(error.orig)
    name = database.render_as_string() if isinstance(database, URL) else str(database)
    file = database if isinstance(database, Path) else _file_of(database)
    # SQLite reports "disk I/O error" if there is no room for its shared-memory file.
    if "full" in text or "No space left" in text or (file is not None and _is_full(file)):
        return Exhausted(f"{name}: the database cannot grow, no space left on its disk ({text}); make room there")
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # Without the extension of the code.
    if file is not None and code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"{name}: another process has locked the database for more than {BUSY_SECONDS:g} s; end that process "
            f"(`fuser -v {file}` names it)"
        )
    if file is not None and code == sqlite3.SQLITE_READONLY:
        return Unavailable(f"{name}: the database cannot be written ({text}); make {file} and its folder writable")
    if file is not None:
        return Unavailable(
            f"{name}: the database cannot be read or written ({text}); check its disk and the modes of its files"
        )
    return Unavailable(f"{name}: the database cannot be read or written ({text}); check that its server runs")


def _refusal_of(error: Exception) -> InvalidInput | None:
    """Return the error for values that a table does not accept, such as NaN or an integer of more than 64 bits; None: another cause."""
    if isinstance(error, IntegrityError | DataError):
        return InvalidInput(f"the database does not accept a value: {error.orig!s:.200}")
    cause = error.orig if isinstance(error, StatementError) else error
    if isinstance(cause, OverflowError):
        return InvalidInput(f"the database does not accept a number: {cause}")
    return None


def _file_of(url: URL) -> Path | None:
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.resolve().parent).free < _FULL_BYTES
    except OSError:
        return False
