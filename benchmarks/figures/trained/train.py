"""A trainer that keeps one core busy: a network with one hidden layer on random data, in NumPy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from hopyard import Trainer

_INPUTS, _HIDDEN, _CLASSES, _BATCH = 256, 128, 10, 64


class Busy(Trainer):
    """A trainer whose epochs have `steps` steps each, with the same work in each step.

    It reports `accuracy`, and the `wall` seconds and this process's `cpu` seconds since the end of the previous epoch.
    """

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        rng = np.random.default_rng(0)
        self.inputs = rng.normal(size=(8192, _INPUTS))
        self.labels = np.argmax(self.inputs @ rng.normal(size=(_INPUTS, _CLASSES)), axis=1)
        rng = np.random.default_rng(self.context.seed)
        self.layers = [rng.normal(size=(_INPUTS, _HIDDEN)) / 16, rng.normal(size=(_HIDDEN, _CLASSES)) / 11]
        self.left = time.perf_counter(), time.process_time()

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.lr, self.steps = hyperparameters["lr"], hyperparameters["steps"]

    def train(self) -> dict[str, float]:
        rng = np.random.default_rng(self.position)
        for _ in range(self.steps):
            rows = rng.integers(0, 6144, _BATCH)
            hidden = np.tanh(self.inputs[rows] @ self.layers[0])
            scores = np.exp(hidden @ self.layers[1])
            error = scores / scores.sum(axis=1, keepdims=True)
            error[np.arange(_BATCH), self.labels[rows]] -= 1
            back = (error @ self.layers[1].T) * (1 - hidden**2)
            self.layers[1] -= self.lr / _BATCH * hidden.T @ error
            self.layers[0] -= self.lr / _BATCH * self.inputs[rows].T @ back
        guess = np.argmax(np.tanh(self.inputs[6144:] @ self.layers[0]) @ self.layers[1], axis=1)
        (wall, cpu), self.left = self.left, (time.perf_counter(), time.process_time())
        return {
            "accuracy": float(np.mean(guess == self.labels[6144:])),
            "wall": self.left[0] - wall,
            "cpu": self.left[1] - cpu,
        }

    def save(self, directory: Path) -> None:
        np.savez(directory / "layers.npz", *self.layers)

    def load(self, directory: Path) -> None:
        with np.load(directory / "layers.npz") as saved:
            self.layers = [saved["arr_0"], saved["arr_1"]]
