"""Generators that learn, and one that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from typing_extensions import override

from hopyard.generator import Generator, Result
from hopyard.space import Configuration
from hopyard_hpgen.generators.grid import GridGenerator
from tests.timing import HANG_SECONDS


class Learning(Generator):
    """Proposes by what it was told so far, in its order, and takes its time, so that calls wait behind one another."""

    _told: tuple[int, ...] = ()

    @override
    def create(self, job: str, ordinal: int) -> Configuration | None:
        time.sleep(0.03)
        learned = sum(place * seen for place, seen in enumerate(self._told, 1))
        return {"x": (7 * ordinal + learned) % 100 / 100, "pace": 0.01}

    @override
    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        time.sleep(0.005)
        self._told += (round(1000 * metrics.get("accuracy", 0.0)) % 7 + position,)

    @override
    def report_final(self, job: str, result: Result) -> None:
        time.sleep(0.005)
        self._told += (round(1000 * result.metrics.get("accuracy", 0.0)) % 13,)


class GatedGrid(GridGenerator):
    """Says that there are no more points when it may."""

    may_end = threading.Event()

    @override
    def create(self, job: str, ordinal: int) -> Configuration | None:
        point = super().create(job, ordinal)
        assert point is not None or GatedGrid.may_end.wait(HANG_SECONDS)
        return point
