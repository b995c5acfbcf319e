"""The same experiment for tests that start many processes: a softmax regression in numpy, which imports ten times faster.

Its state also contains everything that a branch must continue with: shuffled batches, input noise, and momentum or Adam.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Set
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hopyard.trainer import Trainer

Array = NDArray[np.float64]
Batch = tuple[Array, NDArray[np.int64]]

PACE = float(os.environ.get("BRANCHING_PACE", "0"))
LOG = os.environ.get("BRANCHING_LOG", "")
HELD = os.environ.get("BRANCHING_HELD", "")
"""A file: while it exists, nothing is trained."""

ARRAYS = ("weights", "mean", "square", "order")


@cache
def digits() -> tuple[Batch, Batch]:
    sklearn = find_spec("sklearn")  # Not imported: that takes a second in each process of a run.
    assert sklearn is not None and sklearn.origin is not None  # noqa: PT018
    rows = np.loadtxt(Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",", max_rows=550)
    x, y = rows[:, :-1] / 16, rows[:, -1].astype(np.int64)
    return (x[:350], y[:350]), (x[350:], y[350:])


class Branching(Trainer):
    unit: ClassVar = "step"

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        name = f"{time.time_ns()}-{self.context.job}-{os.getpid()}"
        self.log = Path(LOG) / name if LOG else None
        self.rng = np.random.default_rng(self.context.seed)
        self.weights = self.rng.normal(0.0, 0.01, (64, 10))
        self.mean, self.square = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.order = np.empty(0, np.int64)

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.given = dict(hyperparameters)

    def train(self) -> Mapping[str, float]:
        time.sleep(PACE)
        while os.path.exists(HELD):
            time.sleep(0.02)
        (x, y), held_out = digits()
        if not len(self.order):
            self.order = self.rng.permutation(len(y))
        batch, self.order = np.split(self.order, [self.given["batch_size"]])
        noisy = x[batch] * (self.rng.random((len(batch), 64)) < 0.7)
        found, loss = self._probabilities(noisy, y[batch])
        found[np.arange(len(batch)), y[batch]] -= 1
        self._step(noisy.T @ found / len(batch))
        judged, other_loss = self._probabilities(*held_out)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{self.position + 1}\n")
        accuracy = float(np.mean(judged.argmax(axis=1) == held_out[1]))
        return {"train_loss": loss, "loss": other_loss, "accuracy": accuracy}

    def _step(self, gradient: Array) -> None:
        lr, momentum = self.given["lr"], self.given["momentum"]
        if self.given["optimizer"] == "adam":
            self.mean = momentum * self.mean + (1 - momentum) * gradient
            self.square = 0.99 * self.square + 0.01 * gradient**2
            self.weights -= lr * self.mean / (np.sqrt(self.square) + 1e-8)
        else:
            self.mean = momentum * self.mean + gradient
            self.weights -= lr * self.mean

    def _probabilities(self, x: Array, y: NDArray[np.int64]) -> tuple[Array, float]:
        z = x @ self.weights
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z = np.asarray(z / z.sum(axis=1, keepdims=True))
        return z, float(-np.mean(np.log(z[np.arange(len(y)), y] + 1e-12)))

    def save(self, directory: Path) -> None:
        for name in ARRAYS:
            np.save(directory / f"{name}.npy", getattr(self, name))
        (directory / "rng.json").write_text(json.dumps(self.rng.bit_generator.state))

    def load(self, directory: Path) -> None:
        for name in ARRAYS:
            setattr(self, name, np.load(directory / f"{name}.npy", allow_pickle=False))
        self.rng.bit_generator.state = json.loads((directory / "rng.json").read_text())
