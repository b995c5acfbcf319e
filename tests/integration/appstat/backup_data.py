"""A data directory with experiments and blobs, for tests of backups, and the command line as a process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.backup.plugin import AppStatBackups
from hopyard_appstat.blobs.cluster_id import STORE, claim_store
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate
from hopyard_appstat.projections import append_of
from tests.unit.appstat.messages import Row, append

DATABASE = "appstat.sqlite"
BACKUPS = AppStatBackups()


def silent(text: str) -> None:
    """Ignore a message about the progress."""


def blob_file(store: Path, content: bytes) -> Path:
    """Return the path of a blob in a store, or in the folder `blobs` of a target."""
    sha256 = hashlib.sha256(content).hexdigest()
    return store / sha256[:2] / sha256


class DataDirectory:
    """A data directory of AppStat, as a stopped service leaves it.

    Args:
        path: The directory, which is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700)
        (path / "secrets").mkdir(mode=0o700)
        (path / "secrets" / "user.token").write_text("a token\n")
        self.cluster, _ = asyncio.run(self._change(lambda store: store.identity()))
        claim_store(path / STORE, self.cluster, adopt=False)

    def add_records(self, stream: str, first: int, count: int) -> None:
        """Append records to a stream of the journal, in a new epoch."""
        records = [
            pb.JournalRecord(stream=stream, position=first + i, at=1.0, kind="Kind", payload=b"payload" * 9, version=2)
            for i in range(count)
        ]

        async def add(store: Store) -> None:
            epoch = await store.begin_epoch("a test")
            await store.append(append_of(pb.AppendJournalRequest(epoch=epoch, records=records)))

        asyncio.run(self._change(add))

    def add_rows(self, *rows: Row) -> None:
        """Add rows of experiments and jobs, in a new epoch."""

        async def add(store: Store) -> None:
            await store.append(append(await store.begin_epoch("a test"), rows=rows))

        asyncio.run(self._change(add))

    def add_blob(self, content: bytes, *, stored: bool = True) -> str:
        """Add a blob to the index, and its bytes to the store unless `stored` is False; return its hash."""
        sha256 = hashlib.sha256(content).hexdigest()
        if stored:
            file = blob_file(self.path / STORE, content)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        asyncio.run(self._change(lambda store: store.own_blobs("an experiment", {sha256: len(content)})))
        return sha256

    def delete_blob(self, content: bytes) -> None:
        """Delete a blob from the store and from the index."""
        file = blob_file(self.path / STORE, content)
        asyncio.run(self._change(lambda store: store.disown_blobs("an experiment", (file.name,))))
        file.unlink()

    async def _change(self, change: Any) -> Any:
        database = open_database(database_url(None, self.path))
        migrate(database.writer)
        store = Store(database)
        running = asyncio.create_task(store.run())
        try:
            return await change(store)
        finally:
            await store.close()
            await running
            store.release()


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start the command line as a process."""
    command = [sys.executable, "-m", "hopyard.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def command(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run the command line, check its exit code, and return stdout and stderr."""
    process = start(*arguments)
    out, error = process.communicate(timeout=120)
    assert process.returncode == code, error
    return out, error


def json_of(*arguments: object, code: int = 0) -> Any:
    """Run the command line with --json, and return the document on stdout."""
    return json.loads(command(*arguments, "--json", code=code)[0])
