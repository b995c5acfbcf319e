"""Troubles whose message says all there is to say: a traceback would bury it."""

from __future__ import annotations

import errno
from typing import Final

from hopyard.errors import HopyardError, Internal, os_error_text

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
        return os_error_text(error)
    return ""
