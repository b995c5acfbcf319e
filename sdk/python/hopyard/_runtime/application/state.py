"""State of a process that leaves packing, naming and verifying it to its agent."""

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
    """The hash and size of a snapshot, a folder or a packed file, as it is now.

    Raises:
        SnapshotFileError, OSError: It is nothing that can be read as one.
    """
    return hash_folder(snapshot) if snapshot.is_dir() else hash_file(snapshot)


def save_bytes(chunks: Iterable[bytes], snapshots: Path) -> SnapshotFileInfo:
    """Put bytes into the folder of snapshots, where their hash names them."""
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
    """Pack a file or folder into the folder of snapshots, where its hash names it.

    Nobody waits for the disk, as when a process packs by itself (`hopyard._runtime.runner.boundary`).

    Raises:
        InvalidInput: The path is not absolute, or holds what no snapshot may.
        NotFound: There is nothing.
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
    """Put what a snapshot holds into a folder of its own, verified.

    Raises:
        InvalidInput: The folder's path is not absolute, is there, or lies nowhere; or the snapshot holds what cannot be unpacked.
        NotFound: The snapshot is gone.
        DataLoss: It is damaged.
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
