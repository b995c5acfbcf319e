"""The target of backups: a folder with the generations of one cluster.

A generation exists when its manifest is written, which happens after everything that it lists is on the disk. A manifest is deleted
before what it lists. A process that is killed at any moment therefore leaves only complete generations, and files that no generation
needs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from hopyard._common.private_files import check_own_folder, make_private_folder, open_private
from hopyard.errors import Conflict, DataLoss, InvalidInput, NotFound
from hopyard_appstat.backup.files import blob_path, plain_size, sync
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.sealed_json import read_sealed, write_sealed

HEAD: Final = "hopyard-backup.json"

_USE: Final = (
    "its backups can still be restored (`hopyard backup list` names them); make further backups in another folder"
)
_LOCK: Final = "lock"
_FOLDERS: Final = ("generations", "databases", "blobs", "incoming")
_MANIFEST: Final = re.compile(r"([1-9][0-9]{0,9})\.json")
_BLOB: Final = re.compile(r"[0-9a-f]{64}")
_DATABASE: Final = re.compile(r"([0-9a-f]{64})\.sqlite")


class Target:
    """An open target, which is locked. Close it, or use it as a context manager.

    Create it with `create` or `open`.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: Path, cluster: str) -> Self:
        """Open a target to add a generation. A missing or empty folder becomes one. Files of a killed process are deleted.

        Args:
            path: The folder.
            cluster: Id of the cluster whose backups it contains.

        Raises:
            InvalidInput: The folder contains something else, or other users could read or replace it.
            Conflict: It has backups of another cluster, or another process uses it.
            DataLoss: One of its folders is a link, or its head file is missing or damaged.
            OSError: It cannot be written.
        """
        if not (path / HEAD).exists() and (path / "generations").is_dir():
            raise DataLoss(_missing(path))
        if path.is_dir() and not (path / HEAD).exists():
            _refuse_other_content(path)
        make_private_folder(path)
        target = cls(path, _locked(path, exclusive=True))
        try:
            if not (path / HEAD).exists():
                _refuse_other_content(path)
                target._write_head(cluster, ())
            target._check_folders(make=True)
            target.check_cluster(cluster)
            for left in (path / "incoming").iterdir():
                left.unlink()
            for left in (*path.glob(".*.partial"), *path.glob("generations/.*.partial")):
                left.unlink()
        except BaseException:
            target.close()
            raise
        return target

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a target to read it.

        Raises:
            NotFound: There is no backup in the folder.
            InvalidInput: Another user could change the folder.
            Conflict: A backup writes to it now.
            DataLoss: One of its folders is a link.
        """
        check_own_folder(path)
        if not (path / HEAD).exists() and not (path / "generations").is_dir():
            raise NotFound(f"{path}: there is no backup here; `hopyard backup create {path}` makes one")
        target = cls(path, _locked(path, exclusive=False))
        try:
            target._check_folders(make=False)
        except BaseException:
            target.close()
            raise
        return target

    def close(self) -> None:
        """Release the lock. Safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- generations

    def numbers(self) -> list[int]:
        """Return the numbers of the generations whose manifests are there, in ascending order."""
        found = [_MANIFEST.fullmatch(path.name) for path in self._entries("generations")]
        return sorted(int(match[1]) for match in found if match is not None)

    def expected(self) -> list[int]:
        """Return the numbers of the generations that the head lists. Errors as for `read_sealed`, and DataLoss if there is no head."""
        return self._head()[1]

    def manifest(self, number: int) -> BackupManifest:
        """Return the manifest of a generation.

        Raises:
            NotFound: There is no such generation. The message lists those that exist.
            DataLoss: The manifest was changed, or cannot be read.
            Conflict: The manifest has another format version.
        """
        path = self.manifest_path(number)
        try:
            found = BackupManifest.read(path)
        except FileNotFoundError as error:
            there = ", ".join(map(str, self.numbers())) or "none"
            raise NotFound(f"{self.path}: there is no generation {number}; there are: {there}") from error
        if found.number != number:
            raise DataLoss(f"{path}: is the manifest of generation {found.number}")
        return found

    def next_number(self) -> int:
        """Return the number of the next generation. Errors as for `expected`."""
        return max({*self.expected(), *self.numbers()}, default=0) + 1

    def add(self, manifest: BackupManifest) -> None:
        """Add a generation, whose files are complete and on the disk."""
        manifest.write(self.manifest_path(manifest.number))
        self._write_head(manifest.cluster, sorted({*self.expected(), *self.numbers()}))

    def prune(self, keep: int | None) -> tuple[list[int], int]:
        """Delete all but the newest `keep` generations (None: none), and all files that no generation needs.

        If a manifest is missing or cannot be read, nothing is deleted, because its files are unknown.

        Returns:
            The numbers of the deleted generations, and how many bytes of databases and blobs were deleted.
        """
        cluster, expected = self._head()
        there = self.numbers()
        numbers = sorted({*expected, *there})
        kept = numbers if keep is None else numbers[-keep:]
        try:
            manifests = [self.manifest(number) for number in kept]
        except (NotFound, DataLoss, Conflict):
            return [], 0
        gone = [number for number in there if number not in kept]
        if kept != expected:
            self._write_head(cluster, kept)
        for number in gone:
            self.manifest_path(number).unlink()
        sync(self.path / "generations")
        return gone, self._sweep(manifests)

    def check_cluster(self, cluster: str) -> None:
        """Raise Conflict if the target has backups of another cluster than `cluster`. Errors as for `expected`."""
        owner = self._head()[0]
        if owner != cluster:
            raise Conflict(
                f"{self.path}: has backups of cluster {owner}, and the data directory belongs to cluster {cluster}; choose another "
                "folder"
            )

    # ---------------------------------------------------------------------------------------------------------- files

    def manifest_path(self, number: int) -> Path:
        """Return the path of the manifest of a generation."""
        return self.path / "generations" / f"{number}.json"

    def database_path(self, sha256: str) -> Path:
        """Return the path of the copy of a database."""
        return self.path / "databases" / f"{sha256}.sqlite"

    def blob_path(self, sha256: str) -> Path:
        """Return the path of a blob."""
        return blob_path(self.path / "blobs", sha256)

    def incoming_path(self, name: str) -> Path:
        """Return the path for a file that is being written."""
        return self.path / "incoming" / name

    def has(self, sha256: str, size: int) -> bool:
        """Return whether the target has a blob with this size. Its bytes are not read."""
        return plain_size(self.blob_path(sha256)) == size

    def _sweep(self, manifests: Iterable[BackupManifest]) -> int:
        blobs, databases = set[str](), set[str]()
        for one in manifests:
            blobs.update(one.blobs)
            databases.add(one.database_sha256)
        freed = 0
        for path in self._entries("databases"):
            match = _DATABASE.match(path.name)
            if match is not None and match[1] not in databases:
                freed += _deleted(path)
        for folder in self._entries("blobs"):
            if folder.is_symlink() or not folder.is_dir():
                continue
            for path in folder.iterdir():
                if _BLOB.fullmatch(path.name) and path.name not in blobs:
                    freed += _deleted(path)
            with suppress(OSError):
                folder.rmdir()  # Only an empty one.
        return freed

    def _entries(self, folder: str) -> list[Path]:
        try:
            return sorted((self.path / folder).iterdir())
        except FileNotFoundError:
            return []

    def _head(self) -> tuple[str, list[int]]:
        path = self.path / HEAD
        try:
            found = read_sealed(path)
            return str(found["cluster"]), [int(number) for number in found["generations"]]
        except FileNotFoundError as error:
            raise DataLoss(_missing(self.path)) from error
        except DataLoss as error:
            raise DataLoss(f"{error}; {_USE}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DataLoss(f"{path}: is damaged: it is the file of something else; {_USE}") from error

    def _write_head(self, cluster: str, numbers: Iterable[int]) -> None:
        write_sealed(self.path / HEAD, {"cluster": cluster, "generations": list(numbers)})

    def _check_folders(self, *, make: bool) -> None:
        for name in _FOLDERS:
            folder = self.path / name
            if folder.is_symlink():
                raise DataLoss(f"{folder}: found a link, needed a folder")
            if make:
                make_private_folder(folder)


def _missing(path: Path) -> str:
    return f"{path / HEAD}: is missing; {_USE}"


def _refuse_other_content(path: Path) -> None:
    other = sorted(one.name for one in path.iterdir() if one.name != _LOCK and not one.name.endswith(".partial"))
    if other:
        raise InvalidInput(
            f"{path}: is neither empty nor a folder of backups (found {other[0]}); name a new folder for the backups"
        )


def _locked(path: Path, *, exclusive: bool) -> int:
    """Lock a target without waiting, and return the descriptor of the lock; -1: it needs none, because the folder cannot be written."""
    file = path / _LOCK
    try:
        descriptor = open_private(file, os.O_RDWR)
    except OSError as error:
        if exclusive or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return -1
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        who = "another command uses it" if exclusive else "a backup writes to it"
        raise Conflict(f"{path}: {who} now; try again when it has ended") from error
    return descriptor


def _deleted(path: Path) -> int:
    size = plain_size(path) or 0
    path.unlink()
    return size
