"""Troubles whose message says all there is to say: a traceback would bury it."""

from __future__ import annotations

import errno
from typing import Final

from hopyard.errors import HopyardError, Internal

_ENVIRONMENT: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.EMFILE,
        errno.ENFILE,
    }
)
"""What an OSError means that a person has to mend on this machine."""


def explained(error: BaseException) -> str:
    """The message of an error that explains itself; empty: its traceback is needed."""
    if isinstance(error, HopyardError) and not isinstance(error, Internal):
        return str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT:
        return disk_message(error)
    return ""


def disk_message(error: OSError) -> str:
    """An operating system's error in one line: the file, what is the matter, and what to do when the disk is full."""
    what = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename else ""
    hint = "; make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{place}{what}{hint}"
