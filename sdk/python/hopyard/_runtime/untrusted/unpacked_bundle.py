"""The unpacked files of a bundle: compares them with the bundle before code is executed, and repairs what differs.

A file agrees with the bundle if it is a regular file with the recorded content and mode. Folders must be real and private. In addition
to the files of the bundle, only what Python cannot import may be there, such as data that a program has saved next to its code. Byte
code in `__pycache__` is removed without a message: Python writes it, and it could be that of other source files.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard._common.private_files import FOLDER_MODE
from hopyard._runtime.bundle import BundleFile, extract, file_mode, make_folders, unpack

SETTLED_SECONDS: Final = 2.0
"""Minimum age of the last change of a file at the time of its hashing, for its hash to be cached. The clock of the times of files is
coarse, so a second change shortly after the first one may not be visible in them."""

ALWAYS_HASHED_BYTES: Final = 1024 * 1024
ALWAYS_HASHED_FILES: Final = 200
"""Size and number of files up to which a bundle is hashed at each comparison, because that takes a few milliseconds at most."""

_BYTE_CODE: Final = "__pycache__"
_IMPORTABLE: Final = tuple(importlib.machinery.all_suffixes())
_BLOCK: Final = 1024 * 1024

_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class BundleDifference:
    """A place in the folder that does not agree with the bundle.

    Attributes:
        path: The path relative to the folder; empty: the folder itself.
        found: What is wrong, such as "its content differs".
        extra: Whether the bundle has nothing at this path.
    """

    path: str
    found: str
    extra: bool = False

    def __str__(self) -> str:
        return f"{self.path or 'the folder'}: {self.found}"


class UnpackedBundle:
    """The folder into which a bundle is unpacked. The methods block: call them in a thread, and one at a time.

    Hashes of large bundles are cached by the inode, the size and the times of the last change of each file. The cache does not notice
    bytes that change below the file system, or on a network file system whose attributes are cached.

    Args:
        folder: The folder; its parent must exist.
        sha256: Hash of the bundle.
        files: The files of the bundle.
        clock: Returns nanoseconds since the Unix epoch.
    """

    def __init__(
        self, folder: Path, sha256: str, files: Mapping[str, BundleFile], *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.folder = folder
        self.files = files
        self._sha256 = sha256
        self._clock = clock
        self._folders = {"", *(parent for name in files for parent in _parents(name))}
        small = sum(one.size for one in files.values()) <= ALWAYS_HASHED_BYTES and len(files) <= ALWAYS_HASHED_FILES
        self._known: dict[str, _Stamp] | None = None if small else {}
        """The stamps of files whose content was found to agree; None: nothing is cached."""

    def differences(self) -> list[BundleDifference]:
        """Compare the folder with the bundle, and return what differs, sorted by path. Byte code that Python has written is removed.

        Raises:
            OSError: The folder cannot be read.
        """
        if not _is_folder(self.folder):
            return [BundleDifference("", "is missing" if not os.path.lexists(self.folder) else "is no folder")]
        found, closed, seen = [], [], set[str]()
        folders = [(self.folder, "")]
        while folders:
            folder, name = folders.pop()
            if name in self._folders and (mode := stat.S_IMODE(os.lstat(folder).st_mode)) != FOLDER_MODE:
                found.append(BundleDifference(name, f"its mode is {mode:o}, recorded is {FOLDER_MODE:o}"))
                if mode & FOLDER_MODE != FOLDER_MODE:  # Its entries may not be readable, and `repair` opens it first.
                    closed.append(f"{name}/" if name else "")
                    continue
            found += self._compared(folder, name, seen, folders)
        missing = self.files.keys() - seen
        found += [BundleDifference(one, "is missing") for one in missing if not any(map(one.startswith, closed))]
        return sorted(found, key=lambda one: one.path)

    def repair(self, packed: Path, found: Sequence[BundleDifference]) -> None:
        """Make the folder agree with the bundle again. Each file is replaced atomically, so that processes that read it continue.

        An interrupted repair leaves files that are right or that the next comparison finds.

        Args:
            packed: The packed bundle.
            found: What `differences` has returned.

        Raises:
            BundleCorrupt: The packed bundle is missing or does not have its hash; another copy is needed.
            BundleError: The bundle cannot be unpacked.
            OSError: A file cannot be written.
        """
        if not _is_folder(self.folder):
            _remove(self.folder)
            unpack(packed, self.folder, self._sha256)
            return
        closed = [path for one in found if one.path in self._folders and _is_closed(path := self.folder / one.path)]
        if closed:  # What is in them was not compared. Each round opens one more level of folders.
            for path in closed:
                path.chmod(FOLDER_MODE)
            self.repair(packed, self.differences())
            return
        for one in found:
            path = self.folder / one.path
            if one.path in self._folders and _is_folder(path):
                path.chmod(FOLDER_MODE)
            elif one.extra or one.path in self._folders:
                _remove(path)
        wrong = {one.path for one in found if one.path in self.files}
        lost = {name for name in self.files if any(not _is_folder(self.folder / parent) for parent in _parents(name))}
        if wrong | lost:
            extract(packed, self._sha256, wrong | lost, self._replace)

    def copy(self, target: Path) -> None:
        """Copy the files of the bundle, and nothing else, to a new folder in which they are writable.

        Args:
            target: The new folder, which must not exist.
        """
        target.mkdir(FOLDER_MODE)
        for name, one in self.files.items():
            path = target / name
            make_folders(path.parent, target)
            shutil.copyfile(self.folder / name, path, follow_symlinks=False)
            path.chmod(0o700 if one.executable else 0o600)

    def _compared(
        self, folder: Path, name: str, seen: set[str], folders: list[tuple[Path, str]]
    ) -> Iterator[BundleDifference]:
        """Compare the entries of a folder with the bundle.

        Args:
            folder: The folder.
            name: Its path in the bundle; empty: it is the whole bundle.
            seen: Gets the names of the files of the bundle that exist, whether they agree or not.
            folders: Gets the folders in the folder, with their paths in the bundle, which are to be compared next.
        """
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except (FileNotFoundError, PermissionError):
            if name in self._folders:
                raise
            return  # A folder that a running program has removed, or that nothing can be imported from.
        for entry in entries:
            path = f"{name}/{entry.name}" if name else entry.name
            if path in self.files:
                seen.add(path)
                if wrong := self._wrong(path, entry):
                    yield BundleDifference(path, wrong)
            elif entry.is_dir(follow_symlinks=False):
                if path not in self._folders and entry.name == _BYTE_CODE:
                    shutil.rmtree(entry.path, ignore_errors=True)  # Another process may write there.
                else:
                    folders.append((Path(entry.path), path))
            elif path in self._folders:
                yield BundleDifference(path, f"is {_kind(entry)}, recorded is a folder")
            elif entry.name.endswith(_IMPORTABLE) or (entry.is_symlink() and entry.is_dir()):
                yield BundleDifference(path, f"is {_kind(entry)} that the code does not have", extra=True)

    def _wrong(self, name: str, entry: os.DirEntry[str]) -> str:
        """Return what is wrong with an entry at the path of a file of the bundle; empty: it agrees."""
        expected = self.files[name]
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return "is missing"
        if not stat.S_ISREG(status.st_mode):
            return f"is {_kind(entry)}, recorded is a file"
        mode = stat.S_IMODE(status.st_mode)
        if mode != file_mode(expected.executable):
            return f"its mode is {mode:o}, recorded is {file_mode(expected.executable):o}"
        if status.st_size != expected.size:
            return f"has {status.st_size} bytes, recorded are {expected.size}"
        stamp = _stamp(status)
        if self._known is not None and self._known.get(name) == stamp:
            return ""
        began = self._clock()
        digest, after = _digest(Path(entry.path))
        if digest != expected.sha256:
            return "its content differs"
        settled = began - max(status.st_mtime_ns, status.st_ctime_ns) >= SETTLED_SECONDS * 1e9
        if self._known is not None and settled and after == stamp:
            self._known[name] = stamp
        return ""

    def _replace(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write a file of the bundle, in place of whatever is at its path."""
        path = self.folder / name
        for parent in reversed(_parents(name)):
            if not _is_folder(self.folder / parent):
                _remove(self.folder / parent)
                (self.folder / parent).mkdir(FOLDER_MODE)
        partial = self.folder.parent / f".{uuid.uuid4().hex}.partial"
        try:
            with partial.open("xb") as out:
                out.writelines(pieces)
            partial.chmod(file_mode(self.files[name].executable))
            if _is_folder(path):
                _remove(path)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _parents(name: str) -> list[str]:
    """Return the paths of the folders in which a file of the bundle is, the innermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_closed(path: Path) -> bool:
    """Return whether a path is that of a folder whose owner may not read it, write to it and enter it."""
    return _is_folder(path) and stat.S_IMODE(os.lstat(path).st_mode) & FOLDER_MODE != FOLDER_MODE


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"a link to {os.readlink(entry.path)}"
    if entry.is_dir(follow_symlinks=False):
        return "a folder"
    return "a file" if entry.is_file(follow_symlinks=False) else "a device, a pipe or a socket"


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(path: Path) -> tuple[str, _Stamp]:
    """Return the hash of a file and its stamp after reading; no hash if it cannot be read or is no regular file any more."""
    digest = hashlib.sha256()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return "", (0, 0, 0, 0, 0)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return "", _stamp(status)
        while block := os.read(handle, _BLOCK):
            digest.update(block)
        return digest.hexdigest(), _stamp(os.fstat(handle))
    except OSError:  # Such as a sector of the disk that cannot be read: the file is replaced.
        return "", (0, 0, 0, 0, 0)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Delete whatever is at a path, without following a link."""
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def listed(found: Collection[BundleDifference], most: int = 5) -> str:
    """Return differences in one line: the first `most` of them, and the number of the others."""
    first = "; ".join(map(str, list(found)[:most]))
    return first if len(found) <= most else f"{first}; and {len(found) - most} more"
