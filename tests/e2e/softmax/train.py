"""Softmax regression on scikit-learn's handwritten digits in numpy: cheap, real, and each result depends on all steps before."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Set
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopyard.trainer import Trainer

Array = NDArray[np.float64]

PACE = float(os.environ.get("SOFTMAX_PACE", "0"))
"""Seconds by which an iteration is slowed down; not part of the configuration, so it changes no result."""

ENOUGH = os.environ.get("SOFTMAX_ENOUGH", "")
"""A file: once it exists, the pace and the limits below no longer apply."""

HELD = os.environ.get("SOFTMAX_HELD", "")
"""JOB:POSITION: this job and later ones train no further than this position until the file ENOUGH exists."""


LATE = int(os.environ.get("SOFTMAX_LATE", "1000000"))
"""From this position on an iteration takes `LATE_SECONDS`, until the file ENOUGH exists."""

LATE_SECONDS = 5.0


@cache
def digits() -> tuple[Array, NDArray[np.int64]]:
    sklearn = find_spec("sklearn")  # Not imported: that takes a second in each process of a run.
    assert sklearn is not None and sklearn.origin is not None  # noqa: PT018
    rows = np.loadtxt(Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return rows[:, :-1] / 16, rows[:, -1].astype(np.int64)


class Softmax(Trainer):
    """Trains one epoch of randomly ordered minibatches per iteration, with momentum."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.rng = np.random.default_rng(self.context.seed)
        self.weights = self.rng.normal(0.0, 0.01, (64, 10))
        self.velocity = np.zeros_like(self.weights)

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.lr, self.momentum = hyperparameters["lr"], hyperparameters["momentum"]

    def train(self) -> Mapping[str, float]:
        if not (ENOUGH and os.path.exists(ENOUGH)):
            self._pause()
            self._hold()
        images, labels = digits()
        held_out = np.arange(len(labels)) % 5 == 0
        x, y = images[~held_out], labels[~held_out]
        for batch in np.array_split(self.rng.permutation(len(y)), 22):
            error = self._probabilities(x[batch])
            error[np.arange(len(batch)), y[batch]] -= 1
            self.velocity = self.momentum * self.velocity - self.lr * (x[batch].T @ error) / len(batch)
            self.weights += self.velocity
        found = self._probabilities(images[held_out])
        right = found[np.arange(len(found)), labels[held_out]]
        return {
            "accuracy": float(np.mean(found.argmax(axis=1) == labels[held_out])),
            "loss": float(-np.mean(np.log(right + 1e-12))),
        }

    def _pause(self) -> None:
        if self.position < LATE:
            time.sleep(PACE)
            return
        end = time.monotonic() + LATE_SECONDS
        while time.monotonic() < end and not os.path.exists(ENOUGH):
            time.sleep(0.05)

    def _hold(self) -> None:
        if HELD:
            job, position = map(int, HELD.split(":"))
            while int(self.context.job) >= job and self.position >= position and not os.path.exists(ENOUGH):
                time.sleep(0.05)

    def _probabilities(self, x: Array) -> Array:
        z = x @ self.weights
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    def save(self, directory: Path) -> None:
        np.save(directory / "weights.npy", self.weights)
        np.save(directory / "velocity.npy", self.velocity)
        (directory / "rng.json").write_text(json.dumps(self.rng.bit_generator.state))

    def load(self, directory: Path) -> None:
        self.weights = np.load(directory / "weights.npy", allow_pickle=False)
        self.velocity = np.load(directory / "velocity.npy", allow_pickle=False)
        self.rng.bit_generator.state = json.loads((directory / "rng.json").read_text())
