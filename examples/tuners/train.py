"""Gradient descent on a function that is steep in one direction and flat in another. An epoch takes some milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from hopyard import Trainer

STEEPNESS = (1.0, 0.3, 0.02)


class Descent(Trainer):
    """A trainer whose loss decreases slowly with a small learning rate, and diverges with a large one."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        """Start at a fixed point with velocity 0."""
        self.at, self.speed = [1.0] * len(STEEPNESS), [0.0] * len(STEEPNESS)

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        """Set the hyperparameters."""
        self.lr, self.momentum = float(hyperparameters["lr"]), float(hyperparameters["momentum"])

    def train(self) -> dict[str, float]:
        """Make three steps, and return the loss."""
        for _ in range(3):
            self.speed = [
                self.momentum * v - self.lr * c * x for v, c, x in zip(self.speed, STEEPNESS, self.at, strict=True)
            ]
            self.at = [x + v for x, v in zip(self.at, self.speed, strict=True)]
        return {"loss": sum(c * x * x for c, x in zip(STEEPNESS, self.at, strict=True))}

    def save(self, directory: Path) -> None:
        """Save position and velocity."""
        (directory / "state.json").write_text(json.dumps([self.at, self.speed]))

    def load(self, directory: Path) -> None:
        """Restore position and velocity."""
        self.at, self.speed = json.loads((directory / "state.json").read_text())
