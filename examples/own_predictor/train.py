"""A logistic regression by gradient descent, in numpy: an iteration is several steps on noisy data, so curves level off."""

from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopyard.trainer import Trainer

FEATURES = 40


@cache
def points(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return features (n, 40) of very different sizes, and labels (n,), 0 or 1, of which one in ten is wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (count, FEATURES)) * np.geomspace(1, 0.02, FEATURES)
    truth = np.random.default_rng(0).normal(0, 1, FEATURES) / np.geomspace(1, 0.02, FEATURES)
    return x, ((x @ truth > 0) ^ (rng.random(count) < 0.1)).astype(float)


class Regression(Trainer):
    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.weights, self.speed, self.steps = np.zeros(FEATURES), np.zeros(FEATURES), 0

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.lr, self.momentum = hyperparameters["lr"], hyperparameters["momentum"]
        self.batch = int(hyperparameters["batch"])

    def train(self) -> Mapping[str, float]:
        x, label = points(4000, seed=1)
        for _ in range(100):
            rows = np.random.default_rng([self.context.seed, self.steps]).integers(0, len(x), self.batch)
            guess = 1 / (1 + np.exp(-np.clip(x[rows] @ self.weights, -30, 30)))
            self.speed = self.momentum * self.speed - self.lr * x[rows].T @ (guess - label[rows]) / self.batch
            self.weights, self.steps = self.weights + self.speed, self.steps + 1
        x, label = points(2000, seed=2)
        return {"accuracy": float(np.mean((x @ self.weights > 0) == label))}

    def save(self, folder: Path) -> None:
        np.savez(folder / "state.npz", weights=self.weights, speed=self.speed, steps=self.steps)

    def load(self, folder: Path) -> None:
        with np.load(folder / "state.npz", allow_pickle=False) as state:
            self.weights, self.speed, self.steps = state["weights"], state["speed"], int(state["steps"])
