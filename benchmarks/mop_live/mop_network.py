"""The training that all contenders of benchmarks/mop_live.py share: a network on images of Fashion-MNIST, from files of arrays.

Each contender trains with `train_pass`, so contenders differ only in where the data and the models are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]

CHANNELS: Final = 8
CONFIGURATIONS: Final[list[dict[str, Any]]] = [
    {"lr": lr, "batch_size": size, "weight_decay": decay}
    for lr, size, decay in product((0.1, 0.05, 0.02, 0.01), (64, 256), (0.0, 1e-4))
]


def read(path: Path) -> Batch:
    """Return the images and labels in a file."""
    with np.load(path) as arrays:
        return torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # 14 x 14 -> 7 x 7
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # 7 x 7 -> 3 x 3
        nn.Flatten(),
        nn.Linear(2 * CHANNELS * 3 * 3, 10),
    )


def optimizer_of(model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        model.parameters(), lr=hyperparameters["lr"], momentum=0.9, weight_decay=hyperparameters["weight_decay"]
    )


def train_pass(model: nn.Module, optimizer: torch.optim.Optimizer, data: Batch, batch_size: int) -> None:
    """Train once on each of the images, in an order drawn from torch's random generator."""
    x, y = data
    model.train()
    for batch in torch.split(torch.randperm(len(y)), batch_size):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def accuracy(model: nn.Module, data: Batch) -> float:
    """Return the share of images that the model classifies correctly."""
    model.eval()
    with torch.no_grad():
        batches = zip(*(torch.split(one, 512) for one in data), strict=True)
        right = [(model(x).argmax(dim=1) == y).sum() for x, y in batches]
    return int(torch.stack(right).sum()) / len(data[1])
