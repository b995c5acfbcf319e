"""Trainings that together use everything that a PyTorch snapshot must contain; and a program that runs them.

    python -m tests.unit.trainer.torch_trainers FOLDER STAGE...

trains the given stages of every case one after the other: `0 1 2` without a break, `1` from the snapshot of stage 0.
It prints one JSON document: for each case the reports (floats as hexadecimal text) and the last snapshot's hash.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR, StepLR
from torch.utils.data import Dataset

from hopyard._runtime.snapshot_file import pack
from hopyard.torch import Data, TorchTrainer
from hopyard.trainer import TrainerContext, TrainerDriver

EXAMPLES = 53  # 7 batches of 8 with a remainder, so that stops fall inside an epoch


def examples(count: int = EXAMPLES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 6, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


class Base(TorchTrainer):
    """A training with dropout, batch normalization and SGD with momentum; three steps to an iteration."""

    unit: ClassVar[Any] = "step"
    unit_per_iteration = 3
    batch_size = 8

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        dropout = nn.Dropout(hyperparameters.get("dropout", 0.3))
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), dropout, nn.Linear(16, 2))

    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        momentum = hyperparameters.get("momentum", 0.9)
        return torch.optim.SGD(model.parameters(), lr=hyperparameters["lr"], momentum=momentum, weight_decay=1e-3)

    def train_dataset(self) -> Data:
        return examples()

    def eval_dataset(self) -> Data | None:
        return examples(20)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor | float]:
        return {"accuracy": (model(batch[0]).argmax(1) == batch[1]).float().mean(), "rows": float(len(batch[1]))}


class Steps(Base):
    def build_scheduler(self, optimizer: Any, hyperparameters: Mapping[str, Any]) -> LRScheduler:
        return StepLR(optimizer, step_size=4, gamma=hyperparameters.get("gamma", 0.7))


class Milestones(Base):
    def build_scheduler(self, optimizer: Any, hyperparameters: Mapping[str, Any]) -> LRScheduler:
        return MultiStepLR(optimizer, milestones=[2, 8], gamma=0.5)


class Adam(Base):
    def build_optimizer(self, model: nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=hyperparameters["lr"], amsgrad=True)

    def build_scheduler(self, optimizer: Any, hyperparameters: Mapping[str, Any]) -> LRScheduler:
        return CosineAnnealingLR(optimizer, T_max=20)


class Mixed(Adam):
    """A training in bfloat16 (autocast) with a gradient scaler that changes its scale every other step."""

    amp_dtype = torch.bfloat16

    def build_scaler(self, hyperparameters: Mapping[str, Any]) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, init_scale=1024.0, growth_interval=2)


class NoisyExamples(Dataset[tuple[Tensor, Tensor]]):
    """A data set that augments its examples with Python's and NumPy's generators."""

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = examples()
        return x[index] * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.1)), y[index]


class Epochs(Adam):
    """A training on a map-style data set; an iteration is an epoch."""

    unit: ClassVar[Any] = "epoch"
    unit_per_iteration = 1

    def train_dataset(self) -> Data:
        return NoisyExamples()


@dataclass(frozen=True)
class Case:
    """A training in stages: the positions where they end, and the hyperparameters of each."""

    trainer: type[TorchTrainer]
    stages: tuple[tuple[int, dict[str, Any]], ...]


def _same(*until: int, **hyperparameters: Any) -> tuple[tuple[int, dict[str, Any]], ...]:
    return tuple((position, hyperparameters) for position in until)


CASES: dict[str, Case] = {
    "sgd, batch norm, dropout": Case(Base, _same(6, 15, 24, lr=0.1)),
    "step schedule": Case(Steps, _same(3, 9, 24, lr=0.1)),
    "milestones": Case(Milestones, _same(3, 9, 24, lr=0.1)),
    "adam, cosine schedule": Case(Adam, _same(9, 12, 24, lr=0.01)),
    "mixed precision": Case(Mixed, _same(9, 12, 24, lr=0.01)),
    "epochs of a data set": Case(Epochs, _same(1, 2, 4, lr=0.01, batch_size=20)),
    "batch size and rates change in mid-epoch": Case(
        Steps,
        (
            (3, {"lr": 0.1, "momentum": 0.9, "batch_size": 8, "gamma": 0.7}),
            (9, {"lr": 0.03, "momentum": 0.9, "batch_size": 5, "gamma": 0.7}),
            (24, {"lr": 0.03, "momentum": 0.5, "batch_size": 13, "gamma": 0.9}),
        ),
    ),
}


def run(case: Case, folder: Path, stages: list[int]) -> dict[str, Any]:
    """Train some stages of a case in this process, from and to snapshots in `folder`. Return the reports and the last hash."""
    driver = TrainerDriver(case.trainer, clock=time.monotonic)
    first = stages[0]
    with tempfile.TemporaryDirectory() as scratch:
        context = TrainerContext(seed=11, scratch=Path(scratch))
        driver.start(case.stages[first][1], context, snapshot=folder / f"after-{first - 1}" if first else None)
        reports = {}
        for stage in stages:
            until, hyperparameters = case.stages[stage]
            driver.set_hyperparameters(hyperparameters)
            while driver.position < until:
                report = driver.step(until=until)
                reports[report.position] = {name: value.hex() for name, value in report.metrics.items()}
        driver.save(folder / f"after-{stages[-1]}")
    return {"reports": reports, "sha256": pack(folder / f"after-{stages[-1]}", folder / "file").sha256}


def main(folder: Path, stages: list[int]) -> None:
    """Run the stages of all cases, and print the JSON document."""
    found = {}
    for number, (name, case) in enumerate(CASES.items()):
        own = folder / str(number)
        own.mkdir(parents=True, exist_ok=True)
        found[name] = run(case, own, stages)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(stage) for stage in sys.argv[2:]])
