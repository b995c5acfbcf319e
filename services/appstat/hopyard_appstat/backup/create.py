"""Makes a backup of a data directory, while a cluster runs in it or not.

The blobs that the target lacks are copied first. Then one read transaction of the database determines the state of the backup: the
blobs that it lists and the target still lacks are opened at once, so that their deletion by the cluster does not matter any more, and
the database is copied within the same transaction, which the commits of the cluster do not disturb (WAL mode).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from hopyard._common import formatting
from hopyard._common.backup_results import BackupResult
from hopyard._common.private_files import check_own_folder
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard.errors import Conflict, DataLoss, Exhausted, HopyardError, InvalidInput, NotFound, Unavailable
from hopyard_appstat.backup.files import (
    blob_path,
    content_of,
    copy,
    hash_of,
    one_contains_other,
    open_plain,
    opened,
    plain_size,
    sync,
)
from hopyard_appstat.backup.generations import has_database
from hopyard_appstat.backup.journal_check import check_journal, consequences
from hopyard_appstat.backup.local_snapshots import ENDED_STATES, on_nodes_only
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target
from hopyard_appstat.backup.views import generation_of, lost_blob
from hopyard_appstat.blobs.cluster_id import STORE, store_owner
from hopyard_appstat.database.read_only import read_only_connection
from hopyard_appstat.migrations.migrate import NEWEST

MAX_HELD: Final = 256
"""Maximum number of blobs that are open at the same time."""

SIGHTINGS: Final = 5
"""Number of states of the database in a row that list a blob without bytes, after which the blob counts as lost."""

PAUSE_SECONDS: Final = 0.2
"""Seconds between these states."""

_PAGES: Final = 2048
_SECRET_BYTES: Final = 64 * 1024
_FILE: Final = "appstat.sqlite"


@dataclass(slots=True)
class _Copied:
    """What was copied so far.

    Attributes:
        blobs: Number of blobs.
        size: Number of bytes.
        replaced: Files in the target that had another size or other bytes than they should, and were replaced.
        damaged: Blobs that cannot be read from the store, or whose bytes do not match their hash, with the reason.
    """

    blobs: int = 0
    size: int = 0
    replaced: list[Path] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _State:
    """A state of the database that is a backup with the held blobs.

    Attributes:
        at: Its time, in seconds since the Unix epoch.
        blobs: Size in bytes of each listed blob, by its SHA-256.
        held: Descriptors of the blobs that the target lacks.
        missing: The listed blobs that neither the store nor the target has.
    """

    at: float
    blobs: dict[str, int]
    held: dict[str, int]
    missing: frozenset[str]


def create(data: Path, folder: Path, keep: int | None, note: Callable[[str], None]) -> BackupResult:
    """Add a backup of a data directory to a target; see `hopyard._common.backup_results.Backups.create`."""
    check_own_folder(data)
    _check_places(data, folder)
    file = data / _FILE
    with _database(file, data) as source, _opened_target(folder, source, data) as target:
        cluster, history = _identity(source)
        store, copied = data / STORE, _Copied()
        with _consistent_state(source, store, target, copied, note) as state:
            for sha256, descriptor in state.held.items():
                with os.fdopen(os.dup(descriptor), "rb") as blob:
                    _copy_blob(blob, sha256, store, target, copied)
            note("copying the database")
            database, size, new = _copy_database(source, target, copied)
            on_nodes = on_nodes_only(_unfinished_jobs(source))
            epoch = int(source.execute("SELECT coalesce(max(epoch), 0) FROM epochs").fetchone()[0])
        copied.size += size if new else 0
        note("comparing the checksums of the journal")
        journal = check_journal(target.database_path(database))
        lost = dict.fromkeys(sorted(state.missing), "it was not in the store") | {
            sha256: reason for sha256, reason in copied.damaged.items() if sha256 in state.blobs
        }
        saved = {sha256: bytes_ for sha256, bytes_ in state.blobs.items() if sha256 not in lost}
        # Also those that a killed backup has copied.
        folders = {target.blob_path(sha256).parent for sha256 in saved}
        for changed in (*sorted(folders), target.path / "blobs", target.path / "databases"):
            sync(changed)
        manifest = BackupManifest(
            number=target.next_number(),
            taken_at=state.at,
            cluster=cluster,
            history=history,
            epoch=epoch,
            revision=NEWEST,
            database_sha256=database,
            database_bytes=size,
            blobs=saved,
            lost=lost,
            secrets=_secrets(data / SECRETS),
        )
        target.add(manifest)
        # An older generation may have what the cluster has lost.
        deleted, freed = ([], 0) if lost or journal.damaged else target.prune(keep)
        sentences = tuple(lost_blob(sha256, reason) for sha256, reason in lost.items())
        return BackupResult(
            generation=generation_of(manifest),
            copied_blobs=copied.blobs,
            copied_bytes=copied.size,
            lost=sentences,
            damaged=consequences(target, manifest.number, journal.damaged),
            replaced=tuple(map(str, copied.replaced)),
            deleted=tuple(deleted),
            freed_bytes=freed,
            on_nodes_only=on_nodes,
        )


@contextmanager
def _consistent_state(
    source: sqlite3.Connection, store: Path, target: Target, copied: _Copied, note: Callable[[str], None]
) -> Iterator[_State]:
    """Copy the blobs that the target lacks, and hold a state of the database, with the few that were added meanwhile.

    The read transaction and the held blobs end with the context.
    """
    missing = Counter[str]()
    while True:
        _copy_listed(source, store, target, copied, note)
        source.execute("BEGIN")
        held: dict[str, int] = {}
        try:
            at, blobs = time.time(), _listed(source)
            gone, complete = _hold(blobs, store, target, copied, held)
            missing = Counter({sha256: missing[sha256] + 1 for sha256 in gone})
            if complete and all(count >= SIGHTINGS for count in missing.values()):
                yield _State(at, blobs, held, frozenset(gone))
                return
        finally:
            for descriptor in held.values():
                os.close(descriptor)
            source.execute("ROLLBACK")
        if missing:
            time.sleep(PAUSE_SECONDS)


def _hold(
    blobs: dict[str, int], store: Path, target: Target, copied: _Copied, held: dict[str, int]
) -> tuple[set[str], bool]:
    """Open the blobs that the target lacks, and add their descriptors to `held`.

    Returns:
        The blobs that the store does not have, and whether all others are held: not if they are too many.
    """
    gone = set[str]()
    for sha256, size in blobs.items():
        if target.has(sha256, size) or sha256 in copied.damaged:
            continue
        if len(held) >= MAX_HELD:
            return gone, False
        try:
            held[sha256] = open_plain(blob_path(store, sha256))
        except FileNotFoundError:
            gone.add(sha256)
        except DataLoss as error:
            copied.damaged[sha256] = _reason(error)
    return gone, True


def _copy_listed(
    source: sqlite3.Connection, store: Path, target: Target, copied: _Copied, note: Callable[[str], None]
) -> None:
    """Copy the blobs that the database lists at present and the target lacks. Those that are deleted meanwhile are left out."""
    wanted = {
        sha256: size
        for sha256, size in _listed(source).items()
        if not target.has(sha256, size) and sha256 not in copied.damaged
    }
    if wanted:
        note(f"copying {formatting.count(len(wanted), 'blob')} ({formatting.size(sum(wanted.values()))})")
    for sha256 in wanted:
        try:
            with opened(blob_path(store, sha256)) as blob:
                _copy_blob(blob, sha256, store, target, copied)
        except FileNotFoundError:
            continue
        except DataLoss as error:
            copied.damaged[sha256] = _reason(error)


def _copy_blob(blob: BinaryIO, sha256: str, store: Path, target: Target, copied: _Copied) -> None:
    """Copy a blob into the target, if it can be read and its bytes match its hash. OSError: the target cannot be written."""
    path = target.blob_path(sha256)
    incoming = target.incoming_path(f"{sha256}.{uuid.uuid4().hex}")
    try:
        found, size = copy(blob, blob_path(store, sha256), incoming)
    except DataLoss as error:
        copied.damaged[sha256] = _reason(error)
        return
    if found != sha256:
        incoming.unlink()
        copied.damaged[sha256] = "it was damaged in the store: its bytes have another hash"
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if os.path.lexists(path):
        copied.replaced.append(path)
    os.replace(incoming, path)
    copied.blobs += 1
    copied.size += size


def _copy_database(source: sqlite3.Connection, target: Target, done: _Copied) -> tuple[str, int, bool]:
    """Copy the database in the state of the open transaction, check the copy, and store it under its hash.

    Returns:
        The SHA-256 and the size of the copy, and whether the target did not have it.

    Raises:
        DataLoss: The database is damaged.
        Exhausted: The disk of the target is full.
    """
    incoming = target.incoming_path(f"database.{uuid.uuid4().hex}")
    os.close(os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        try:
            with closing(sqlite3.connect(incoming, isolation_level=None)) as copied:
                copied.execute("PRAGMA journal_mode = OFF")
                copied.execute("PRAGMA synchronous = OFF")
                source.backup(copied, pages=_PAGES)
            with closing(read_only_connection(incoming, immutable=True)) as copied:
                damage = [str(row[0]) for row in copied.execute("PRAGMA quick_check(3)")]
        except sqlite3.Error as error:
            raise _error_of(error, incoming.parent) from error
        if damage != ["ok"]:
            raise DataLoss(
                f"the database is damaged ({'; '.join(damage)}), so no backup was made, and the earlier ones are unchanged; move the "
                f"data directory away and restore one of them (`hopyard restore {target.path}`)"
            )
        sync(incoming)
        sha256, size = hash_of(incoming), incoming.stat().st_size
        path = target.database_path(sha256)
        new = not has_database(target, sha256)
        if new and os.path.lexists(path):
            done.replaced.append(path)
        os.replace(incoming, path)
    finally:
        for left in incoming.parent.glob(f"{incoming.name}*"):
            left.unlink()
    return sha256, size, new


def _listed(source: sqlite3.Connection) -> dict[str, int]:
    return dict(source.execute("SELECT sha256, size_bytes FROM blobs ORDER BY sha256").fetchall())


def _unfinished_jobs(source: sqlite3.Connection) -> Iterator[bytes]:
    """Yield the messages of the jobs of unfinished experiments."""
    query = "SELECT jobs.message FROM jobs JOIN experiments ON jobs.experiment = experiments.id WHERE state NOT IN (?, ?, ?)"
    for (message,) in source.execute(query, ENDED_STATES):
        yield message


def _identity(source: sqlite3.Connection) -> tuple[str, str]:
    found = source.execute("SELECT id, history FROM clusters").fetchall()
    if len(found) != 1:
        raise DataLoss(f"the table clusters has {len(found)} rows, needed is one; restore an earlier backup")
    return str(found[0][0]), str(found[0][1])


@contextmanager
def _database(file: Path, data: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a data directory read-only.

    Raises:
        NotFound: There is none.
        Conflict: It has the schema of another version.
        DataLoss: The file is not a database.
        Unavailable: It cannot be read now.
    """
    if not file.exists() or not file.stat().st_size:
        state = "is missing" if not file.exists() else "is empty"
        raise NotFound(
            f"{file}: {state}; name the data directory of AppStat with --data. A database that AppStat was given as a URL "
            "(--database) is saved with its own tools, such as pg_dump, together with the store"
        )
    with closing(read_only_connection(file)) as source:
        try:
            found = source.execute("SELECT version_num FROM alembic_version").fetchall()
            revision = found[0][0] if found else None
            if revision != NEWEST:
                raise Conflict(
                    f"{file}: found schema revision {revision or 'none'}, and this version of Hopyard saves {NEWEST}; make the backup "
                    "with the version that runs the cluster"
                )
            if not store_owner(data / STORE) and source.execute("SELECT 1 FROM blobs LIMIT 1").fetchone():
                raise NotFound(
                    f"{data / STORE}: the store of this cluster is not here. A store that AppStat was given as a URL (--store) is "
                    "saved with its own tools, together with the database"
                )
            yield source
        except sqlite3.Error as error:
            raise _error_of(error, file) from error


@contextmanager
def _opened_target(folder: Path, source: sqlite3.Connection, data: Path) -> Iterator[Target]:
    cluster, _ = _identity(source)
    if (owner := store_owner(data / STORE)) not in ("", cluster):
        raise Conflict(
            f"the store {data / STORE} belongs to cluster {owner}, the database to cluster {cluster}; no backup of both was made"
        )
    try:
        with Target.create(folder, cluster) as target:
            yield target
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Exhausted(
                f"{error.filename or folder}: no space left on its disk; no backup was made, and the earlier ones are unchanged; make "
                "room there, or keep fewer generations with --keep"
            ) from error
        raise


def _check_places(data: Path, folder: Path) -> None:
    if one_contains_other(folder, data):
        raise InvalidInput(
            f"{folder}: is not separate from the data directory {data}: one contains the other, and would be lost with it; name "
            "another folder, best on another disk"
        )


def _secrets(folder: Path) -> dict[str, str]:
    """Return the content of the token files, by name. Links and other things are left out."""
    found = {}
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for path in paths:
        size = plain_size(path)
        if path.name.startswith(".") or size is None or size > _SECRET_BYTES:
            continue
        found[path.name] = content_of(path).decode("utf-8", "surrogateescape")
    return found


def _error_of(error: sqlite3.Error, place: Path) -> HopyardError:
    """Return the error to raise for an error of SQLite."""
    # The driver raises subclasses for all failures but SQLITE_CORRUPT and SQLITE_NOTADB.
    if type(error) is sqlite3.DatabaseError:
        return DataLoss(f"{place}: cannot be read as a database ({error}); no backup was made; restore an earlier one")
    if "full" in str(error):
        return Exhausted(f"{place}: no space left on its disk; no backup was made, and the earlier ones are unchanged")
    return Unavailable(f"{place}: the database cannot be read ({error}); no backup was made; try again")


def _reason(error: Exception) -> str:
    return f"it cannot be copied ({error})"
