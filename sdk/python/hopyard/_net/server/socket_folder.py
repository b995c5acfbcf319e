"""The private folder in which a service creates its Unix sockets.

The mode of a socket follows the umask, so the folder protects the sockets: only its owner may enter it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._common.private_files import make_private_folder
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard.errors import Conflict

SOCKETS: Final = "run"
"""Name of the folder in a data folder that contains its sockets, and a lock for each."""

_MOST_BYTES: Final = 100
"""Maximum length of a socket's path in bytes; the kernel allows 107."""

_LONGEST_NAME: Final = "/application.sock"
"""The longest name of a socket in a socket folder."""


class SocketFolder:
    """The folder of the sockets of one data folder, or of one server without a data folder.

    It is `run` in the data folder. If the paths of sockets there would be longer than 100 bytes, or the file system has no sockets
    (`fall_back`), it is a folder with a name derived from the data folder in `hopyard-UID` in the temporary directory. Without a data
    folder its name there is random.

    Args:
        data: The data folder; None: none.

    Attributes:
        path: The absolute path of the folder; `make` creates it.
    """

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._shared: Path | None = None
        self.path = Path() if data is None else data.absolute() / SOCKETS
        if data is None or not _fits(self.path):
            self.fall_back()

    @property
    def can_fall_back(self) -> bool:
        """Whether the folder is in the data folder, so that `fall_back` selects another one."""
        return self._shared is None

    def fall_back(self) -> None:
        """Select the folder in the temporary directory instead of the one in the data folder."""
        self._shared = _shared_folder()
        if self._data is None:
            self.path = self._shared / secrets.token_hex(8)
        else:
            self.path = self._shared / hashlib.sha256(os.fsencode(self._data.resolve())).hexdigest()[:16]

    def make(self) -> None:
        """Create the folder if it does not exist, and verify that no other user may enter or replace it.

        Raises:
            InvalidInput: The folder, or `hopyard-UID`, belongs to another user, or another user could replace it.
            Conflict: One of them is a link, or cannot be created.
        """
        for folder in (self._shared, self.path):
            if folder is not None:
                make_private(folder)
        if self._shared is not None and self._data is not None:
            self._link(self._data)

    def _link(self, data: Path) -> None:
        """Create the link by which clients find the tokens of a cluster next to its sockets."""
        with suppress(OSError):
            (self.path / SECRETS).symlink_to(data.resolve() / SECRETS)

    def remove(self) -> None:
        """Delete a folder in the temporary directory that has no sockets left, with its tokens. No effect on one in a data folder."""
        if self._shared is None or any(self.path.glob("*.sock")):
            return
        place = self.path / SECRETS
        if place.is_symlink():
            place.unlink(missing_ok=True)
        else:
            shutil.rmtree(place, ignore_errors=True)
        try:
            self.path.rmdir()
        except OSError:  # Another service of the cluster has just created its socket.
            if self._data is not None:
                self._link(self._data)


def make_private(folder: Path) -> Path:
    """Create a folder that only this user may enter, if it does not exist, and return it.

    Raises:
        InvalidInput: It belongs to another user, or another user could replace it.
        Conflict: It is a link, or cannot be created.
    """
    if folder.is_symlink():
        raise Conflict(f"{folder}: the folder for sockets must be a folder, found a link; delete it")
    try:
        make_private_folder(folder)
    except OSError as error:
        raise Conflict(f"{folder}: the folder for sockets cannot be created: {error.strerror or error}") from error
    return folder


def _shared_folder() -> Path:
    """Return `hopyard-UID` in the temporary directory of this process, or in /tmp if paths of sockets would be too long."""
    name = f"hopyard-{os.geteuid()}"
    chosen = Path(tempfile.gettempdir()).absolute() / name
    return chosen if _fits(chosen / ("x" * 16)) else Path("/tmp") / name  # noqa: S108 - `make_private` verifies it


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) + len(_LONGEST_NAME) <= _MOST_BYTES
