"""Unix sockets at paths of any length.

The kernel limits the path of a socket to 107 bytes. A path through the file descriptor of its folder is short.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def bound_socket(path: Path) -> socket.socket:
    """Return a socket that is bound to `path` and does not listen yet.

    Raises:
        OSError: The folder does not exist, or something exists at the path.
    """
    return _with_short_path(path, lambda one, short: one.bind(short))


def connected_socket(path: Path, seconds: float) -> socket.socket:
    """Connect to the socket at `path` within a number of seconds, which is also the time limit of later operations.

    Raises:
        OSError: Nothing listens there.
    """

    def connect(one: socket.socket, short: str) -> None:
        one.settimeout(seconds)
        one.connect(short)

    return _with_short_path(path, connect)


def _with_short_path(path: Path, use: Callable[[socket.socket, str], None]) -> socket.socket:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            use(one, f"/proc/self/fd/{folder}/{path.name}")
        except OSError:
            one.close()
            raise
        return one
    finally:
        os.close(folder)
