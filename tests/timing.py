"""Intervals in tests, scaled to the speed of the machine.

Write a lease, heartbeat, grace period or policy limit that a test shortens as `scaled(2.0)`. On a slow machine all intervals grow
by the same factor, so their ratios stay constant. A wait limit only bounds a hang: use `HANG_SECONDS`.
"""

from __future__ import annotations

import math
import os
from typing import Final

STRETCH_VARIABLE: Final = "HOPYARD_TEST_STRETCH"
"""Environment variable with the factor. `tests/plugins/machine.py` sets it; child processes inherit it, training processes do not."""


def stretch() -> float:
    """Return the factor by which this run stretches intervals: 1 on a quiet machine, more on a slow one."""
    given = os.environ.get(STRETCH_VARIABLE, "1")
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 1.0 <= factor < math.inf:
        raise ValueError(f"{STRETCH_VARIABLE}: found {given!r}, allowed are finite numbers of at least 1")
    return factor


def scaled(seconds: float) -> float:
    """Return an interval of `seconds` on a quiet machine, stretched for this one."""
    return seconds * stretch()


HANG_SECONDS: Final = scaled(150.0)
"""Limit for waiting on an event that must occur: far longer than it takes, shorter than pytest's default time limit."""
