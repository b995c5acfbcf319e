"""One rank of a gang that trains one pass over two partitions; the test compares the result with one process.

    python -m tests.unit.model_hopper.gang_ranks FOLDER RANK PORT

Each rank trains from the snapshot `before` in the folder on `part{RANK}.npz`; rank 0 saves `after` and `report.json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from hopyard import model_hopper
from hopyard.trainer import TrainerContext, TrainerDriver
from tests.unit.model_hopper import programs
from tests.unit.model_hopper.programs import Arrays

CONFIG = {"lr": 0.05}
SIZE = 8


def model_fn(config: Mapping[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.Adam(model.parameters(), lr=config["lr"])


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> float:
    """Make one optimizer step and return the loss. Gradients are clipped, so the result depends on which examples are in the batch."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.as_tensor(x)), torch.as_tensor(y))
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    optimizer.step()
    return loss.item()


def train_fn(data: Arrays, model: nn.Module, optimizer: Any, config: Mapping[str, Any]) -> dict[str, float]:
    for x, y in model_hopper.batches(data, SIZE, shuffle=False):
        learn(model, optimizer, x, y)
    # The accuracy of the common model on the partition of this rank.
    with torch.no_grad():
        right = model(torch.as_tensor(data[0])).argmax(1) == torch.as_tensor(data[1])
    return {"accuracy": right.double().mean().item()}


PROGRAM = model_hopper.trainer(input_fn=programs.input_fn, model_fn=model_fn, train_fn=train_fn)


def main(folder: Path, rank: int, port: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    driver = TrainerDriver(PROGRAM, clock=time.monotonic)
    context = TrainerContext(seed=3, scratch=folder, inputs=folder / f"part{rank}.npz", rank=rank, world_size=2)
    driver.start(CONFIG, context, snapshot=folder / "before")
    report = driver.step(until=driver.position + 2)
    if rank == 0:
        driver.save(folder / "after")
        (folder / "report.json").write_text(json.dumps([report.position, dict(report.metrics)]))
    close(driver)


def close(driver: TrainerDriver) -> None:
    """End the run, and check that the parallel model is freed before the process group; otherwise it may wait for ever for a thread."""
    assert isinstance(driver.trainer, model_hopper.HoppingTrainer)
    parallel, leave = weakref.ref(driver.trainer._parallel), dist.destroy_process_group
    held: list[object] = []

    def checked() -> None:
        held.append(parallel())
        leave()

    with mock.patch.object(dist, "destroy_process_group", checked):
        driver.close()
    assert held == [None]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
