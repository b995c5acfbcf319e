"""A model of a given size that trains nothing, and says when its units began and ended."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hopyard import model_hopper


class Weights:
    """So many bytes."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, dtype=np.uint8)

    def save(self, directory: Path) -> None:
        self.values.tofile(directory / "weights")

    def load(self, directory: Path) -> None:
        self.values = np.fromfile(directory / "weights", dtype=np.uint8)


class Hop(model_hopper.HoppingTrainer):
    """Says in the file `marks`, too, when its state was saved and loaded."""

    train_data = __file__

    def input_fn(self, path: Path) -> None:
        return None

    def model_fn(self, config: Mapping[str, Any]) -> Any:
        if config["kind"] == "bytes":
            return Weights(config["size"])
        import torch

        with torch.device("meta"):
            model = torch.nn.Linear(config["size"] // 4096, 1024, bias=False)
        model = model.to_empty(device="cpu")
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def train_fn(self, data: None, model: Any, optimizer: Any, config: Mapping[str, Any]) -> dict[str, float]:
        began = time.time()
        if isinstance(model, Weights):
            model.values[:16] += 1  # another snapshot in each unit
        else:
            model.weight.data[0, :16] += 1
        return {"score": 0.0, "began": began, "disk": _disk(config["size"]), "ended": time.time()}

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self._building = time.time()
        super().build(hyperparameters)

    def save(self, directory: Path) -> None:
        began = time.time()
        super().save(directory)
        self._mark(saving=began, saved=time.time())

    def load(self, directory: Path) -> None:
        began = time.time()
        super().load(directory)
        self._mark(building=self._building, loading=began, loaded=time.time())

    def _mark(self, **times: float) -> None:
        with Path(self.hyperparameters["marks"]).open("a") as file:
            file.write(json.dumps({"job": self.context.job, "position": self.position, **times}) + "\n")


def _disk(size: int) -> float:
    """Seconds that write, fsync, read and SHA-256 of so many bytes take where the agent keeps its files."""
    data = memoryview(os.urandom(1 << 20) * (size // (1 << 20) + 1))[:size]
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        began = time.monotonic()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        hashlib.sha256(Path(file.name).read_bytes()).hexdigest()
        return time.monotonic() - began
