"""Tests of sequences in a training: `setup` at each boundary where a value changes, and the same bits after any suspend."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from hopyard.sequences import Cosine, Exponential, Linear, MultiStep, Paced, Warmup
from hopyard.trainer import DriverUsageError, Trainer, TrainerDriver, read_header
from tests.unit.trainer.trainers import Clock, Diary, context

pytestmark = pytest.mark.quick

LAST = 9
LR = Warmup(3, 0.1, then=Exponential(gamma=0.9)).written()
BATCH = MultiStep(2, (4, 6), 2).written()


class Descent(Trainer):
    """A least-squares fit by noisy gradient descent with momentum."""

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.rng = np.random.default_rng(self.context.seed)
        self.x, self.y = self.rng.normal(size=(64, 3)), self.rng.normal(size=64)
        self.w, self.v = np.zeros(3), np.zeros(3)
        self.changes: list[tuple[int, list[str]]] = []

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        self.changes.append((self.position, sorted(changed)))

    def train(self) -> dict[str, float]:
        h = self.hyperparameters
        chosen = self.rng.integers(0, 64, size=h["batch_size"])
        gradient = self.x[chosen].T @ (self.x[chosen] @ self.w - self.y[chosen]) / len(chosen)
        self.v = h["momentum"] * self.v - h["lr"] * gradient
        self.w = self.w + self.v
        return {"loss": float(np.mean((self.x @ self.w - self.y) ** 2)), "lr": h["lr"], "rows": h["batch_size"]}

    def save(self, directory: Path) -> None:
        state = {"w": self.w.tolist(), "v": self.v.tolist(), "rng": self.rng.bit_generator.state}
        (directory / "state.json").write_text(json.dumps(state))

    def load(self, directory: Path) -> None:
        state = json.loads((directory / "state.json").read_text())
        self.w, self.v = np.array(state["w"]), np.array(state["v"])
        self.rng.bit_generator.state = state["rng"]


CONFIGURATION = {"lr": LR, "batch_size": BATCH, "momentum": 0.9}


def _started(kind: type[Trainer], tmp_path: Path, configuration: Mapping[str, Any], **start: Any) -> TrainerDriver:
    driver = TrainerDriver(kind, clock=Clock())
    driver.start(configuration, context(tmp_path), **start)
    return driver


def _curve(driver: TrainerDriver, until: int = LAST) -> dict[int, dict[str, float]]:
    curve = dict[int, dict[str, float]]()
    while driver.position < until:
        report = driver.step(until=until)
        curve[report.position] = dict(report.metrics)
    return curve


def test_setup_comes_at_each_boundary_where_a_value_changes_and_names_what_changed(tmp_path: Path) -> None:
    driver = _started(Descent, tmp_path, CONFIGURATION)
    curve = _curve(driver)
    trainer = driver.trainer
    assert isinstance(trainer, Descent)
    everything = ["batch_size", "lr", "momentum"]
    # The warm-up ends at 0.1 and the exponential starts with it, so no value changes at 3.
    assert trainer.changes == [
        (0, everything), (1, ["lr"]), (2, ["lr"]), (4, ["batch_size", "lr"]), (5, ["lr"]), (6, ["batch_size", "lr"]),
        (7, ["lr"]), (8, ["lr"]),
    ]  # fmt: skip
    assert [curve[at]["rows"] for at in range(1, LAST + 1)] == [2, 2, 2, 2, 4, 4, 8, 8, 8]
    assert [curve[at]["lr"] for at in (1, 2, 3, 4, 5)] == [1 / 30, 2 / 30, 0.1, 0.1, 0.09]


@pytest.mark.parametrize("stop", range(1, LAST))
def test_a_suspend_at_any_boundary_changes_nothing(stop: int, tmp_path: Path) -> None:
    whole = _curve(_started(Descent, tmp_path, CONFIGURATION))
    first = _started(Descent, tmp_path, CONFIGURATION)
    before = _curve(first, stop)
    first.save(tmp_path / "snapshot")
    again = _started(Descent, tmp_path, CONFIGURATION, snapshot=tmp_path / "snapshot", position=stop)
    assert {**before, **_curve(again)} == whole


def test_a_sibling_goes_on_from_the_common_prefix_as_if_trained_alone(tmp_path: Path) -> None:
    other = {**CONFIGURATION, "lr": Warmup(3, 0.1).written()}  # equal to CONFIGURATION up to position 4
    alone = _curve(_started(Descent, tmp_path, other))
    parent = _started(Descent, tmp_path, CONFIGURATION)
    prefix = _curve(parent, 4)
    parent.save(tmp_path / "snapshot")
    child = _started(Descent, tmp_path, other, snapshot=tmp_path / "snapshot", position=4)
    assert {**prefix, **_curve(child)} == alone


def test_the_order_of_calls_and_the_echo(tmp_path: Path) -> None:
    configuration = {"lr": MultiStep(1, (2,), 0.5).written(), "group": {"x": Linear(0, 1, 4).written(), "y": 1}}
    driver = _started(Diary, tmp_path, configuration)
    first, second = driver.step(), driver.step()
    assert first.in_force == {"lr": 1, "group": {"x": 0, "y": 1}}
    assert second.in_force == {"lr": 1, "group": {"x": 0.25, "y": 1}}
    driver.save(tmp_path / "snapshot")
    assert read_header(tmp_path / "snapshot").hyperparameters == second.in_force
    again = _started(Diary, tmp_path, configuration, snapshot=tmp_path / "snapshot")
    third = again.step()
    assert third.in_force == {"lr": 0.5, "group": {"x": 0.5, "y": 1}}
    diary = again.trainer
    assert isinstance(diary, Diary)
    names = [call[0] for call in diary.calls]
    assert names == ["build", "setup", "load", "setup", "train", "evaluate"]
    assert diary.calls[0][1] == {"lr": 1, "group": {"x": 0, "y": 1}}
    assert diary.calls[3] == ("setup", third.in_force, ["group", "lr"])


def test_what_a_snapshot_does_not_hold_is_set_up_again(tmp_path: Path) -> None:
    configuration = {"lr": MultiStep(1, (1,), 0.5).written()}
    driver = _started(Diary, tmp_path, configuration)
    driver.step(), driver.step()
    driver.save(tmp_path / "snapshot")
    again = _started(Diary, tmp_path, configuration, snapshot=tmp_path / "snapshot")
    diary = again.trainer
    assert isinstance(diary, Diary)
    # The snapshot was taken with 0.5, but this trainer was built with 1.
    assert [call for call in diary.calls if call[0] == "setup"] == [
        ("setup", {"lr": 1}, ["lr"]),
        ("setup", {"lr": 0.5}, ["lr"]),
    ]


def test_an_evaluation_measures_what_was_trained(tmp_path: Path) -> None:
    configuration = {"lr": Linear(1, 0, 4).written()}
    driver = _started(Diary, tmp_path, configuration)
    driver.step()
    driver.save(tmp_path / "snapshot")
    evaluating = TrainerDriver(Diary, clock=Clock())
    evaluating.start(
        configuration, dataclasses.replace(context(tmp_path), mode="evaluate"), snapshot=tmp_path / "snapshot"
    )
    assert evaluating.step().in_force == {"lr": 1}


class Long(Diary):
    """A trainer with iterations of four units, which may end after any unit."""

    stops_anywhere: ClassVar[bool] = True
    unit_per_iteration = 4


def test_an_iteration_ends_where_a_value_changes(tmp_path: Path) -> None:
    driver = _started(Long, tmp_path, {"lr": MultiStep(1, (3, 10), 0.5).written()})
    ends = list[int]()
    promised = list[int | None]()
    while driver.position < 12:
        promised.append(driver.committed(12))
        ends.append(driver.step(until=12).position)
    assert ends == promised == [3, 7, 10, 12]


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DriverUsageError, match="hyperparameter lr changes in every optimizer step"):
        _started(Descent, tmp_path, {"lr": Paced(Cosine(1, 5), "step").written()})
    with pytest.raises(DriverUsageError, match=r"hyperparameter lr\.cosine\.initial: is missing"):
        _started(Descent, tmp_path, {"lr": {"sequence": {"cosine": {"t_max": 5}}}})


def test_new_hyperparameters_are_followed_from_here(tmp_path: Path) -> None:
    driver = _started(Diary, tmp_path, {"lr": 1})
    driver.step()
    assert driver.set_hyperparameters({"lr": Linear(1, 0, 4).written()}) == {"lr"}
    assert driver.step().in_force == {"lr": 0.75}
    assert driver.step().in_force == {"lr": 0.5}
