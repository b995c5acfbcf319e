"""Tests that PyTorch models that hop have the same bits as without hops, optimizers and schedulers included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hopyard import model_hopper
from hopyard.trainer import TrainerContext, TrainerDriver, UserCodeError
from tests.unit.model_hopper import programs
from tests.unit.model_hopper.programs import Arrays, partition, tour, visit
from tests.unit.trainer.trainers import Clock

CONFIG = {"lr": 0.05, "momentum": 0.9}


def model_fn(config: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    return model, {"optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)}


def train_fn(data: Arrays, model: nn.Module, optimizer: dict[str, Any], config: Mapping[str, Any]) -> dict[str, float]:
    x, y = (torch.from_numpy(array) for array in data)
    model.train()
    total = 0.0
    for indices in torch.split(torch.randperm(len(x)), 8):
        optimizer["optimizer"].zero_grad()
        loss = nn.functional.cross_entropy(model(x[indices]), y[indices])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer["optimizer"].step()
        total += loss.item()
    optimizer["scheduler"].step()
    return {"loss": total, "lr": optimizer["optimizer"].param_groups[0]["lr"]}


def evaluate_fn(data: Arrays, model: nn.Module, config: Mapping[str, Any]) -> dict[str, float]:
    assert not model.training
    assert not torch.is_grad_enabled()
    x, y = (torch.from_numpy(array) for array in data)
    return {"accuracy": (model(x).argmax(1) == y).double().mean().item()}


PROGRAM = model_hopper.trainer(
    input_fn=programs.input_fn, model_fn=model_fn, train_fn=train_fn, evaluate_fn=evaluate_fn
)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [partition(tmp_path / f"part{number}.npz", 40, number) for number in range(3)]


def weights(snapshot: Path) -> bytes:
    return (snapshot / "state" / "model" / "torch.pt").read_bytes()


def test_a_hop_gives_the_same_bits_as_none(parts: list[Path], tmp_path: Path) -> None:
    same = [parts[0]] * 3
    hopped = tour(PROGRAM, CONFIG, same, tmp_path)
    driver = TrainerDriver(PROGRAM, clock=Clock())
    driver.start(CONFIG, TrainerContext(seed=3, scratch=tmp_path, inputs=parts[0]))
    stayed = [driver.step() for _ in same]
    driver.save(tmp_path / "stayed")
    assert [r.metrics for r in stayed] == [r.metrics for r in hopped]
    assert weights(tmp_path / "stayed") == weights(tmp_path / "snapshot-2")


def test_two_tours_give_the_same_bytes(parts: list[Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        torch.manual_seed(hash(name))
        tour(PROGRAM, CONFIG, parts, tmp_path / name)
    assert weights(tmp_path / "a" / "snapshot-2") == weights(tmp_path / "b" / "snapshot-2")


def test_an_evaluation_neither_learns_nor_moves(parts: list[Path], tmp_path: Path) -> None:
    tour(PROGRAM, CONFIG, parts[:1], tmp_path)
    before = weights(tmp_path / "snapshot-0")
    report = visit(PROGRAM, CONFIG, parts[1], tmp_path, snapshot=tmp_path / "snapshot-0", mode="evaluate")
    assert report.examples == 40
    assert 0 <= report.metrics["accuracy"] <= 1
    assert weights(tmp_path / "snapshot-0") == before


def test_a_changed_learning_rate_is_in_force_in_the_next_unit(parts: list[Path], tmp_path: Path) -> None:
    visit(PROGRAM, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    report = visit(PROGRAM, {**CONFIG, "lr": 0.5}, parts[0], tmp_path, snapshot=tmp_path / "saved")
    assert report.metrics["lr"] == pytest.approx(0.5 * 0.9 * 0.9)


def test_an_optimizer_without_a_state_is_refused(parts: list[Path], tmp_path: Path) -> None:
    program = model_hopper.trainer(
        input_fn=programs.input_fn,
        model_fn=lambda config: (nn.Linear(4, 2), "sgd"),
        train_fn=lambda *given: {},
    )
    with pytest.raises(UserCodeError, match="without state_dict"):
        visit(program, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")


def test_a_snapshot_of_other_optimizers_is_refused(parts: list[Path], tmp_path: Path) -> None:
    visit(PROGRAM, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    other = model_hopper.trainer(
        input_fn=programs.input_fn, model_fn=lambda config: model_fn(config)[0], train_fn=lambda *given: {}
    )
    with pytest.raises(UserCodeError, match=r"the snapshot has \['optimizer', 'scheduler'\]"):
        visit(other, CONFIG, parts[0], tmp_path, snapshot=tmp_path / "saved")
