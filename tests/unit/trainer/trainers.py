"""Small trainers without PyTorch, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard.trainer import Trainer, TrainerContext


class Parabola(Trainer):
    """A trainer with only the required methods: gradient descent on x^2."""

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        self.x, self.lr = 5.0, hyperparameters["lr"]

    def train(self) -> dict[str, float]:
        self.x -= self.lr * 2 * self.x
        return {"loss": self.x**2}

    def save(self, directory: Path) -> None:
        (directory / "x").write_text(repr(self.x))

    def load(self, directory: Path) -> None:
        self.x = float((directory / "x").read_text())


class Diary(Trainer):
    """A trainer that records the calls of its methods, with their arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []  # the base class's constructor is not called on purpose
        self.trained = 0

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.calls.append(("build", dict(hyperparameters), self.context.seed))

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        self.calls.append(("setup", dict(hyperparameters), sorted(changed)))

    def train(self) -> dict[str, float]:
        self.calls.append(("train", self.position, self.units))
        self.trained += self.units
        return {"trained": self.trained}

    def evaluate(self) -> dict[str, float]:
        self.calls.append(("evaluate", self.position))
        self.examples = 10
        return {"accuracy": 0.5}

    def save(self, directory: Path) -> None:
        self.calls.append(("save", self.position))
        (directory / "trained.json").write_text(json.dumps(self.trained))

    def load(self, directory: Path) -> None:
        self.calls.append(("load", self.position))
        self.trained = json.loads((directory / "trained.json").read_text())

    def close(self) -> None:
        self.calls.append(("close",))


class Clock:
    """A clock that advances by one second each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def context(tmp_path: Path, **values: Any) -> TrainerContext:
    return TrainerContext(**{"seed": 3, "scratch": tmp_path, **values})
