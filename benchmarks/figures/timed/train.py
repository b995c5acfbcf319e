"""Trainers that say when they train. All processes of a benchmark run on one computer, so their clocks agree."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from hopyard import Trainer


class Timed(Trainer):
    """Each iteration sleeps for the hyperparameter `pace` seconds, half more or less if `uneven`, and reports when it began.

    `gap` is the time since the iteration before it was over, in seconds; -1: it is the run's first.
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
    """The same, with so many bytes of state that do not shrink, `size`; each iteration changes them."""

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
