"""A small network on scikit-learn's handwritten digits whose state contains everything that a branch must continue with.

Batch normalization, dropout, shuffled batches, SGD with momentum or Adam. A position is an optimizer step, so that sequences
change values within an epoch. BRANCHING_LOG names a folder where each run records what it trained; BRANCHING_PACE slows
each step down. Neither changes a result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopyard.torch import TorchTrainer

Batch = tuple[Tensor, Tensor]

PACE = float(os.environ.get("BRANCHING_PACE", "0"))
LOG = os.environ.get("BRANCHING_LOG", "")


@cache
def digits() -> tuple[Batch, Batch]:
    sklearn = find_spec("sklearn")  # Not imported: that takes a second in each process of a run.
    assert sklearn is not None and sklearn.origin is not None  # noqa: PT018
    rows = np.loadtxt(Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    x = torch.tensor(rows[:, :-1], dtype=torch.float32) / 16
    y = torch.tensor(rows[:, -1], dtype=torch.int64)
    return (x[:350], y[:350]), (x[1600:], y[1600:])


class Branching(TorchTrainer):
    unit: ClassVar = "step"

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        super().build(hyperparameters)
        name = f"{time.time_ns()}-{self.context.job}-{os.getpid()}"
        self.log = Path(LOG) / name if LOG else None

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 10))

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        lr, momentum = hyperparameters["lr"], hyperparameters["momentum"]
        if hyperparameters["optimizer"] == "adam":
            return torch.optim.Adam(model.parameters(), lr=lr, betas=(momentum, 0.99))
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)

    def train_dataset(self) -> Batch:
        return digits()[0]

    def eval_dataset(self) -> Batch:
        return digits()[1]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {"accuracy": (model(batch[0]).argmax(dim=1) == batch[1]).double().mean()}

    def train(self) -> dict[str, float]:
        time.sleep(PACE)
        found = super().train()
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{self.position + 1}\n")
        return found
