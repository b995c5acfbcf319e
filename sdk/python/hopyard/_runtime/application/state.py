"""Saves and loads snapshots for training programs that leave packing, hashing and verification to their agent."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from hopyard._common.private_files import private_opener
from hopyard._runtime.snapshot_file import (
    SnapshotCorruptError,
    SnapshotFileError,
    SnapshotFileInfo,
    hash_file,
    pack_entry,
)
from hopyard._runtime.snapshot_folder import hash_folder, loadable, remove, settle
from hopyard.errors import DataLoss, InvalidInput, NotFound


def named(snapshot: Path) -> SnapshotFileInfo:
    """Return the hash and size of a snapshot, a folder or a packed file, computed from its present contents.

    Raises:
        SnapshotFileError, OSError: The snapshot cannot be read.
    """
    return hash_folder(snapshot) if snapshot.is_dir() else hash_file(snapshot)


def save_bytes(chunks: Iterable[bytes], snapshots: Path) -> SnapshotFileInfo:
    """Store bytes as a snapshot file, named by its hash, and return the hash and size.

    If a file with this hash exists already, it is kept. The file is not flushed to disk.

    Args:
        chunks: The bytes in order.
        snapshots: Folder of the snapshots.

    Raises:
        OSError: Writing failed.
    """
    partial = snapshots / f".{uuid.uuid4().hex}.saving"
    try:
        with open(partial, "xb", opener=private_opener) as file:
            file.writelines(chunks)
        info = hash_file(partial)
        settle(partial, snapshots / info.sha256)
    finally:
        remove(partial)
    return info


def save_entry(entry: Path, snapshots: Path) -> SnapshotFileInfo:
    """Pack a file or folder as a snapshot file, named by its hash, and return the hash and size.

    If a file with this hash exists already, it is kept. The file is not flushed to disk: after a power failure it may be damaged,
    which its hash reveals.

    Args:
        entry: File or folder to pack.
        snapshots: Folder of the snapshots.

    Raises:
        InvalidInput: The path is not absolute, or contains something that a snapshot may not contain.
        NotFound: The file or folder does not exist.
        OSError: Reading or writing failed otherwise.
    """
    if not entry.is_absolute():
        raise InvalidInput(f"path: found {str(entry)!r}, allowed is an absolute path of a file or folder")
    partial = snapshots / f".{uuid.uuid4().hex}.saving"
    try:
        info = pack_entry(entry, partial, durable=False)
        settle(partial, snapshots / info.sha256)
    except SnapshotFileError as error:
        raise InvalidInput(f"path: {error}") from error
    except FileNotFoundError as error:
        raise NotFound(f"path: there is no {entry}") from error
    finally:
        remove(partial)
    return info


def load_folder(snapshot: Path, sha256: str, folder: Path) -> None:
    """Verify a snapshot and write its contents to a new folder.

    Args:
        snapshot: The snapshot, a folder or a packed file.
        sha256: Hash of the snapshot.
        folder: Absolute path of the target, which must not exist; its parent must.

    Raises:
        InvalidInput: `folder` is not absolute, exists or has no parent folder; or the snapshot cannot be unpacked.
        NotFound: The snapshot is no longer on this node.
        DataLoss: The snapshot is damaged.
    """
    if not folder.is_absolute() or folder.exists() or not folder.parent.is_dir():
        raise InvalidInput(
            f"folder: found {str(folder)!r}, allowed is an absolute path of a folder that is not there, in one that is"
        )
    try:
        found = loadable(snapshot, sha256, folder)
        if found != folder:
            shutil.copytree(found, folder)
    except SnapshotCorruptError as error:
        raise DataLoss(f"snapshot {sha256} is damaged: {error}") from error
    except SnapshotFileError as error:
        raise InvalidInput(f"snapshot {sha256}: {error}") from error
    except FileNotFoundError as error:
        raise NotFound(f"snapshot {sha256} is not on this node any more") from error
