"""A small convolutional network on 5,000 images of Fashion-MNIST, at 14 x 14 pixels.

python examples/fashion_mnist/train.py                  one configuration, here, without a cluster
hopyard run examples/fashion_mnist/experiment.yaml      a search over configurations
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import torch
from data import DataMissing, load
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR

from hopyard.local import fit
from hopyard.torch import TorchTrainer
from hopyard.trainer import IterationReport

Batch = tuple[Tensor, Tensor]


@cache  # runs in the same process read the data once
def images(part: str, first: int, last: int) -> Batch:
    pixels, labels = load(part, first, last)
    return torch.from_numpy(pixels), torch.from_numpy(labels)


class FashionTrainer(TorchTrainer):
    # One position, the unit of the policy and the experiment file, is one epoch.
    unit: ClassVar = "epoch"

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        channels = hyperparameters["channels"]
        return nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),  # 14 x 14 -> 7 x 7
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),  # 7 x 7 -> 3 x 3
            nn.Flatten(),
            nn.Dropout(hyperparameters["dropout"]),
            nn.Linear(2 * channels * 3 * 3, 10),
        )

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(),
            lr=hyperparameters["lr"],
            momentum=hyperparameters["momentum"],
            weight_decay=hyperparameters["weight_decay"],
        )

    def build_scheduler(self, optimizer: torch.optim.Optimizer, hyperparameters: Mapping[str, Any]) -> ExponentialLR:
        # Stepped once per epoch; its state is part of the snapshot.
        return ExponentialLR(optimizer, hyperparameters["decay"])

    # The search compares configurations on images that none was trained on. The package's 10,000 test images remain
    # unused: they are for the one configuration that the search finds.
    def train_dataset(self) -> Batch:
        return images("train", 0, 5000)

    def eval_dataset(self) -> Batch:
        return images("train", 5000, 7000)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        pixels, labels = batch
        return F.cross_entropy(model(pixels), labels)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        pixels, labels = batch
        return {"accuracy": (model(pixels).argmax(dim=1) == labels).double().mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains one configuration without a cluster.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--decay", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=16)
    arguments = vars(parser.parse_args())
    epochs, seed = arguments.pop("epochs"), arguments.pop("seed")

    def show(report: IterationReport) -> None:
        accuracy, loss = report.metrics["accuracy"], report.metrics["loss"]
        print(f"epoch {report.position:3d}  accuracy {accuracy:.4f}  loss {loss:.4f}  {report.seconds:.2f} s")

    torch.set_num_threads(1)  # the images are too small for several threads
    try:
        images("train", 0, 5000)
    except DataMissing as error:
        sys.exit(f"error: {error}")
    fit(FashionTrainer, arguments, until=epochs, seed=seed, on_report=show)


if __name__ == "__main__":
    main()
