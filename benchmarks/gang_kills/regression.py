"""A small PyTorch training with an adjustable pace. Its result does not depend on how batches are divided, or on random numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hopyard.torch import Data, TorchTrainer


class Regression(TorchTrainer):
    batch_size = 12

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=hyperparameters["lr"])

    def train_dataset(self) -> Data:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(61, 4, generator=generator)
        return x, (x[:, :1] * x[:, 1:2]).tanh()

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return F.mse_loss(model(batch[0]), batch[1])

    def train(self) -> dict[str, float]:
        time.sleep(float(os.environ.get("ELASTIC_PACE", "0")))
        return {**super().train(), "slots": float(self.context.world_size)}
