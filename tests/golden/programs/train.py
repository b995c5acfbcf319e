"""A trainer whose accuracy follows from its hyperparameters and its position alone."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard import Trainer


class Curve(Trainer):
    """Approaches a limit that depends on the learning rate, at a speed that depends on the momentum.

    `pace` is how many seconds a unit takes.
    """

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        self.rate = float(hyperparameters["lr"])
        self.momentum = float(hyperparameters["momentum"])
        self.pace = float(hyperparameters.get("pace", 0.02))

    def train(self) -> dict[str, float]:
        time.sleep(self.pace)
        limit = 1.0 - abs(self.rate - 0.1) / 2
        return {"accuracy": limit * (1.0 - (0.9 - self.momentum / 2) ** (self.position + 1))}

    def save(self, directory: Path) -> None:
        (directory / "state.json").write_text(json.dumps({"rate": self.rate}))

    def load(self, directory: Path) -> None:
        json.loads((directory / "state.json").read_text())
