"""A network with one hidden layer on scikit-learn's handwritten digits, in numpy, with group lasso, which switches hidden units off."""

from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from hopyard.trainer import Trainer

Floats = NDArray[np.float64]


@cache  # runs in the same process read the data once
def digits() -> tuple[Floats, Floats]:
    """Return images (n, 64) in 0 .. 1 and their classes (n, 10), each 0 or 1."""
    images, labels = load_digits(return_X_y=True)
    return np.asarray(images) / 16, np.eye(10)[labels]


class SparseDigits(Trainer):
    """Trains one epoch per iteration. Reports the accuracy on every fifth image, and the fraction of hidden units that are off."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        rng, hidden = np.random.default_rng(self.context.seed), int(hyperparameters["hidden"])
        self.inner = rng.normal(0, 0.15, (65, hidden))
        self.outer = rng.normal(0, 0.15, (hidden + 1, 10))
        self.epoch = 0

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.lr, self.batch, self.group_lasso = (hyperparameters[name] for name in ("lr", "batch", "group_lasso"))

    def forward(self, images: Floats) -> tuple[Floats, Floats, Floats]:
        inputs = np.column_stack([images, np.ones(len(images))])
        hidden = np.column_stack([np.maximum(inputs @ self.inner, 0), np.ones(len(images))])
        odds = np.exp(np.clip(hidden @ self.outer, -50, 50))
        return inputs, hidden, odds / odds.sum(axis=1, keepdims=True)

    def train(self) -> Mapping[str, float]:
        images, classes = digits()
        held_out = np.arange(len(images)) % 5 == 0
        order = np.random.default_rng((self.context.seed, self.epoch)).permutation(np.flatnonzero(~held_out))
        for some in np.array_split(order, len(order) // self.batch):
            inputs, hidden, guess = self.forward(images[some])
            error = (guess - classes[some]) / len(some)
            back = (error @ self.outer[:-1].T) * (hidden[:, :-1] > 0)
            self.outer -= self.lr * hidden.T @ error
            self.inner -= self.lr * inputs.T @ back
            # The proximal step of group lasso shortens the weights of each unit; a unit without weights is off.
            length = np.linalg.norm(self.inner, axis=0)
            self.inner *= np.maximum(1 - self.lr * self.group_lasso / np.maximum(length, 1e-12), 0)
        self.epoch += 1
        right = self.forward(images[held_out])[2].argmax(axis=1) == classes[held_out].argmax(axis=1)
        return {"accuracy": float(right.mean()), "sparsity": float((~self.inner.any(axis=0)).mean())}

    def save(self, folder: Path) -> None:
        np.savez(folder / "state.npz", inner=self.inner, outer=self.outer, epoch=self.epoch)

    def load(self, folder: Path) -> None:
        with np.load(folder / "state.npz", allow_pickle=False) as state:
            self.inner, self.outer, self.epoch = state["inner"], state["outer"], int(state["epoch"])
