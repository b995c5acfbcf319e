"""A trainer that trains nothing, so that only Hopyard's overhead remains."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from hopyard import Trainer


class Noop(Trainer):
    """A trainer whose iterations do nothing and report one metric."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None: ...

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.score = float(hyperparameters["x"])

    def train(self) -> dict[str, float]:
        return {"score": self.score}

    def save(self, directory: Path) -> None:
        (directory / "state").write_text(str(self.position))

    def load(self, directory: Path) -> None:
        assert (directory / "state").read_text() == str(self.position)


class Paced(Noop):
    """A `Noop` that reports about five times a second, for measurements in which the reports must not be the main load."""

    def train(self) -> dict[str, float]:
        time.sleep(0.2)
        return super().train()
