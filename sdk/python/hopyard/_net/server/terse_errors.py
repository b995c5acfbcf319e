"""Identifies errors whose message is sufficient, so that services log them without a traceback."""

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
"""OSError codes whose cause a person must fix on this host."""


def explained(error: BaseException) -> str:
    """Return the message of an error that can be logged without a traceback; empty if the traceback is needed.

    No traceback is needed for a `HopyardError` except `Internal`, and for an OSError that the state of this host causes and not a
    defect of the code: a full or failed disk, missing rights and the like.
    """
    if isinstance(error, HopyardError) and not isinstance(error, Internal):
        return str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT:
        return os_error_text(error)
    return ""
