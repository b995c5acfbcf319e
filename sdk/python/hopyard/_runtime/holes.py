"""Holes in files: parts that take no space on the disk and read as zeros. The offsets of all other parts stay the same."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Final

_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
_UNABLE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def punch_hole(file: int, begin: int, end: int) -> bool:
    """Free the space of the bytes from `begin` to `end` of a file; they read as zeros afterwards.

    Other processes may write to the file at the same time.

    Args:
        file: Descriptor of the file, open for writing.
        begin: Offset of the first byte, >= 0.
        end: Offset after the last byte, > `begin`.

    Returns:
        False: this system or file system has no such operation, and nothing was changed.

    Raises:
        OSError: The operation failed for another reason.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(begin), ctypes.c_int64(end - begin)
    if libc.fallocate64(ctypes.c_int(file), ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), offset, length) == 0:
        return True
    error = ctypes.get_errno()
    if error in _UNABLE:
        return False
    raise OSError(error, os.strerror(error))
