"""A generator whose proposals depend on all reports that it received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopyard.generator import Generator, Result
from hopyard.space import Configuration, Space, stream


class NearTheLast(Generator):
    """A generator whose proposals depend on every earlier report and on their order."""

    def __init__(self, space: Space, seed: int, *, width: float = 0.1, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        self._width = width
        self._told = 0.0

    def create(self, job: str, ordinal: int) -> Configuration | None:
        rng = stream(self.seed, ordinal, 0, "x")
        return {"x": (self._told + self._width * rng.random()) % 1.0, "y": 0.25}

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        self._told = self._told * 3.7 + metrics["score"] * position

    def report_final(self, job: str, result: Result) -> None:
        self._told = self._told * 1.3 + result.metrics["score"] + result.position
