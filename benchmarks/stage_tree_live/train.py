"""Hopyard's trainer of benchmarks/stage_tree_live.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from network import accuracy, evaluation_images, line, network, train_images
from torch import Tensor, nn
from torch.nn import functional as F

from hopyard.torch import TorchTrainer

Batch = tuple[Tensor, Tensor]


class Fashion(TorchTrainer):
    """A trainer whose position is the epoch."""

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        return network()

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=hyperparameters["lr"], momentum=hyperparameters["momentum"])

    def train_dataset(self) -> Batch:
        return train_images()

    def eval_dataset(self) -> Batch:
        return evaluation_images()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {"accuracy": accuracy(model(batch[0]), batch[1])}

    def train(self) -> dict[str, float]:
        self._began = time.time(), time.process_time()
        return super().train()

    def evaluate(self) -> dict[str, float]:
        found = super().evaluate()
        line(self.context.job, self.position, found["accuracy"], *self._began)
        return found
