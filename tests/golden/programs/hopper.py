"""A program whose models hop: a sum over the numbers of the partitions that they have visited."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard import model_hopper


class Model:
    """What hops: one number."""

    def __init__(self) -> None:
        self.sum = 0.0

    def save(self, directory: Path) -> None:
        (directory / "sum.json").write_text(json.dumps(self.sum))

    def load(self, directory: Path) -> None:
        self.sum = json.loads((directory / "sum.json").read_text())


def input_fn(path: Path) -> list[float]:
    numbers: list[float] = json.loads(path.read_text())
    return numbers


def model_fn(config: Mapping[str, Any]) -> Model:
    return Model()


def train_fn(data: list[float], model: Model, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
    time.sleep(0.02)
    model.sum += config["lr"] * sum(data)
    return {"sum": model.sum}


def evaluate_fn(data: list[float], model: Model, config: Mapping[str, Any]) -> dict[str, float]:
    return {"accuracy": 1.0 / (1.0 + abs(sum(data) - model.sum))}


TRAINER = model_hopper.trainer(input_fn=input_fn, model_fn=model_fn, train_fn=train_fn, evaluate_fn=evaluate_fn)
