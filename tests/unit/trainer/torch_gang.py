"""One training on a changing number of processes, each of which trains several stages, as a spare runner does.

    python -m tests.unit.trainer.torch_gang FOLDER RANK STAGE...

A stage is `NUMBER:SIZE:PORT:UNTIL`: ranks below SIZE train from the snapshot `after-(NUMBER - 1)` to UNTIL, and rank 0 saves
`after-NUMBER` and `reports-NUMBER.json`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from hopyard.torch import Data
from hopyard.trainer import TrainerContext, TrainerDriver
from tests.unit.trainer.torch_trainers import Adam, examples

PER_EPOCH = 8
# The last batch of an epoch has one example: less than one for each rank.
COUNT = 7 * (PER_EPOCH - 1) + 1


class Plain(Adam):
    """A training without chance and without layers that mix examples, so that it is the same on any number of ranks."""

    unit: ClassVar[Any] = "step"
    unit_per_iteration = 3
    batch_size = 7
    smallest_batch = 1

    def build_model(self, hyperparameters: Mapping[str, Any]) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))

    def train_dataset(self) -> Data:
        return examples(COUNT)

    def eval_dataset(self) -> Data | None:
        return examples(21)

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, torch.Tensor | float]:
        return {"accuracy": (model(batch[0]).argmax(1) == batch[1]).float().mean()}

    def train_batch(self, batch: Any) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.2)  # Clips the gradients of the whole batch.
        self.optimizer.step()
        return loss.detach()


def train(folder: Path, number: int, rank: int, size: int, port: int, until: int) -> dict[int, dict[str, float]]:
    """Train one rank's part of a stage, and return its metrics by position."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    driver = TrainerDriver(Plain, clock=time.monotonic)
    reports = {}
    with tempfile.TemporaryDirectory() as scratch:
        context = TrainerContext(seed=11, scratch=Path(scratch), rank=rank, world_size=size)
        driver.start({"lr": 0.05}, context, snapshot=folder / f"after-{number - 1}" if number else None)
        while driver.position < until:
            report = driver.step(until=until)
            reports[report.position] = dict(report.metrics)
        if rank == 0:
            driver.save(folder / f"after-{number}")
            (folder / f"reports-{number}.json").write_text(json.dumps(reports))
        driver.close()
    return reports


def main(folder: Path, rank: int, stages: list[str]) -> None:
    """Train all stages that include this rank."""
    for stage in stages:
        number, size, port, until = map(int, stage.split(":"))
        while number and not (folder / f"reports-{number - 1}.json").exists():
            time.sleep(0.02)
        if rank < size:
            train(folder, number, rank, size, port, until)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
