"""Reads everything in a target, compares all checksums, and names each damage."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

from hopyard._common.backup_results import Verification
from hopyard.errors import DataLoss, HopyardError, NotFound
from hopyard_appstat.backup.files import hash_of
from hopyard_appstat.backup.generations import expected_numbers, readable_manifests
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target
from hopyard_appstat.backup.views import generation_of, lost_blob
from hopyard_appstat.database.read_only import read_only_connection, read_only_engine
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.migrations.migrate import NEWEST
from hopyard_appstat.pagination import PageRequest

_REPLACE = "the next backup copies it again, if the cluster still has it"


class _Findings:
    """What was found so far.

    Attributes:
        damage: Each damage in one sentence.
        notes: Further sentences.
        records: Number of journal records whose checksums were compared.
        size: Number of bytes that were read.
    """

    def __init__(self) -> None:
        self.damage: list[str] = []
        self.notes: list[str] = []
        self.records = 0
        self.size = 0


def verify(folder: Path, number: int | None, note: Callable[[str], None]) -> Verification:
    """Read everything in a target; see `hopyard._common.backup_results.Backups.verify`."""
    found = _Findings()
    with Target.open(folder) as target:
        manifests = _manifests(target, number, found)
        databases = {one.database_sha256: one for one in manifests}
        for sha256, manifest in databases.items():
            note(f"reading the database of generation {manifest.number}")
            _check_database(target, sha256, manifest, found)
        blobs: dict[str, list[int]] = {}
        for one in manifests:
            found.notes += [f"generation {one.number}: {lost_blob(*lost)}" for lost in one.lost.items()]
            for sha256 in one.blobs:
                blobs.setdefault(sha256, []).append(one.number)
        if blobs:
            note(f"reading {len(blobs)} blobs")
        for sha256, needed_by in blobs.items():
            _check_blob(target, sha256, needed_by, found)
    return Verification(
        tuple(map(generation_of, manifests)), tuple(found.damage), tuple(found.notes), found.records, found.size
    )


def _manifests(target: Target, number: int | None, found: _Findings) -> list[BackupManifest]:
    """Return the manifests that can be read. Those that are missing, damaged, or of another cluster are damage."""
    wanted, damage = expected_numbers(target)
    if number is not None:
        if number not in wanted:
            target.manifest(number)  # Raises NotFound.
        wanted = {number}
    if not wanted:
        raise NotFound(f"{target.path}: has no generation; `hopyard backup create {target.path}` makes one")
    manifests, further = readable_manifests(target, wanted, same_cluster=not damage)
    found.damage += damage + further
    return manifests


def _check_database(target: Target, sha256: str, manifest: BackupManifest, found: _Findings) -> None:
    path = target.database_path(sha256)
    where = f"{path}: the database of generation {manifest.number}"
    try:
        actual = hash_of(path)
    except FileNotFoundError:
        found.damage.append(f"{where} is missing, so it cannot be restored")
        return
    except DataLoss as error:
        found.damage.append(f"{error}; it is the database of generation {manifest.number}, which cannot be restored")
        return
    found.size += path.stat().st_size
    if actual != sha256:
        found.damage.append(f"{where} is damaged: its bytes have another hash, so it cannot be restored")
        return
    try:
        with closing(read_only_connection(path, immutable=True)) as database:
            wrong = [str(row[0]) for row in database.execute("PRAGMA quick_check(10)")]
            listed = {str(row[0]) for row in database.execute("SELECT sha256 FROM blobs")}
    except sqlite3.Error as error:
        found.damage.append(f"{where} is damaged: {error}")
        return
    if wrong != ["ok"]:
        found.damage.append(f"{where} is damaged: {'; '.join(wrong)}")
    if unsaved := listed - manifest.blobs.keys() - manifest.lost.keys():
        found.damage.append(
            f"{target.manifest_path(manifest.number)}: does not list {len(unsaved)} blobs that the database needs, such as "
            f"{min(unsaved)}"
        )
    if manifest.revision != NEWEST:
        found.notes.append(
            f"generation {manifest.number}: the checksums of its journal were not compared, because its database has the schema "
            f"revision {manifest.revision} of another version of Hopyard"
        )
        return
    asyncio.run(_check_journal(path, where, found))


async def _check_journal(path: Path, where: str, found: _Findings) -> None:
    reader = StoreReader(read_only_engine(path, immutable=True))
    try:
        async for stream in _streams(reader):
            try:
                async for records in reader.read_journal(stream):
                    found.records += len(records)
            except DataLoss as error:
                found.damage.append(f"{where}: {error}")
            except (
                TypeError,
                ValueError,
                OverflowError,
                struct.error,
            ) as error:  # A value has another type than its column.
                found.damage.append(f"{where}: journal of {stream}: cannot be read: {error}")
    except HopyardError as error:
        found.damage.append(f"{where} cannot be read: {error}")
    finally:
        reader.release()


async def _streams(reader: StoreReader) -> AsyncIterator[str]:
    token = ""
    while True:
        page = await reader.list_streams(PageRequest.of(0, token, "streams"))
        for row in page.items:
            yield row["stream"]
        token = page.next_token
        if not token:
            return


def _check_blob(target: Target, sha256: str, needed_by: list[int], found: _Findings) -> None:
    path = target.blob_path(sha256)
    who = f"needed by generation{'s' if len(needed_by) > 1 else ''} {', '.join(map(str, needed_by))}"
    try:
        actual = hash_of(path)
    except FileNotFoundError:
        found.damage.append(f"{path}: is missing, {who}; {_REPLACE}")
        return
    except DataLoss as error:
        found.damage.append(f"{error}; {who}; delete it, and {_REPLACE}")
        return
    found.size += path.stat().st_size
    if actual != sha256:
        found.damage.append(f"{path}: is damaged: its bytes have another hash; {who}; delete it, and {_REPLACE}")
