"""Measures how slow the machine is and stretches the intervals of tests and pytest's time limit by that factor."""

from __future__ import annotations

import math
import os
import time
from typing import Final

import pytest

from tests.timing import STRETCH_VARIABLE, stretch

REFERENCE_SECONDS: Final = 0.0065
"""CPU time of one call of `_work` on an idle core of the reference machine, on which the intervals of tests were chosen."""
REFERENCE_CORES: Final = 2
LIMIT_SECONDS: Final = 180.0
"""Seconds that a test may take on a quiet machine before it counts as hung."""
MAX_STRETCH: Final = 10.0
_ROUNDS: Final = 20


def _work() -> int:
    total = 0
    for number in range(250_000):
        total += number & 7
    return total


def cpu_slowness() -> float:
    """Return the ratio of the CPU time of a fixed computation to that on the reference machine, at least 1."""
    best = math.inf
    for _ in range(3):
        begin = time.process_time()
        _work()
        best = min(best, time.process_time() - begin)
    return max(1.0, best / REFERENCE_SECONDS)


def slowness() -> float:
    """Return the ratio of the wall-clock time of a fixed computation to that on the idle reference machine, at least 1."""
    begin = time.monotonic()
    for _ in range(_ROUNDS):
        _work()
    wall = (time.monotonic() - begin) / _ROUNDS / REFERENCE_SECONDS
    cores = REFERENCE_CORES / len(os.sched_getaffinity(0))
    return max(1.0, wall) * max(1.0, cores)


def _round_to_half(factor: float) -> float:
    """Round to halves, so that small fluctuations do not change the intervals."""
    return min(MAX_STRETCH, max(1.0, round(factor * 2) / 2))


# At import, before pytest reads its time limit and before test modules compute theirs. Workers inherit the variable.
os.environ.setdefault(STRETCH_VARIABLE, str(_round_to_half(slowness())))
os.environ.setdefault("PYTEST_TIMEOUT", str(LIMIT_SECONDS * stretch()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stretch time limits set by markers."""
    for item in items:
        marker = item.get_closest_marker("timeout")
        if marker is None:
            continue
        if len(marker.args) != 1 or marker.kwargs:
            raise pytest.UsageError(f"{item.nodeid}: write the time limit as pytest.mark.timeout(SECONDS)")
        item.add_marker(pytest.mark.timeout(marker.args[0] * stretch()), append=False)


def pytest_report_header() -> str:
    """Report the stretch factor of this run."""
    return f"intervals of tests stretched {stretch():g} times ({STRETCH_VARIABLE})"
