"""Time in tests: intervals that tests shorten are multiples of one constant, which stretches on a slow machine.

A lease, heartbeat, grace or policy limit that a test shortens is written `scaled(2.0)`, never as a bare number: on a machine
that is slow or loaded, the run measures by how much and every such interval grows alike, so their ratios stay what the test
means. A limit on waiting only bounds a hang: use `HANG_SECONDS`.
"""

from __future__ import annotations

import os
from typing import Final

STRETCH_VARIABLE: Final = "HOPYARD_TEST_STRETCH"
"""Environment variable with the factor; tests/plugins/machine.py measures and sets it, workers and child processes inherit it."""


def stretch() -> float:
    """Return the factor by which this run stretches intervals: 1 on a quiet machine, more on a slow one."""
    return float(os.environ.get(STRETCH_VARIABLE, "1"))


def scaled(seconds: float) -> float:
    """Return an interval of `seconds` on a quiet machine, stretched for this one."""
    return seconds * stretch()


HANG_SECONDS: Final = scaled(150.0)
"""How long to wait for something that must happen: longer than it can take on any machine, shorter than pytest's limit."""
