"""Programs written as the functions of Cerebro, for the tests of model hopping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hopyard import model_hopper
from hopyard.trainer import IterationReport, TrainerContext, TrainerDriver
from tests.unit.trainer.trainers import Clock

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
READ: list[str] = []


def input_fn(path: Path) -> Arrays:
    READ.append(path.name)
    with np.load(path) as file:
        return file["x"], file["y"]


def partition(path: Path, examples: int, seed: int) -> Path:
    """Write a partition with examples of two linearly separable classes, and return its path."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(examples, 4)).astype(np.float32)
    np.savez(path, x=x, y=(x.sum(axis=1) > 0).astype(np.int64))
    return path


class Mean:
    """A running mean: a model with its own methods to save and load it."""

    def __init__(self, rate: float) -> None:
        self.rate, self.value = rate, 0.0

    def save(self, directory: Path) -> None:
        (directory / "mean").write_text(repr(self.value))

    def load(self, directory: Path) -> None:
        self.value = float((directory / "mean").read_text())


def mean_model(config: Mapping[str, Any]) -> Mean:
    return Mean(config["rate"])


def mean_train(data: Arrays, model: Mean, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
    model.value += config["rate"] * (float(data[0].mean()) + float(np.random.normal()) - model.value)
    return {"value": model.value}


def mean_evaluate(data: Arrays, model: Mean, config: Mapping[str, Any]) -> dict[str, float]:
    return {"error": float(np.abs(data[0] - model.value).mean())}


MEAN = model_hopper.trainer(input_fn=input_fn, model_fn=mean_model, train_fn=mean_train, evaluate_fn=mean_evaluate)


def visit(
    program: type[model_hopper.HoppingTrainer],
    config: Mapping[str, Any],
    part: Path | None,
    scratch: Path,
    *,
    snapshot: Path | None = None,
    save: Path | None = None,
    mode: Any = "train",
    seed: int = 3,
) -> IterationReport:
    """Train one unit, or evaluate once, in a new trainer from `snapshot`; write the new snapshot to `save`. Return the report."""
    driver = TrainerDriver(program, clock=Clock())
    driver.start(config, TrainerContext(seed=seed, scratch=scratch, inputs=part, mode=mode), snapshot=snapshot)
    report = driver.step()
    if save is not None:
        driver.save(save)
    driver.close()
    return report


def tour(
    program: type[model_hopper.HoppingTrainer], config: Mapping[str, Any], parts: list[Path], folder: Path
) -> list[IterationReport]:
    """Train one unit on each partition in turn as model hops do: each in a new trainer from the last snapshot. Return the reports."""
    snapshot, reports = None, []
    for number, part in enumerate(parts):
        save = folder / f"snapshot-{number}"
        reports.append(visit(program, config, part, folder, snapshot=snapshot, save=save))
        snapshot = save
    return reports
