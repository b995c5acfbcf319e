"""The conformance task of docs/protocol.md, written as a trainer."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard import Trainer


class Task(Trainer):
    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.x = float(hyperparameters.get("start", {}).get("x", 0.0))

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        lr = hyperparameters["lr"]
        if not isinstance(lr, int | float):
            raise ValueError(f"lr is {lr!r}; allowed: a number")
        factor = (2 if hyperparameters.get("twice") else 1) * (-1 if hyperparameters.get("sign") == "minus" else 1)
        self.step = lr * factor

    def train(self) -> dict[str, float]:
        time.sleep(self.hyperparameters.get("seconds", 0))
        self.x += self.step
        position = self.position + 1
        if position == self.hyperparameters.get("last"):
            self.finish()
        return {"value": math.nan if position == self.hyperparameters.get("nan_at") else self.x}

    def save(self, directory: Path) -> None:
        (directory / "x.txt").write_text(repr(self.x))

    def load(self, directory: Path) -> None:
        self.x = float((directory / "x.txt").read_text())
        if self.position == self.hyperparameters.get("last"):
            self.finish()
