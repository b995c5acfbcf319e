"""Hopyard's trainer of benchmarks/mop_live.py, written with Cerebro's functions.

A position is one pass over a partition (policy `mop`) or over all images (policy `default`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mop_network import Batch, accuracy, network, optimizer_of, read, train_pass
from torch import nn

from hopyard import model_hopper


def input_fn(path: Path) -> Batch:
    return read(path)


def model_fn(config: Mapping[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    return model, optimizer_of(model, config)


def train_fn(
    data: Batch, model: nn.Module, optimizer: torch.optim.Optimizer, config: Mapping[str, Any]
) -> dict[str, float]:
    train_pass(model, optimizer, data, config["batch_size"])
    return {}


def evaluate_fn(data: Batch, model: nn.Module, config: Mapping[str, Any]) -> dict[str, float]:
    return {"accuracy": accuracy(model, data)}


Fashion = model_hopper.trainer(
    input_fn=input_fn,
    model_fn=model_fn,
    train_fn=train_fn,
    evaluate_fn=evaluate_fn,
    train_data=os.environ.get("WHOLE_TRAIN"),
    evaluate_data=os.environ.get("WHOLE_EVAL"),
)
