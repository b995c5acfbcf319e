"""The training that all contenders of benchmarks/stage_tree_live.py share: the network, its data, and a log line per epoch."""

from __future__ import annotations

import os
import time
from functools import cache

import torch
from data import load
from torch import Tensor, nn

CHANNELS, TRAINED, EVALUATED = 8, 4000, 2000


@cache  # a process that trains several trials reads the data once
def images(first: int, count: int) -> tuple[Tensor, Tensor]:
    pixels, labels = load("train", first, first + count)
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def train_images() -> tuple[Tensor, Tensor]:
    return images(0, TRAINED)


def evaluation_images() -> tuple[Tensor, Tensor]:
    return images(TRAINED, EVALUATED)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # 14 x 14 -> 7 x 7
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # 7 x 7 -> 3 x 3
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(2 * CHANNELS * 3 * 3, 10),
    )


def accuracy(output: Tensor, labels: Tensor) -> Tensor:
    return (output.argmax(dim=1) == labels).double().mean()


def line(trial: str, position: int, accuracy: float, began: float, cpu: float) -> None:
    """Write a log line for a trained and evaluated epoch: trial, position, accuracy, start, end, CPU seconds.

    `began` and `cpu` are the wall-clock time and this process's CPU time at the start of the epoch, in seconds.
    """
    with open(os.path.join(os.environ["EPOCHS_LOG"], f"{os.getpid()}.log"), "a") as log:
        log.write(f"{trial} {position} {accuracy!r} {began!r} {time.time()!r} {time.process_time() - cpu!r}\n")
