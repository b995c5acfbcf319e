"""Makes a new data directory of a backup.

Everything is written into a hidden folder beside the new data directory, which is renamed at the end. A process that is killed at any
moment leaves no incomplete data directory. The next restore deletes what it left in the hidden folder.

The restored database gets a new history id and an epoch beyond all earlier ones. A scheduler that still runs with the lost database can
therefore not write to the restored one. An agent with another history id discards its runs, which the restored database does not know.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import func, select, update

from hopyard._common import formatting
from hopyard._common.backup_results import Restoration
from hopyard._common.private_files import make_private_folder, open_private, write_private
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard.errors import Conflict, DataLoss, Exhausted, InvalidInput, NotFound
from hopyard_appstat.backup.files import blob_path, copy, one_contains_other, opened, sync
from hopyard_appstat.backup.generations import has_database, named, readable_manifests
from hopyard_appstat.backup.journal_check import check_journal, consequences
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target
from hopyard_appstat.backup.views import generation_of, lost_blob
from hopyard_appstat.blobs.cluster_id import STORE, claim_store
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.schema import clusters, epochs
from hopyard_appstat.migrations.migrate import migrate

_LOCK: Final = "cluster.lock"
"""The file that marks a folder as a data directory, and locks it."""

_MOST_NAMED: Final = 10


def restore(
    folder: Path,
    data: Path,
    *,
    number: int | None,
    as_copy: bool,
    new_tokens: bool,
    force: bool,
    note: Callable[[str], None],
) -> Restoration:
    """Make a new data directory of a generation; see `hopyard._common.backup_results.Backups.restore`."""
    data = Path(os.path.abspath(data))
    if one_contains_other(folder, data):
        raise InvalidInput(
            f"{data}: is not separate from the backup {folder}: one contains the other; choose another --data"
        )
    with Target.open(folder) as target:
        manifest = _chosen(target, number)
        _check_free(data)
        with _temporary(data) as made:
            note(f"copying the database of generation {manifest.number}")
            _restore_database(target, manifest, made)
            note(f"copying {formatting.count(len(manifest.blobs), 'blob')} ({formatting.size(manifest.blob_bytes)})")
            missing = [lost_blob(*lost) for lost in manifest.lost.items()]
            missing += _restore_blobs(target, manifest, made, force=force)
            cluster = _begin_history(made, target, manifest, as_copy=as_copy)
            note("comparing the checksums of the journal")
            journal = check_journal(made / "appstat.sqlite")
            claim_store(made / STORE, cluster, adopt=True)
            if not (as_copy or new_tokens):
                _restore_secrets(manifest, made)
            for changed in (made / STORE, made):
                sync(changed)
            damaged = consequences(target, manifest.number, journal.damaged)
            _rename(made, data)
    return Restoration(generation_of(manifest), data, cluster, tuple(missing), damaged)


def _chosen(target: Target, number: int | None) -> BackupManifest:
    if number is not None:
        return target.manifest(number)
    numbers = target.numbers()
    if not numbers:
        raise NotFound(f"{target.path}: has no generation; `hopyard backup create {target.path}` makes one")
    try:
        newest = max([*numbers, *target.expected()])
    except (DataLoss, Conflict):
        newest = max(numbers)
    try:
        return target.manifest(newest)
    except (NotFound, DataLoss) as error:
        raise DataLoss(f"{error}; name an older one with --generation ({', '.join(map(str, numbers))})") from error


def _check_free(data: Path) -> None:
    """Raise Conflict unless nothing or an empty folder is at the path of the new data directory."""
    if data.is_symlink() or (data.exists() and not data.is_dir()):
        raise InvalidInput(f"{data}: found something that is not a folder; choose another --data")
    if data.is_dir() and (entries := sorted(os.listdir(data))):
        raise Conflict(
            f"{data}: is not empty (found {entries[0]}); a restore makes a new data directory. Stop the cluster and move the old "
            f"directory away (`mv {data} {data}.old`), or choose another --data"
        )


@contextmanager
def _temporary(data: Path) -> Iterator[Path]:
    """Make the hidden folder, locked, and delete it at an error. What a killed restore left in it is deleted first.

    Raises:
        Conflict: Another restore writes to it.
        Exhausted: The disk is full.
    """
    made = data.parent / f".{data.name}.restore"
    make_private_folder(made)
    # Renamed with the folder, it keeps a cluster from starting before the restore has ended.
    lock = open_private(made / _LOCK, os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = _locks(lock, made)
        except BlockingIOError:
            mine = False
        if not mine:  # Another restore has the lock, or had it and has renamed the folder.
            raise Conflict(f"{data}: another restore makes this data directory now")
        try:
            _clear(made)
            yield made
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Exhausted(f"{data}: no space left on its disk; nothing was restored; make room there") from error
            raise
        finally:
            # Not if it was renamed: another restore may have made a new one.
            if _locks(lock, made):
                _clear(made)
                (made / _LOCK).unlink()
                with suppress(OSError):
                    made.rmdir()  # Another restore may use it already.
    finally:
        os.close(lock)


def _locks(lock: int, folder: Path) -> bool:
    """Return whether a descriptor is that of the lock file in a folder."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK))
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    """Delete everything in a folder but its lock file."""
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif left.name != _LOCK:
            left.unlink()


def _restore_database(target: Target, manifest: BackupManifest, made: Path) -> None:
    path = target.database_path(manifest.database_sha256)
    try:
        with opened(path) as file:
            found, _ = copy(file, path, made / "appstat.sqlite")
    except FileNotFoundError as error:
        who, advice = _alternatives(target, manifest)
        raise DataLoss(f"{path}: the database of {who} is missing; {advice}") from error
    except DataLoss as error:
        who, advice = _alternatives(target, manifest)
        raise DataLoss(f"{error}; it is the database of {who}; {advice}") from error
    if found != manifest.database_sha256:
        who, advice = _alternatives(target, manifest)
        raise DataLoss(f"{path}: the database of {who} is damaged: its bytes have another hash; {advice}")


def _alternatives(target: Target, manifest: BackupManifest) -> tuple[str, str]:
    """Return the name of all generations that share the unusable database of one, and the advice which other one to restore."""
    manifests, _ = readable_manifests(target, target.numbers(), same_cluster=False)
    sharing = [one.number for one in manifests if one.database_sha256 == manifest.database_sha256]
    others = [one for one in reversed(manifests) if one.number not in sharing]
    intact = next((one.number for one in others if has_database(target, one.database_sha256)), None)
    if intact is None:
        return named(sharing), "nothing was restored; no other generation in this folder has an undamaged database"
    return named(sharing), (
        f"nothing was restored; generation {intact} is the newest with an undamaged database: `hopyard restore {target.path} "
        f"--generation {intact}`"
    )


def _restore_blobs(target: Target, manifest: BackupManifest, made: Path, *, force: bool) -> list[str]:
    """Copy the blobs. If some are missing, damaged or unreadable, return a sentence about each; without `force`, raise DataLoss."""
    wrong, folders = list[str](), set[Path]()
    (made / STORE).mkdir(mode=0o700)
    for sha256 in manifest.blobs:
        path = blob_path(made / STORE, sha256)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        folders.add(path.parent)
        source = target.blob_path(sha256)
        try:
            with opened(source) as blob:
                found, _ = copy(blob, source, path)
        except FileNotFoundError:
            wrong.append(f"{source}: is missing")
            continue
        except DataLoss as error:
            wrong.append(str(error))
            continue
        if found != sha256:
            path.unlink()
            wrong.append(f"{source}: is damaged: its bytes have another hash")
    if wrong and not force:
        listed = "; ".join(wrong[:_MOST_NAMED]) + ("; ..." if len(wrong) > _MOST_NAMED else "")
        raise DataLoss(
            f"{len(wrong)} of {len(manifest.blobs)} blobs cannot be restored: {listed}. Nothing was restored; restore another "
            "generation (`hopyard backup list`), or leave them out with --force: jobs that need them then continue from older snapshots"
        )
    for folder in sorted(folders):
        sync(folder)
    return wrong


def _begin_history(made: Path, target: Target, manifest: BackupManifest, *, as_copy: bool) -> str:
    """Upgrade the restored database, give it a new history and an epoch beyond all earlier ones, and return its cluster id."""
    database = open_database(database_url(None, made))
    try:
        migrate(database.writer)
        with database.writer.begin() as connection:
            cluster = uuid.uuid4().hex if as_copy else manifest.cluster
            connection.execute(update(clusters).values(id=cluster, history=uuid.uuid4().hex))
            newest = connection.scalar(select(func.max(epochs.c.epoch))) or 0
            # Milliseconds: beyond the epochs that any cluster reaches by counting, and those of earlier restores.
            epoch = max(newest + 1, int(time.time() * 1000))
            holder = f"the restore of generation {manifest.number} of {target.path} on {socket.gethostname()}"
            connection.execute(epochs.insert().values(epoch=epoch, holder=holder, began_at=time.time()))
    finally:
        database.close()
    file = made / "appstat.sqlite"
    sync(file)
    return cluster


def _restore_secrets(manifest: BackupManifest, made: Path) -> None:
    if not manifest.secrets:
        return
    folder = made / SECRETS
    make_private_folder(folder)
    for name, content in manifest.secrets.items():
        if "/" in name or name.startswith("."):
            raise DataLoss(f"the manifest of generation {manifest.number} names a token file {name!r}")
        write_private(folder / name, content.encode("utf-8", "surrogateescape"))


def _rename(made: Path, data: Path) -> None:
    try:
        os.rename(made, data)  # An empty folder is replaced.
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise Conflict(f"{data}: is not empty any more; nothing was restored") from error
        raise
    sync(data.parent)
