"""Generators for tests: one that learns, and one whose end the test controls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from hopyard.generator import Generator, Result
from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.grid import GridGenerator


class Learning(Generator):
    """Proposes by all reports so far and their order, slowly, so that calls queue up."""

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
    """A grid that reports its end only once the test has created the file `gate`.

    Args:
        space: The search space.
        seed: The seed.
        gate: The path of the file.
    """

    def __init__(self, space: Space, seed: int, *, gate: str, **rest: Any) -> None:
        super().__init__(space, seed, **rest)
        self._gate = Path(gate)

    @override
    def create(self, job: str, ordinal: int) -> Configuration | None:
        point = super().create(job, ordinal)
        while point is None and not self._gate.exists():
            time.sleep(0.01)
        return point
