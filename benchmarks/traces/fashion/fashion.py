"""A small convolutional network on 5,000 images of Fashion-MNIST at 14 x 14 pixels, similar to the search of Domhan et al.

Run by ../record.py, which copies examples/fashion_mnist/data.py into the folder of this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from data import load
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from hopyard.torch import TorchTrainer

Batch = tuple[Tensor, Tensor]

EPOCHS = 60  # full length of a learning-rate schedule, even if the recording is shorter
ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


@cache  # the process of a slot executes many runs and reads the data once
def images(part: str, first: int, last: int) -> Batch:
    pixels, labels = load(part, first, last)
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def factor(hyperparameters: Mapping[str, Any], epoch: int) -> float:
    """Return the factor of the learning rate in an epoch, counted from 0."""
    match hyperparameters["schedule"]:
        case "constant":
            return 1.0
        case "exponential":
            return float(hyperparameters["decay"] ** epoch)
        case "step":
            return float(hyperparameters["step_factor"] ** (epoch // hyperparameters["step_epochs"]))
        case "inverse":
            return float((1 + hyperparameters["inverse_gamma"] * epoch) ** -hyperparameters["inverse_power"])
        case "cosine":
            return (1 + math.cos(math.pi * min(epoch, EPOCHS) / EPOCHS)) / 2
        case other:
            raise ValueError(f"schedule is {other!r}; allowed: constant, exponential, step, inverse, cosine")


class FashionTrainer(TorchTrainer):
    """A trainer whose position is the epoch. The metric is the accuracy on 2,000 images that it does not train on."""

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        activation = ACTIVATIONS[hyperparameters["activation"]]
        first, second = hyperparameters["filters_1"], hyperparameters["filters_2"]
        flat, layers = second * 3 * 3, []
        if hyperparameters["dense_layers"] == 1:
            units = hyperparameters["dense_units"]
            layers = [nn.Linear(flat, units), activation(), nn.Dropout(hyperparameters["dropout_dense"])]
            flat = units
        model = nn.Sequential(
            nn.Dropout(hyperparameters["dropout_input"]),
            nn.Conv2d(1, first, 3, padding=1),
            activation(),
            nn.MaxPool2d(2),  # 14 x 14 -> 7 x 7
            nn.Conv2d(first, second, 3, padding=1),
            activation(),
            nn.MaxPool2d(2),  # 7 x 7 -> 3 x 3
            nn.Flatten(),
            nn.Dropout(hyperparameters["dropout_conv"]),
            *layers,
            nn.Linear(flat, 10),
        )
        for layer in model:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                fan_in = layer.weight[0].numel()
                nn.init.normal_(layer.weight, std=hyperparameters["init_scale"] * math.sqrt(2 / fan_in))
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # pooling takes a third of the time then
        return model

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(),
            lr=hyperparameters["lr"],
            momentum=hyperparameters["momentum"],
            weight_decay=hyperparameters["weight_decay"],
        )

    def build_scheduler(self, optimizer: torch.optim.Optimizer, hyperparameters: Mapping[str, Any]) -> LambdaLR:
        return LambdaLR(optimizer, lambda epoch: factor(hyperparameters, epoch))

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
