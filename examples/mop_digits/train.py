"""A network with one hidden layer on scikit-learn's handwritten digits, in numpy, trained in units over partitions of the data.

python train.py digits.npz                  writes the data into a file, to be cut by `hopyard data split`
hopyard run experiment.yaml                 trains, once the partitions are registered; see README.md
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopyard import model_hopper

Floats = NDArray[np.float64]
Data = tuple[Floats, NDArray[np.int64]]


class Network:
    """A network with two layers of weights, and methods to save and load it for model hops."""

    def __init__(self, hidden: int) -> None:
        self.layers = [np.random.normal(0, 0.1, (65, hidden)), np.random.normal(0, 0.1, (hidden + 1, 10))]

    def forward(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the hidden units of images (n, 64) and the probabilities of their classes (n, 10)."""
        hidden = np.tanh(_with_one(x) @ self.layers[0])
        scores = np.exp(_with_one(hidden) @ self.layers[1])
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def save(self, directory: Path) -> None:
        np.savez(directory / "layers.npz", *self.layers)

    def load(self, directory: Path) -> None:
        with np.load(directory / "layers.npz") as file:
            self.layers = [file["arr_0"], file["arr_1"]]


def input_fn(path: Path) -> Data:
    with np.load(path) as file:
        return file["x"] / 16, file["y"]


def model_fn(config: Mapping[str, Any]) -> Network:
    return Network(int(config["hidden"]))


def train_fn(data: Data, model: Network, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
    x, y = data
    losses = []
    for batch in np.array_split(np.random.permutation(len(y)), max(len(y) // 16, 1)):
        hidden, chances = model.forward(x[batch])
        losses.append(-np.log(chances[np.arange(len(batch)), y[batch]]).mean())
        wrong = (chances - np.eye(10)[y[batch]]) / len(batch)
        back = (wrong @ model.layers[1][:-1].T) * (1 - hidden**2)
        model.layers[1] -= config["lr"] * (_with_one(hidden).T @ wrong)
        model.layers[0] -= config["lr"] * (_with_one(x[batch]).T @ back)
    return {"train_loss": float(np.mean(losses))}


def evaluate_fn(data: Data, model: Network, config: Mapping[str, Any]) -> dict[str, float]:
    x, y = data
    return {"accuracy": float((model.forward(x)[1].argmax(axis=1) == y).mean())}


def _with_one(x: Floats) -> Floats:
    return np.hstack([x, np.ones((len(x), 1))])


TRAINER = model_hopper.trainer(input_fn=input_fn, model_fn=model_fn, train_fn=train_fn, evaluate_fn=evaluate_fn)

if __name__ == "__main__":
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    np.savez(sys.argv[1], x=images, y=labels)
