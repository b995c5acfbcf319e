"""Reads everything in a target, compares all checksums, and names each damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from hopyard._common import formatting
from hopyard._common.backup_results import Verification
from hopyard.errors import DataLoss, NotFound
from hopyard_appstat.backup.files import hash_of
from hopyard_appstat.backup.generations import expected_numbers, named, readable_manifests
from hopyard_appstat.backup.journal_check import check_journal
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target
from hopyard_appstat.backup.views import generation_of, lost_blob
from hopyard_appstat.database.read_only import read_only_connection
from hopyard_appstat.migrations.migrate import NEWEST

_REPLACE = "the next backup copies it again, if the cluster still has it"


class _Findings:
    """What was found so far.

    Attributes:
        damage: Each damage in one sentence.
        harmed: Numbers of the generations that need something damaged.
        notes: Further sentences.
        records: Number of journal records whose checksums were compared.
        size: Number of bytes that were read.
    """

    def __init__(self) -> None:
        self.damage: list[str] = []
        self.notes: list[str] = []
        self.harmed = set[int]()
        self.records = 0
        self.size = 0

    def add(self, sentence: str, numbers: Iterable[int]) -> None:
        """Add a damage of something that these generations need."""
        self.damage.append(sentence)
        self.harmed.update(numbers)


def verify(folder: Path, number: int | None, note: Callable[[str], None]) -> Verification:
    """Read everything in a target; see `hopyard._common.backup_results.Backups.verify`."""
    found = _Findings()
    with Target.open(folder) as target:
        manifests = _manifests(target, number, found)
        databases: dict[str, list[BackupManifest]] = {}
        for one in manifests:
            databases.setdefault(one.database_sha256, []).append(one)
        for sha256, sharing in databases.items():
            note(f"reading the database of {named(one.number for one in sharing)}")
            _check_database(target, sha256, sharing, found)
        blobs: dict[str, list[int]] = {}
        for one in manifests:
            found.notes += [f"generation {one.number}: {lost_blob(*lost)}" for lost in one.lost.items()]
            for sha256 in one.blobs:
                blobs.setdefault(sha256, []).append(one.number)
        if blobs:
            note(f"reading {formatting.count(len(blobs), 'blob')}")
        for sha256, needed_by in blobs.items():
            _check_blob(target, sha256, needed_by, found)
        if found.damage and number is None:
            found.notes.append(_newest_intact(target, manifests, found))
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


def _check_database(target: Target, sha256: str, sharing: list[BackupManifest], found: _Findings) -> None:
    """Check a copy of a database, and the manifests of the generations that share it."""
    path, numbers = target.database_path(sha256), [one.number for one in sharing]
    where = f"{path}: the database of {named(numbers)}"
    try:
        actual = hash_of(path)
    except FileNotFoundError:
        found.add(f"{where} is missing, so it cannot be restored", numbers)
        return
    except DataLoss as error:
        found.add(f"{error}; it is the database of {named(numbers)}, which cannot be restored", numbers)
        return
    found.size += path.stat().st_size
    if actual != sha256:
        found.add(f"{where} is damaged: its bytes have another hash, so it cannot be restored", numbers)
        return
    try:
        with closing(read_only_connection(path, immutable=True)) as database:
            wrong = [str(row[0]) for row in database.execute("PRAGMA quick_check(10)")]
            listed = {str(row[0]) for row in database.execute("SELECT sha256 FROM blobs")}
    except sqlite3.Error as error:
        found.add(f"{where} is damaged: {error}", numbers)
        return
    if wrong != ["ok"]:
        found.add(f"{where} is damaged: {'; '.join(wrong)}", numbers)
    for manifest in sharing:
        if unsaved := listed - manifest.blobs.keys() - manifest.lost.keys():
            found.add(
                f"{target.manifest_path(manifest.number)}: does not list {formatting.count(len(unsaved), 'blob')} that the database "
                f"needs, such as {min(unsaved)}",
                [manifest.number],
            )
    if (revision := sharing[0].revision) != NEWEST:
        found.notes.append(
            f"{named(numbers)}: the checksums of the journal were not compared, because the database has the schema revision "
            f"{revision} of another version of Hopyard"
        )
        return
    try:
        journal = check_journal(path)
    except DataLoss as error:
        found.add(f"{where} is damaged: {error}", numbers)
        return
    found.records += journal.records
    for what in journal.damaged.values():
        found.add(f"{where}: {what}", numbers)


def _newest_intact(target: Target, manifests: list[BackupManifest], found: _Findings) -> str:
    """Return the sentence about the newest generation without damage."""
    intact = [one.number for one in manifests if one.number not in found.harmed]
    if not intact:
        return "no generation is without damage"
    return f"generation {intact[-1]} is the newest without damage: `hopyard restore {target.path} --generation {intact[-1]}`"


def _check_blob(target: Target, sha256: str, needed_by: list[int], found: _Findings) -> None:
    path = target.blob_path(sha256)
    who = f"needed by {named(needed_by)}"
    try:
        actual = hash_of(path)
    except FileNotFoundError:
        found.add(f"{path}: is missing, {who}; {_REPLACE}", needed_by)
        return
    except DataLoss as error:
        found.add(f"{error}; {who}; delete it, and {_REPLACE}", needed_by)
        return
    found.size += path.stat().st_size
    if actual != sha256:
        found.add(f"{path}: is damaged: its bytes have another hash; {who}; delete it, and {_REPLACE}", needed_by)
