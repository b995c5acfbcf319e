"""Folders and files that only their owner can read or write: the data of a cluster, and its secrets.

A private folder has mode 0700, a private file 0600. The functions set these modes explicitly, so they hold under every umask. Only
`private_umask` changes the umask: it affects the whole process, so only processes that contain nothing but services call it.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hopyard.errors import AlreadyExists, InvalidInput, NotFound, os_error_text

_log = logging.getLogger(__name__)

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

SERVICE_UMASK: Final = 0o077
"""The umask of services: what they create is private, also where a library chooses the mode."""

UNCHANGED: Final = -1
"""As the argument `umask` of `subprocess.Popen`: the child process has the umask of this process."""

_OTHERS: Final = 0o077  # all rights of the group and of other users
_OTHERS_WRITE: Final = 0o022
_PARENT_MODE: Final = 0o755  # missing parents of a private folder; the umask removes further rights
_inherited_umask = UNCHANGED


@contextmanager
def private_umask() -> Iterator[None]:
    """Set the umask of this process to 077 while the context is open, so that all files that it creates are private.

    Inside, `inherited_umask` returns the umask of before, for child processes that execute users' code. Contexts must not overlap.
    """
    global _inherited_umask
    _inherited_umask = os.umask(SERVICE_UMASK)
    try:
        yield
    finally:
        os.umask(_inherited_umask)
        _inherited_umask = UNCHANGED


def inherited_umask() -> int:
    """Return the umask that this process had before `private_umask`; `UNCHANGED` outside of it.

    Pass it as the argument `umask` to the start of a child process that executes users' code.
    """
    return _inherited_umask


def make_private_folder(path: Path) -> None:
    """Ensure that `path` is a folder of this user with mode 0700. Create it, with its parents, if it is missing.

    A wider mode of an existing folder of this user is narrowed to 0700, with one line in the log. Missing parents are created with
    mode 0755, less the umask. `path` may be a symbolic link to a folder. Nothing is created or changed if an error is raised.

    Raises:
        InvalidInput: The folder belongs to another user or is no folder, or another user could replace it: one of its parents, or of
            the parents of a link to it, is writable by everyone without the sticky bit. Also if its file system keeps no modes.
        OSError: The folder cannot be created or read. The error names it.
    """
    path = Path(os.path.abspath(path))
    for parent in dict.fromkeys([*path.parents, *Path(os.path.realpath(path)).parents]):
        _check_parent(parent)
    try:
        _narrow(path)
        return
    except FileNotFoundError:
        if path.is_symlink():
            raise InvalidInput(f"{path}: the symbolic link leads to no folder: {os.readlink(path)}") from None
    for parent in reversed(path.parents):
        with suppress(FileExistsError):
            parent.mkdir(_PARENT_MODE)
    with suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
    # The umask may have removed rights of the owner, and another process may have created the folder.
    _narrow(path, new=True)


def check_own_folder(path: Path) -> None:
    """Raise an error if another user can change what the folder `path` contains, so that an address or a token in it may be false.

    Nothing is changed. A folder that belongs to root is accepted, and a path that is no folder.

    Raises:
        InvalidInput: The folder belongs to another user, its group or other users may write to it, or another user could replace it
            (see `make_private_folder`).
    """
    path = Path(os.path.abspath(path))
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InvalidInput(os_error_text(error)) from error
    if not stat.S_ISDIR(found.st_mode):
        return
    if found.st_uid != 0:
        _check_owner(path, found, "folder")
    if found.st_mode & _OTHERS_WRITE:
        raise InvalidInput(
            f"{path}: other users can write to the folder (mode {stat.S_IMODE(found.st_mode):04o}), so what it contains may be theirs; "
            f"remove the right with `chmod go-w {path}`"
        )
    for parent in dict.fromkeys([*path.parents, *Path(os.path.realpath(path)).parents]):
        _check_parent(parent)


def _check_parent(parent: Path) -> None:
    try:
        found = parent.stat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise InvalidInput(
            f"{parent}: every user can rename the folders in it (mode {stat.S_IMODE(found.st_mode):04o}), so data below it is not "
            f"private; remove the right with `chmod o-w {parent}`, or choose another data directory"
        )


def _narrow(path: Path, *, new: bool = False) -> None:
    """Check that `path` is a folder of this user, and set its mode to 0700 if it is another one.

    Args:
        path: The folder, or a link to it.
        new: Whether this process has just created it: a mode that is not 0700 is then not worth a line in the log.

    Raises:
        FileNotFoundError: There is nothing at `path`, or the link leads to nothing.
        InvalidInput: As for `make_private_folder`.
    """
    found = path.stat()
    _check_owner(path, found, "folder")
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{path}: found a file, needed a folder")
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        _check_owner(path, found, "folder")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o777 == FOLDER_MODE:
            return
        os.fchmod(handle, mode & ~0o777 | FOLDER_MODE)
        left = stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
    if left & _OTHERS:
        raise InvalidInput(
            f"{path}: its file system does not keep file modes (found {left:04o} after a change to 0700), so data in it is not "
            "private; choose a data directory on another file system"
        )
    if mode & _OTHERS and not new:
        _log.warning(
            "%s: changed the mode from %04o to %04o, so that other users cannot read the data", path, mode, left
        )


def _check_owner(path: Path, found: os.stat_result, kind: str) -> None:
    if found.st_uid != os.geteuid():
        raise InvalidInput(
            f"{path}: the {kind} belongs to user {_user(found.st_uid)}, and this process runs as {_user(os.geteuid())}; "
            "run it as the owner, or choose another data directory"
        )


def _user(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def open_private(path: Path, flags: int) -> int:
    """Open a file, which is created with mode 0600 if it is missing, and return its descriptor. It is not inherited by children.

    A wider mode of an existing file of this user is narrowed to 0600.

    Args:
        path: The file.
        flags: Flags of `os.open`, such as `os.O_WRONLY | os.O_APPEND`. `O_CREAT`, `O_CLOEXEC` and `O_NOFOLLOW` are added.

    Raises:
        OSError: The file cannot be opened or created, or is a symbolic link. The error names it.
    """
    handle = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            os.fchmod(handle, FILE_MODE)
    except BaseException:
        os.close(handle)
        raise
    return handle


def private_opener(path: str, flags: int) -> int:
    """Open a file with mode 0600 if it is created: the argument `opener` of `open`."""
    return os.open(path, flags, FILE_MODE)


def write_private(path: Path, content: bytes, *, replace: bool = True, durable: bool = True) -> None:
    """Write a file with mode 0600 atomically: readers see the old content, or the new content as a whole.

    Args:
        path: The file. A symbolic link is replaced, not followed.
        content: The new content.
        replace: Whether an existing file is replaced.
        durable: Whether to return only when the content is on the disk, so that it survives a power failure.

    Raises:
        AlreadyExists: There is such a file, and `replace` is False. It is unchanged.
        OSError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if replace:
            os.replace(partial, path)
        else:
            _link_new(partial, path)
            partial.unlink(missing_ok=True)
    except FileExistsError as error:
        partial.unlink(missing_ok=True)
        raise AlreadyExists(f"{path}: the file exists already") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _link_new(partial: Path, path: Path) -> None:
    """Give a file the name `path`, or raise FileExistsError if there is such a file."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:
        # Some network file systems have no hard links. A second process could then replace the file.
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(partial, path)


def read_private(path: Path) -> bytes:
    """Return the content of a private file, such as a token. As `ssh` does for keys, refuse a file that others can read or write.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file is a symbolic link or no regular file, belongs to another user, gives rights to its group or to other
            users, or cannot be read.
    """
    try:
        # Without O_NONBLOCK, a named pipe would block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file") from error
    except OSError as error:
        if path.is_symlink():
            raise InvalidInput(f"{path}: found a symbolic link, needed a file") from error
        raise InvalidInput(os_error_text(error)) from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path}: found something that is not a file")
        if found.st_uid != os.geteuid():
            raise InvalidInput(
                f"{path}: the file belongs to user {_user(found.st_uid)}, and this process runs as {_user(os.geteuid())}"
            )
        if found.st_mode & _OTHERS:
            raise InvalidInput(
                f"{path}: other users have rights to this file (mode {stat.S_IMODE(found.st_mode):04o}), so it may be known to them; "
                f"make a new one, or run `chmod 600 {path}` if nobody has read it"
            )
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)
