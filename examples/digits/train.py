"""A small convolutional network on scikit-learn's handwritten digits (1797 images of 8 x 8).

python examples/digits/train.py                     trains one configuration, without a cluster
hopyard run examples/digits/experiment.yaml         a search over configurations
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from hopyard.local import fit
from hopyard.torch import TorchTrainer
from hopyard.trainer import IterationReport

Batch = tuple[Tensor, Tensor]


@cache  # runs in the same process read the data once
def digits() -> tuple[Batch, Batch]:
    """Return images (n, 1, 8, 8) in 0 .. 1 and labels, for training and (every fifth image) for evaluation."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels, dtype=torch.int64)
    held_out = torch.arange(len(y)) % 5 == 0
    return (x[~held_out], y[~held_out]), (x[held_out], y[held_out])


class DigitsTrainer(TorchTrainer):
    unit: ClassVar = "epoch"

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        channels = hyperparameters["channels"]
        return nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(hyperparameters["dropout"]),
            nn.Linear(8 * channels, 10),
        )

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(),
            lr=hyperparameters["lr"],
            momentum=hyperparameters["momentum"],
            weight_decay=hyperparameters["weight_decay"],
        )

    def train_dataset(self) -> Batch:
        return digits()[0]

    def eval_dataset(self) -> Batch:
        return digits()[1]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels = batch
        return {"accuracy": (model(images).argmax(dim=1) == labels).double().mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains one configuration without a cluster.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--snapshots", help="keep snapshots in this directory and continue from them")
    arguments = vars(parser.parse_args())
    epochs, seed, snapshots = (arguments.pop(name) for name in ("epochs", "seed", "snapshots"))

    def show(report: IterationReport) -> None:
        accuracy, loss = report.metrics["accuracy"], report.metrics["loss"]
        print(f"epoch {report.position:3d}  accuracy {accuracy:.4f}  loss {loss:.4f}  {report.seconds:.2f} s")

    torch.set_num_threads(1)  # the images are too small for several threads
    fit(DigitsTrainer, arguments, until=epochs, seed=seed, snapshot_directory=snapshots, on_report=show)


if __name__ == "__main__":
    main()
