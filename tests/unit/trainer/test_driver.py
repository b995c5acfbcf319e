from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from hopyard.trainer import (
    DriverUsageError,
    SnapshotStateError,
    Trainer,
    TrainerContext,
    TrainerDriver,
    UserCodeError,
    read_header,
)
from tests.unit.trainer.trainers import Clock, Diary, Parabola, context

pytestmark = pytest.mark.quick


def started(
    tmp_path: Path, trainer_class: type[Trainer] = Diary, hyperparameters: Any = None, **start: Any
) -> TrainerDriver:
    driver = TrainerDriver(trainer_class, clock=Clock())
    driver.start({"lr": 0.1} if hyperparameters is None else hyperparameters, context(tmp_path), **start)
    return driver


def calls(driver: TrainerDriver) -> list[tuple[object, ...]]:
    assert isinstance(driver.trainer, Diary)
    return driver.trainer.calls


def test_order_of_calls_from_the_beginning(tmp_path: Path) -> None:
    driver = started(tmp_path)
    report = driver.step()
    diary = calls(driver)
    driver.close()
    driver.close()
    assert diary == [
        ("build", {"lr": 0.1}, 3),
        ("setup", {"lr": 0.1}, ["lr"]),
        ("train", 0, 1),
        ("evaluate", 1),
        ("close",),
    ]
    assert (report.position, dict(report.metrics)) == (1, {"trained": 1.0, "accuracy": 0.5})
    assert (report.seconds, report.examples, report.finished) == (1.0, 10, False)


def test_what_differs_from_the_snapshot_is_put_in_force_after_load(tmp_path: Path) -> None:
    first = started(tmp_path, hyperparameters={"lr": 0.1, "batch_size": 32})
    first.step()
    first.save(tmp_path / "snapshot")
    second = started(tmp_path, hyperparameters={"lr": 0.01, "batch_size": 32}, snapshot=tmp_path / "snapshot")
    assert calls(second)[2:] == [("load", 1), ("setup", {"lr": 0.01, "batch_size": 32}, ["lr"])]
    assert second.position == 1
    assert second.step().metrics["trained"] == 2.0


def test_a_plain_resume_is_set_up_once(tmp_path: Path) -> None:
    first = started(tmp_path)
    first.step()
    header = first.save(tmp_path / "snapshot")
    assert read_header(tmp_path / "snapshot") == header
    second = started(tmp_path, snapshot=tmp_path / "snapshot", position=1)
    assert [call[0] for call in calls(second)] == ["build", "setup", "load"]


def test_four_methods_suffice(tmp_path: Path) -> None:
    straight = started(tmp_path, Parabola)
    losses = [straight.step().metrics["loss"] for _ in range(3)]
    first = started(tmp_path, Parabola)
    first.step()
    first.save(tmp_path / "snapshot")
    second = started(tmp_path, Parabola, snapshot=tmp_path / "snapshot")
    assert [second.step().metrics["loss"] for _ in range(2)] == losses[1:]


def test_setup_at_a_boundary_gets_the_changed_names_and_the_next_report_echoes(tmp_path: Path) -> None:
    driver = started(tmp_path, hyperparameters={"lr": 0.1, "old": 1, "same": 1})
    assert driver.step().in_force == {"lr": 0.1, "old": 1, "same": 1}
    assert driver.step().in_force is None
    changed = driver.set_hyperparameters({"lr": 0.2, "new": True, "same": 1.0})
    assert changed == {"lr", "old", "new"}
    assert calls(driver)[-1] == ("setup", {"lr": 0.2, "new": True, "same": 1.0}, ["lr", "new", "old"])
    assert driver.step().in_force == {"lr": 0.2, "new": True, "same": 1.0}


def test_nothing_changed_is_no_setup(tmp_path: Path) -> None:
    driver = started(tmp_path, hyperparameters={"steps": (1, 2), "nan": float("nan")})
    before = len(calls(driver))
    assert driver.set_hyperparameters({"steps": [1, 2], "nan": float("nan")}) == frozenset()
    assert len(calls(driver)) == before


class Steps(Diary):
    unit_per_iteration = 5


class CuttableSteps(Steps):
    stops_anywhere: ClassVar[bool] = True


class OwnPace(Diary):
    def train(self) -> dict[str, float]:
        self.advance(7)
        if self.position >= 7:
            self.finish()
        return {}


@pytest.mark.parametrize(("trainer_class", "positions"), [(Steps, [5, 10]), (CuttableSteps, [5, 8])])
def test_a_stop_inside_an_iteration(trainer_class: type[Trainer], positions: list[int], tmp_path: Path) -> None:
    driver = started(tmp_path, trainer_class)
    assert [driver.step(until=8).position for _ in range(2)] == positions


def test_a_trainer_may_advance_at_its_own_pace_and_finish(tmp_path: Path) -> None:
    driver = started(tmp_path, OwnPace)
    reports = [driver.step(), driver.step()]
    assert [(report.position, report.finished) for report in reports] == [(7, False), (14, True)]
    with pytest.raises(DriverUsageError, match=r"OwnPace finished at position 14: nothing is left"):
        driver.step()
    driver.save(tmp_path / "end")
    assert started(tmp_path, OwnPace, snapshot=tmp_path / "end").finished


def test_mode_evaluate_only_evaluates(tmp_path: Path) -> None:
    first = started(tmp_path)
    first.step()
    first.save(tmp_path / "snapshot")
    driver = TrainerDriver(Diary, clock=Clock())
    driver.start({"lr": 0.1}, context(tmp_path, mode="evaluate"), snapshot=tmp_path / "snapshot")
    report = driver.step()
    assert (report.position, dict(report.metrics), report.examples) == (1, {"accuracy": 0.5}, 10)
    with pytest.raises(DriverUsageError, match="it has no state to save"):
        driver.save(tmp_path / "other")


def test_load_takes_a_started_trainer_back(tmp_path: Path) -> None:
    driver = started(tmp_path)
    driver.step()
    driver.save(tmp_path / "one")
    driver.step()
    driver.load(tmp_path / "one", position=1)
    assert driver.step().metrics["trained"] == 2.0
    assert driver.position == 2


def test_a_snapshot_of_another_position_is_refused(tmp_path: Path) -> None:
    first = started(tmp_path)
    first.step()
    first.save(tmp_path / "snapshot")
    with pytest.raises(SnapshotStateError, match=r"of position 1, but position 4 was asked for"):
        started(tmp_path, snapshot=tmp_path / "snapshot", position=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a complete snapshot"),
        ("{", "not JSON"),
        ("[]", "format 'list'"),
        ('{"format": 2}', "format 2"),
        ('{"format": 1, "position": -1, "hyperparameters": {}, "finished": false}', "position is -1"),
        ('{"format": 1, "position": true, "hyperparameters": {}, "finished": false}', "position is True"),
        ('{"format": 1, "position": 1, "hyperparameters": [], "finished": false}', r"hyperparameters is \[\]"),
        ('{"format": 1, "position": 1, "hyperparameters": {}, "finished": 0}', "finished is 0"),
        ('{"format": 1, "position": 1, "hyperparameters": {}, "finished": false}', "the folder state is missing"),
    ],
)
def test_a_broken_header_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "hopyard.json").write_text(content)
    with pytest.raises(SnapshotStateError, match=message):
        started(tmp_path, snapshot=tmp_path)


def test_calls_out_of_order_are_refused(tmp_path: Path) -> None:
    driver = TrainerDriver(Diary, clock=Clock())
    with pytest.raises(DriverUsageError, match=r"step\(\): the driver of Diary is not started"):
        driver.step()
    with pytest.raises(DriverUsageError, match="needs a snapshot"):
        driver.start({}, context(tmp_path), position=3)
    driver.start({}, context(tmp_path))
    with pytest.raises(DriverUsageError, match=r"start\(\): the driver of Diary is started"):
        driver.start({}, context(tmp_path))
    driver.step()
    with pytest.raises(DriverUsageError, match=r"step\(until=1\) at position 1"):
        driver.step(until=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DriverUsageError, match="not empty"):
        driver.save(tmp_path / "full")
    driver.close()
    with pytest.raises(DriverUsageError, match="closed"):
        driver.step()


@pytest.mark.parametrize("hyperparameters", [{1: 2}, {"": 2}, {"f": print}, {"s": {1, 2}}])
def test_hyperparameters_are_json_values_by_name(hyperparameters: Any, tmp_path: Path) -> None:
    with pytest.raises(DriverUsageError, match="hyperparameter"):
        started(tmp_path, hyperparameters=hyperparameters)


def test_hyperparameters_are_read_only(tmp_path: Path) -> None:
    given = started(tmp_path).trainer.hyperparameters
    with pytest.raises(TypeError):
        given["lr"] = 1  # type: ignore[index]


def test_what_is_no_trainer_is_refused() -> None:
    with pytest.raises(DriverUsageError, match="not a trainer"):
        TrainerDriver(dict, clock=Clock())  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{"seed": -1}, {"rank": 1}, {"rank": -1}, {"mode": "sleep"}])
def test_the_context_checks_its_ranges(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allowed"):
        TrainerContext(**{"seed": 0, "scratch": tmp_path, **values})


def test_a_profile_is_a_report_of_seconds_and_leaves_nothing_to_save(tmp_path: Path) -> None:
    class Timed(Parabola):
        def profile(self) -> float:
            return 2.5

    driver = TrainerDriver(Timed, clock=Clock())
    driver.start({"lr": 0.1}, TrainerContext(seed=3, scratch=tmp_path, mode="profile"))
    report = driver.step()
    assert (report.position, dict(report.metrics)) == (0, {"seconds": 2.5})
    with pytest.raises(DriverUsageError, match="mode 'profile'"):
        driver.save(tmp_path / "saved")
    other = TrainerDriver(Parabola, clock=Clock())
    other.start({"lr": 0.1}, TrainerContext(seed=3, scratch=tmp_path, mode="profile"))
    with pytest.raises(UserCodeError, match=r"Parabola does not define profile\(\)"):
        other.step()
