"""Returns freed memory of a service to the operating system."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of `mallopt` of the GNU C library, see mallopt(3)."""

LARGE_BYTES: Final = 256 * 1024
"""Size from which an allocation gets its own pages, which are returned when it is freed."""

FREE_BYTES: Final = 1024 * 1024
"""Free bytes at the end of a heap above which they are returned."""

ARENAS: Final = 2
"""Maximum number of heaps. With the default, 8 for each core, each thread of a service keeps the freed memory of its own heap."""


def return_freed_memory() -> bool:
    """Let the C library of this process return freed memory to the operating system early.

    By default the GNU C library raises its thresholds up to 32 MiB after large blocks are freed, so that a service that has once
    received large messages keeps their memory. Constant thresholds prevent this.

    Returns:
        True if the settings apply; False with another C library, which decides for itself.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = {_MMAP_THRESHOLD: LARGE_BYTES, _TRIM_THRESHOLD: FREE_BYTES, _ARENA_MAX: ARENAS}
    return all(mallopt(parameter, value) == 1 for parameter, value in settings.items())
