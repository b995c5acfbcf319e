"""Generators for the conformance suite's own tests: each one breaks the generator contract in one way."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from hopyard.generator import Generator, Reads
from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.random import RandomGenerator


class Wrapped(Generator):
    """Proposes random configurations; a subclass breaks one part of the contract."""

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        self.inner = RandomGenerator(space, seed)

    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.inner.create(job, ordinal)


class Nondeterministic(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.space.sample(random.Random())


class OutsideTheSpace(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        found = super().create(job, ordinal)
        return {**found, "layers": 99} if found else None


class ForgetsAName(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        found = super().create(job, ordinal)
        return {"layers": found["layers"]} if found else None


class NotJson(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        found = super().create(job, ordinal)
        return {**found, "layers": np.int64(2)} if found else None  # type: ignore[dict-item]  # the point


class ForgetsExhaustion(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        return None if ordinal % 5 == 4 else super().create(job, ordinal)


class IgnoresItsSeed(Wrapped):
    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        super().__init__(space, 0, **parameters)


class ReadsJobIds(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.space.sample_at(self.seed, len(job) * 1000 + ordinal)


class SharesState(Wrapped):
    count: ClassVar[itertools.count[int]] = itertools.count()

    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.space.sample_at(self.seed, next(SharesState.count))


class HandsOutItsMemory(Wrapped):
    """Returns the same dict object again and again, so that a caller's changes appear in later proposals."""

    def create(self, job: str, ordinal: int) -> Configuration | None:
        if ordinal == 0:
            self.memory = self.space.sample_at(self.seed, 0)
        return self.memory


class OverstatesItsSize(Wrapped):
    @property
    def size(self) -> int | None:
        return 30


class LearnsInSecret(Wrapped):
    """Declares that the order of reports does not matter, but uses the last report."""

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        self.last = 0.0

    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.space.sample_at(self.seed, ordinal, int(1000 * self.last))

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        self.last = metrics["metric"]


class StumblesOverNan(Wrapped):
    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        math.floor(metrics["metric"])


class ReadsInSecret(LearnsInSecret):
    """Declares that it reads no reports, but uses them."""

    @property
    def reads(self) -> Reads:
        return "nothing"


class IgnoresConditions(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        found = super().create(job, ordinal)
        return {**found, "momentum": 0.5} if found else None


class IgnoresConstraints(Wrapped):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        return self.space.constrained(()).sample_at(self.seed, ordinal)
