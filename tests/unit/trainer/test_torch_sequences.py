"""Tests that TorchTrainer follows sequences by unit and by step, with the same bits after any suspend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from hopyard.sequences import Cosine, Exponential, MultiStep, Paced, Warmup
from hopyard.trainer import TrainerDriver
from tests.unit.trainer.torch_trainers import Base
from tests.unit.trainer.trainers import Clock, context

LAST = 11
LR = Warmup(3, 0.1, then=Cosine(t_max=8)).written()


class Noted(Base):
    """A training that records the values of each optimizer step: three steps to an iteration, seven to an epoch."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        super().build(hyperparameters)
        self.noted: list[tuple[float, float, int]] = []

    def train_batch(self, batch: Any) -> Tensor:
        group = self.optimizer.param_groups[0]
        self.noted.append((group["lr"], group.get("momentum") or group["betas"][0], len(batch[1])))
        return super().train_batch(batch)


class NotedAdam(Noted):
    def build_optimizer(self, model: torch.nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=hyperparameters["lr"], betas=(hyperparameters["momentum"], 0.99))


class Epochs(Noted):
    unit: ClassVar[Any] = "epoch"
    unit_per_iteration = 2


CONFIGURATION = {
    "lr": LR,
    "momentum": MultiStep(milestones=(4, 7), values=(0.5, 0.8, 0.9)).written(),
    "batch_size": MultiStep(8, (5,), 2).written(),
}


def _train(
    kind: type[Noted], tmp_path: Path, stops: list[int], configuration: Mapping[str, Any] = CONFIGURATION
) -> Any:
    """Train to each stop, each time from the last snapshot. Return the values of the steps, the losses, and the weights at the end."""
    noted, losses, weights, snapshot = list[Any](), dict[int, float](), dict[str, Tensor](), None
    for number, stop in enumerate(stops):
        driver = TrainerDriver(kind, clock=Clock())
        driver.start(configuration, context(tmp_path), snapshot=snapshot)
        while driver.position < stop:
            report = driver.step(until=stop)
            losses[report.position] = report.metrics["loss"]
        snapshot = tmp_path / f"{kind.__name__}-{stops}-{number}"
        driver.save(snapshot)
        trainer = driver.trainer
        assert isinstance(trainer, Noted)
        noted += trainer.noted
        weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    return noted, losses, weights


@pytest.mark.parametrize("kind", [Noted, NotedAdam])
def test_each_step_uses_the_values_of_its_unit(kind: type[Noted], tmp_path: Path) -> None:
    noted, _, _ = _train(kind, tmp_path, [LAST])
    lr = Warmup(3, 0.1, then=Cosine(t_max=8))
    momentum, size = MultiStep(milestones=(4, 7), values=(0.5, 0.8, 0.9)), MultiStep(8, (5,), 2)
    expected = [(lr.value(at), momentum.value(at), size.value(at)) for at in range(LAST)]
    # An epoch has 53 examples: five batches of 8, one of the remaining 13, then a new epoch.
    assert [step[2] for step in noted] == [8, 8, 8, 8, 8, 13, 16, 16, 16, 5, 16]
    assert [step[:2] for step in noted] == [step[:2] for step in expected]


@pytest.mark.parametrize("kind", [Noted, NotedAdam])
@pytest.mark.parametrize("stops", [[1], [4], [6], [8], list(range(1, LAST))], ids=str)
def test_a_suspend_at_any_position_changes_no_bit(kind: type[Noted], stops: list[int], tmp_path: Path) -> None:
    noted, losses, weights = _train(kind, tmp_path, [LAST])
    again, parts, state = _train(kind, tmp_path, [*stops, LAST])
    assert again == noted
    assert parts[LAST] == losses[LAST]
    assert all(torch.equal(weights[name], state[name]) for name in weights)


def test_sequences_of_steps_inside_epochs(tmp_path: Path) -> None:
    lr = Exponential(0.1, 0.95)
    configuration = {"lr": Paced(lr, "step").written(), "momentum": 0.9, "batch_size": MultiStep(8, (1,), 2).written()}
    noted, losses, _ = _train(Epochs, tmp_path, [4], configuration)
    assert [step[0] for step in noted] == [lr.value(at) for at in range(len(noted))]
    assert [step[2] for step in noted] == [8] * 6 + [5] + [16, 16, 16, 5] * 3
    again, parts, _ = _train(Epochs, tmp_path, [1, 3, 4], configuration)
    assert again == noted
    assert parts[4] == losses[4]
