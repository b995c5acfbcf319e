"""Saves and loads snapshots for programs that leave packing, hashing and verification to their agent."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

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
    """Returns the present hash and size of a snapshot, which is a folder or a packed file.

    Raises:
        SnapshotFileError, OSError: The snapshot cannot be read.
    """
    return hash_folder(snapshot) if snapshot.is_dir() else hash_file(snapshot)


def save_bytes(chunks: Iterable[bytes], snapshots: Path) -> SnapshotFileInfo:
    """Stores bytes as a snapshot in the folder `snapshots` under their hash; returns hash and size."""
    partial = snapshots / f".{uuid.uuid4().hex}.saving"
    try:
        with partial.open("xb") as file:
            file.writelines(chunks)
        info = hash_file(partial)
        settle(partial, snapshots / info.sha256)
    finally:
        remove(partial)
    return info


def save_entry(entry: Path, snapshots: Path) -> SnapshotFileInfo:
    """Packs a file or folder into the folder `snapshots` under the hash of the archive; returns hash and size.

    It does not flush to disk, like a process that packs itself (`hopyard._runtime.runner.boundary`).

    Raises:
        InvalidInput: The path is not absolute, or contains something that a snapshot may not contain.
        NotFound: The file or folder does not exist.
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
    """Verifies a snapshot and writes its contents to `folder`, which must not exist yet.

    Raises:
        InvalidInput: The path of the folder is not absolute, exists, or has no parent folder; or the snapshot cannot be
            unpacked.
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
