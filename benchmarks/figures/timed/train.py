"""Trainers that report when they train. All processes of a benchmark run on one computer, so they have the same clock."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from hopyard import Trainer


class Timed(Trainer):
    """A trainer whose iterations sleep for `pace` seconds, and with `uneven` between half of that and one and a half times that.

    It reports `began`, the start of the iteration in seconds since the Unix epoch, and `gap`, the seconds since the end of the previous
    iteration; -1: it is the first of the run.
    """

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.left: float | None = None
        self.rng = random.Random(self.context.seed)

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.pace, self.uneven = hyperparameters["pace"], hyperparameters["uneven"]

    def train(self) -> dict[str, float]:
        now = time.perf_counter()
        began = time.time()
        gap = -1.0 if self.left is None else now - self.left
        if self.pace:
            time.sleep(self.pace * (self.rng.uniform(0.5, 1.5) if self.uneven else 1.0))
        self.left = time.perf_counter()
        return {"began": began, "gap": gap}

    def save(self, directory: Path) -> None:
        (directory / "state").write_text(str(self.position))

    def load(self, directory: Path) -> None:
        assert (directory / "state").read_text() == str(self.position)


class Heavy(Timed):
    """A `Timed` trainer with a state of `size` random bytes, which compression cannot shrink; each iteration changes some of them."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        super().build(hyperparameters)
        self.state = bytearray(os.urandom(hyperparameters["size"]))

    def train(self) -> dict[str, float]:
        found = super().train()
        self.state[:16] = os.urandom(16)
        return found

    def save(self, directory: Path) -> None:
        (directory / "state").write_bytes(self.state)

    def load(self, directory: Path) -> None:
        self.state = bytearray((directory / "state").read_bytes())
