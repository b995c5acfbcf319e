"""A model of a given size that trains nothing, and reports when its units begin and end."""

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
    """A model that consists of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, dtype=np.uint8)

    def save(self, directory: Path) -> None:
        self.values.tofile(directory / "weights")

    def load(self, directory: Path) -> None:
        self.values = np.fromfile(directory / "weights", dtype=np.uint8)


class Hop(model_hopper.HoppingTrainer):
    """A trainer of such a model, which also writes to the file `marks` when its state was saved and loaded."""

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
            model.values[:16] += 1  # a different snapshot after each unit
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
    """Return the seconds to write `size` bytes, fsync, read and hash them, in a file in the current folder."""
    data = memoryview(os.urandom(1 << 20) * (size // (1 << 20) + 1))[:size]
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        began = time.monotonic()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        hashlib.sha256(Path(file.name).read_bytes()).hexdigest()
        return time.monotonic() - began
