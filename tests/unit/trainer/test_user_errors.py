from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard.trainer import (
    DriverUsageError,
    MetricsError,
    SnapshotStateError,
    Trainer,
    TrainerDriver,
    TrainerPhase,
    UserCodeError,
)
from tests.unit.trainer.trainers import Clock, Diary, Parabola, context

pytestmark = pytest.mark.quick


def broken(method: str, does: Callable[..., Any]) -> type[Trainer]:
    return type("Broken", (Diary,), {method: does})


def fails(*_: object) -> None:
    raise KeyError("weights")


def whole_life(trainer_class: type[Trainer], tmp_path: Path) -> TrainerDriver:
    """Start, train, save, load and close a trainer in a driver, and return the driver."""
    driver = TrainerDriver(trainer_class, clock=Clock())
    try:
        driver.start({"lr": 0.1}, context(tmp_path))
        driver.step()
        driver.save(tmp_path / "snapshot")
        driver.load(tmp_path / "snapshot")
    finally:
        driver.close()
    return driver


@pytest.mark.parametrize(
    ("method", "phase", "position"),
    [
        ("__init__", TrainerPhase.CREATE, 0),
        ("build", TrainerPhase.BUILD, 0),
        ("setup", TrainerPhase.SETUP, 0),
        ("train", TrainerPhase.TRAIN, 0),
        ("evaluate", TrainerPhase.EVALUATE, 1),
        ("save", TrainerPhase.SAVE, 1),
        ("load", TrainerPhase.LOAD, 1),
        ("close", TrainerPhase.CLOSE, 1),
    ],
)
def test_an_exception_names_phase_and_position(method: str, phase: TrainerPhase, position: int, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        whole_life(broken(method, fails), tmp_path)
    error = caught.value
    assert (error.phase, error.position, error.trainer) == (phase, position, "Broken")
    call = "Broken()" if phase is TrainerPhase.CREATE else f"Broken.{phase.value}()"
    assert str(error) == f"{call} failed at position {position}: KeyError: 'weights'"
    assert isinstance(error.__cause__, KeyError)


def test_the_traceback_is_the_users_alone(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        whole_life(broken("train", fails), tmp_path)
    text = caught.value.traceback_text
    assert text.startswith("Traceback (most recent call last):\n")
    assert "in fails" in text
    assert text.endswith("KeyError: 'weights'\n")
    assert "driver.py" not in text


def test_a_long_traceback_keeps_its_end(tmp_path: Path) -> None:
    def long(*_: object) -> None:
        raise ValueError("x" * 200_000 + " the end")

    with pytest.raises(UserCodeError) as caught:
        whole_life(broken("train", long), tmp_path)
    assert len(caught.value.traceback_text) < 100_000
    assert caught.value.traceback_text.endswith("the end\n")


def test_a_trainer_cannot_end_the_process(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"train\(\) failed at position 0: SystemExit: 3"):
        whole_life(broken("train", lambda _: sys.exit(3)), tmp_path)


def test_an_interrupt_is_not_the_users_error(tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole_life(broken("train", interrupted), tmp_path)


def test_after_a_failure_only_close_is_left(tmp_path: Path) -> None:
    driver = TrainerDriver(broken("train", fails), clock=Clock())
    driver.start({}, context(tmp_path))
    with pytest.raises(UserCodeError):
        driver.step()
    with pytest.raises(DriverUsageError, match="failed"):
        driver.step()
    driver.close()


def test_a_save_that_fails_leaves_no_loadable_snapshot(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError):
        whole_life(broken("save", fails), tmp_path)
    driver = TrainerDriver(Diary, clock=Clock())
    with pytest.raises(SnapshotStateError, match="not a complete snapshot"):
        driver.start({"lr": 0.1}, context(tmp_path), snapshot=tmp_path / "snapshot")


def test_a_missing_method_is_named(tmp_path: Path) -> None:
    abstract = type("Abstract", (Trainer,), {"setup": Parabola.setup, "save": Parabola.save, "load": Parabola.load})
    with pytest.raises(UserCodeError, match=r"Abstract\(\) failed at position 0: TypeError: .*abstract.*train"):
        whole_life(abstract, tmp_path)


def test_evaluate_must_be_defined_to_be_asked_for(tmp_path: Path) -> None:
    driver = TrainerDriver(Parabola, clock=Clock())
    driver.start({"lr": 0.1}, context(tmp_path, mode="evaluate"))
    with pytest.raises(UserCodeError, match=r"Parabola does not define evaluate\(\)"):
        driver.step()


def test_context_is_not_there_in_init(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"context is not there yet in __init__"):
        whole_life(broken("__init__", lambda self: self.context), tmp_path)


@pytest.mark.parametrize("interval", [0, -1, 1.5, True, "1"])
def test_the_interval_is_a_positive_whole_number(interval: object, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"unit_per_iteration is .* allowed: a whole number, 1 or more"):
        whole_life(type("Broken", (Diary,), {"unit_per_iteration": interval}), tmp_path)


@pytest.mark.parametrize("units", [0, True, 1.0])
def test_advance_takes_a_positive_whole_number(units: Any, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"advance\(\) got .* allowed: a whole number, 1 or more"):
        whole_life(broken("train", lambda self: self.advance(units)), tmp_path)


class Tensor:
    """Simulates a tensor.

    Args:
        *values: Its elements.
    """

    def __init__(self, *values: object) -> None:
        self._values = values

    def item(self) -> object:
        if len(self._values) != 1:
            raise RuntimeError(f"a Tensor with {len(self._values)} elements cannot be converted to Scalar")
        return self._values[0]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (None, r"it returned None \(NoneType\); allowed: a mapping"),
        ([("loss", 1.0)], r"\(list\); allowed: a mapping"),
        ({1: 1.0}, r"the metric name 1 \(int\)"),
        ({"": 1.0}, r"the metric name ''"),
        ({"loss": "0.1"}, r"metric 'loss' is '0.1' \(str\); allowed: a float$"),
        ({"loss": True}, r"metric 'loss' is True \(bool\)"),
        ({"loss": None}, r"metric 'loss' is None"),
        ({"loss": 1j}, r"metric 'loss' is 1j \(complex\)"),
        ({"loss": Tensor()}, r"metric 'loss' is .*\(Tensor\); allowed: a float; take the number out with .item\(\)"),
        ({"loss": Tensor(1.0, 2.0)}, r"metric 'loss' is .*\(Tensor\); allowed: a float"),
        ({"loss": Tensor(True)}, r"metric 'loss' is .*\(Tensor\); allowed: a float"),
        ({"loss": Tensor("1.0")}, r"metric 'loss' is .*\(Tensor\); allowed: a float"),
        ({"loss": np.array([True])}, r"metric 'loss' is .*\(ndarray\); allowed: a float"),
        ({"loss": np.array([1.0, 2.0])}, r"metric 'loss' is .*\(ndarray\); allowed: a float"),
        ({"loss": np.array([])}, r"metric 'loss' is .*\(ndarray\); allowed: a float"),
        ({"loss": 10**400}, r"metric 'loss' is too large for a float"),
        ({"accuracy": 0.1}, r"train\(\) and evaluate\(\) both report 'accuracy'"),
    ],
)
def test_metrics_that_are_none(metrics: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(MetricsError, match=message) as caught:
        whole_life(broken("train", lambda _: metrics), tmp_path)
    assert caught.value.trainer == "Broken"


@pytest.mark.parametrize("value", [Tensor(0.5), np.array(0.5), np.array([[0.5]]), np.float32(0.5)])
def test_a_metric_may_be_a_tensor_of_one_number(value: object, tmp_path: Path) -> None:
    driver = TrainerDriver(broken("train", lambda _: {"loss": value}), clock=Clock())
    driver.start({"lr": 0.1}, context(tmp_path))
    found = driver.step().metrics["loss"]
    assert (found, type(found)) == (0.5, float)


@pytest.mark.parametrize("examples", [-1, 1.5, True, "3"])
def test_examples_are_a_count(examples: object, tmp_path: Path) -> None:
    def evaluate(self: Diary) -> Mapping[str, float]:
        self.examples = examples  # type: ignore[assignment]
        return {}

    with pytest.raises(MetricsError, match=r"set self.examples to .* allowed: a whole number, 0 or more, or None"):
        whole_life(broken("evaluate", evaluate), tmp_path)


def test_every_float_is_a_legal_metric(tmp_path: Path) -> None:
    driver = TrainerDriver(
        broken("train", lambda _: {"nan": math.nan, "inf": -math.inf, "count": 3, "none": 0}), clock=Clock()
    )
    driver.start({}, context(tmp_path))
    metrics = driver.step().metrics
    assert math.isnan(metrics["nan"])
    assert metrics["inf"] == -math.inf
    assert [type(value) for value in metrics.values()] == [float] * 5
