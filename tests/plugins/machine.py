"""Measures how slow the machine is and stretches the intervals of tests and pytest's time limit by that factor."""

from __future__ import annotations

import math
import os
import time
from typing import Final

import pytest

from tests.timing import STRETCH_VARIABLE, stretch

REFERENCE_SECONDS: Final = 0.0065
"""What one call of `_work` takes on a quiet core of the machine on which the tests' intervals were chosen."""
REFERENCE_CORES: Final = 2
LIMIT_SECONDS: Final = 180.0
"""How long a test may take on a quiet machine before it counts as hung."""
MOST: Final = 10.0
_ROUNDS: Final = 20


def _work() -> int:
    total = 0
    for number in range(250_000):
        total += number & 7
    return total


def cpu_slowness() -> float:
    """Return how many times more CPU time than on the reference machine a fixed computation takes now, at least 1."""
    best = math.inf
    for _ in range(3):
        begin = time.process_time()
        _work()
        best = min(best, time.process_time() - begin)
    return max(1.0, best / REFERENCE_SECONDS)


def slowness() -> float:
    """Return how many times longer than on the quiet reference machine a fixed computation takes now, at least 1."""
    begin = time.monotonic()
    for _ in range(_ROUNDS):
        _work()
    wall = (time.monotonic() - begin) / _ROUNDS / REFERENCE_SECONDS
    cores = REFERENCE_CORES / len(os.sched_getaffinity(0))
    return max(1.0, wall) * max(1.0, cores)


def _rounded(factor: float) -> float:
    """Round to halves: small fluctuations of a quiet machine stretch nothing."""
    return min(MOST, max(1.0, round(factor * 2) / 2))


# At import, before pytest reads its time limit and before test modules compute theirs. Workers inherit the variable.
os.environ.setdefault(STRETCH_VARIABLE, str(_rounded(slowness())))
os.environ.setdefault("PYTEST_TIMEOUT", str(LIMIT_SECONDS * stretch()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stretch the time limits that tests have by a marker."""
    for item in items:
        marker = item.get_closest_marker("timeout")
        if marker is not None:
            item.add_marker(pytest.mark.timeout(marker.args[0] * stretch()), append=False)


def pytest_report_header() -> str:
    """Say by how much this run stretches intervals."""
    return f"intervals of tests stretched {stretch():g} times ({STRETCH_VARIABLE})"
