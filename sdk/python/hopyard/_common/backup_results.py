"""The interface by which the command line makes, verifies and restores backups, and the results.

The service that stores the data implements it as the plugin `appstat` of the entry-point group `hopyard.backups`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Generation:
    """One backup in a target.

    Attributes:
        number: Its number in the target: 1, 2, 3, ...
        taken_at: Time of the state that it contains, in seconds since the Unix epoch.
        cluster: Id of the cluster.
        database_bytes: Size of the database in bytes.
        blobs: Number of its blobs (snapshots and code).
        blob_bytes: Their total size in bytes. Generations share blobs.
    """

    number: int
    taken_at: float
    cluster: str
    database_bytes: int
    blobs: int
    blob_bytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The generations of a target.

    Attributes:
        generations: Those whose manifests can be read, oldest first.
        damage: One sentence for each manifest that is missing or damaged, and for a damaged head file.
    """

    generations: tuple[Generation, ...]
    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackupResult:
    """The result of a backup.

    Attributes:
        generation: The new generation.
        copied_blobs: Number of blobs that were copied; the target had the others.
        copied_bytes: Number of bytes that were copied: blobs and database.
        lost: One sentence for each blob that the database lists and the backup lacks, because the store had lost it, or it is damaged
            or cannot be read.
        damaged: One sentence for each damaged stream of the journal, with the record, what a restore of this backup has to expect, and
            which older generation has the stream undamaged.
        replaced: Paths of files in the target that were damaged and were replaced by undamaged copies.
        deleted: Numbers of the older generations that were deleted: none if something is lost or damaged.
        freed_bytes: Size of the files that were deleted, in bytes.
        on_nodes_only: Number of jobs of unfinished experiments whose newest snapshot only nodes have, so that it is not in the backup.
    """

    generation: Generation
    copied_blobs: int
    copied_bytes: int
    lost: tuple[str, ...]
    damaged: tuple[str, ...]
    replaced: tuple[str, ...]
    deleted: tuple[int, ...]
    freed_bytes: int
    on_nodes_only: int


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading a whole target.

    Attributes:
        generations: The generations whose manifests could be read, oldest first.
        damage: Each damage in one sentence; empty: none was found.
        notes: What could not be checked, or was lost before the backup.
        records: Number of journal records whose checksums were compared.
        read_bytes: Number of bytes that were read.
    """

    generations: tuple[Generation, ...]
    damage: tuple[str, ...]
    notes: tuple[str, ...]
    records: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of a restore.

    Attributes:
        generation: The generation.
        data: The new data directory.
        cluster: Id of the cluster in it.
        missing: Blobs that the database lists and the directory does not have; one sentence for each.
        damaged: One sentence for each damaged stream of the journal, as in `BackupResult`.
    """

    generation: Generation
    data: Path
    cluster: str
    missing: tuple[str, ...]
    damaged: tuple[str, ...]


class Backups(Protocol):
    """Makes, reads and restores backups. All methods block, and raise errors of `hopyard.errors` or OSError."""

    def create(self, data: Path, target: Path, keep: int | None, note: Callable[[str], None]) -> BackupResult:
        """Add a backup of the data directory `data` to the folder `target`. The cluster may run.

        Args:
            data: The data directory.
            target: The folder, which is created if it is missing.
            keep: Number of generations to keep, the new one included; None: all.
            note: Called with messages about the progress.

        Raises:
            NotFound: There is no database in the data directory.
            Conflict: The target has backups of another cluster, or is in use.
            InvalidInput: The target is no folder of backups.
            DataLoss: The database is damaged. No generation is added.
            Exhausted: The disk is full. No generation is added.
        """

    def generations(self, target: Path) -> Listing:
        """Return the generations in the folder `target`, and what is damaged.

        Raises:
            NotFound: The folder is not one of backups.
        """

    def verify(self, target: Path, number: int | None, note: Callable[[str], None]) -> Verification:
        """Read everything in the folder `target`, or what one generation needs, and compare all checksums.

        Args:
            target: The folder.
            number: The number of the generation; None: all.
            note: Called with messages about the progress.

        Raises:
            NotFound: There is no backup, or no such generation.
        """

    def restore(
        self,
        target: Path,
        data: Path,
        *,
        number: int | None,
        as_copy: bool,
        new_tokens: bool,
        force: bool,
        note: Callable[[str], None],
    ) -> Restoration:
        """Make a new data directory of a generation.

        Args:
            target: The folder with the backups.
            data: The data directory to make. It must be missing or empty.
            number: The number of the generation; None: the newest.
            as_copy: Whether the directory gets a new cluster id and new tokens, for a second cluster beside the first.
            new_tokens: Whether the directory gets new tokens.
            force: Whether to leave out blobs that are missing, damaged or unreadable in the target. Otherwise they are an error.
            note: Called with messages about the progress.

        Raises:
            NotFound: There is no backup, or no such generation.
            Conflict: The data directory has data, or another restore writes to it.
            DataLoss: Something in the backup is damaged. Nothing is restored.
            Exhausted: The disk is full. Nothing is restored.
        """
