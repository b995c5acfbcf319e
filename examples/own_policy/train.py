"""A network with one hidden layer that classifies two spirals, in numpy: an iteration is 20 steps on the whole set."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopyard.trainer import Trainer


def spirals(points: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points (n, 2) on two noisy spirals and the number of the spiral (n,): 0 or 1."""
    rng = np.random.default_rng(seed)
    which = np.arange(points) % 2
    turn = 3 * np.pi * np.sqrt(rng.random(points))
    radius = np.where(which, turn, -turn) / 10
    xy = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    return xy + rng.normal(0, 0.02, xy.shape), which.astype(float)


class Spirals(Trainer):
    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        rng, hidden = np.random.default_rng(self.context.seed), int(hyperparameters["hidden"])
        self.layers = [rng.normal(0, hyperparameters["scale"], (3, hidden)), rng.normal(0, 0.3, hidden + 1)]
        self.speed = [np.zeros_like(layer) for layer in self.layers]

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.lr, self.momentum = hyperparameters["lr"], hyperparameters["momentum"]

    def forward(self, xy: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        inputs = np.column_stack([xy, np.ones(len(xy))])
        hidden = np.column_stack([np.tanh(inputs @ self.layers[0]), np.ones(len(xy))])
        return inputs, hidden, 1 / (1 + np.exp(-np.clip(hidden @ self.layers[1], -30, 30)))

    def train(self) -> Mapping[str, float]:
        xy, which = spirals(400, seed=1)
        for _ in range(20):
            inputs, hidden, guess = self.forward(xy)
            error = (guess - which) / len(which)
            back = np.outer(error, self.layers[1][:-1]) * (1 - hidden[:, :-1] ** 2)
            for index, gradient in enumerate((inputs.T @ back, hidden.T @ error)):
                self.speed[index] = self.momentum * self.speed[index] - self.lr * gradient
                self.layers[index] = self.layers[index] + self.speed[index]
        xy, which = spirals(400, seed=2)
        guess = self.forward(xy)[2]
        return {
            "loss": float(-np.mean(np.log(np.where(which > 0, guess, 1 - guess)))),
            "accuracy": float(np.mean((guess > 0.5) == which)),
        }

    def save(self, folder: Path) -> None:
        np.savez(folder / "state.npz", *self.layers, *self.speed)

    def load(self, folder: Path) -> None:
        with np.load(folder / "state.npz", allow_pickle=False) as state:
            arrays = [state[name] for name in state.files]
        self.layers, self.speed = arrays[:2], arrays[2:]
