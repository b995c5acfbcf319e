"""Tests of Cerebro's functions as a trainer: one unit per position, the data cache, and evaluations with example counts."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard import model_hopper
from hopyard.errors import Unsupported
from hopyard.local import fit
from hopyard.model_hopper import examples
from hopyard.trainer import UserCodeError
from tests.unit.model_hopper import programs
from tests.unit.model_hopper.programs import MEAN, Arrays, Mean, partition, tour, visit

pytestmark = pytest.mark.quick

CONFIG = {"rate": 0.5}
trainer_module: Any = sys.modules[model_hopper.HoppingTrainer.__module__]


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [partition(tmp_path / f"part{number}.npz", 10 + number, number) for number in range(3)]


def test_each_position_is_one_unit_on_the_runs_partition(parts: list[Path], tmp_path: Path) -> None:
    reports = tour(MEAN, CONFIG, parts, tmp_path)
    assert [report.position for report in reports] == [1, 2, 3]
    assert len({report.metrics["value"] for report in reports}) == 3


def test_a_unit_gives_the_same_wherever_it_is_trained(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = tour(MEAN, CONFIG, parts, tmp_path / "a")
    random.seed(99)
    np.random.seed(99)
    assert [r.metrics for r in tour(MEAN, CONFIG, parts, tmp_path / "b")] == [r.metrics for r in first]


def test_the_next_model_finds_the_data_in_memory(parts: list[Path], tmp_path: Path) -> None:
    programs.READ.clear()
    for rate in (0.1, 0.2, 0.3):
        visit(MEAN, {"rate": rate}, parts[0], tmp_path)
    assert programs.READ == ["part0.npz"]


def test_an_evaluation_reports_with_its_number_of_examples(parts: list[Path], tmp_path: Path) -> None:
    visit(MEAN, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    report = visit(MEAN, CONFIG, parts[2], tmp_path, snapshot=tmp_path / "saved", mode="evaluate")
    assert (report.position, report.examples) == (1, 12)
    assert report.metrics.keys() == {"error"}


def test_training_units_do_not_evaluate(parts: list[Path], tmp_path: Path) -> None:
    assert visit(MEAN, CONFIG, parts[0], tmp_path).metrics.keys() == {"value"}


def test_without_partitions_the_programs_own_data_are_trained_and_evaluated_on(parts: list[Path]) -> None:
    class Whole(MEAN):  # type: ignore[misc, valid-type]
        train_data = str(parts[0])
        evaluate_data = str(parts[1])

    reports = fit(Whole, CONFIG, until=2)
    assert [report.metrics.keys() for report in reports] == [{"value", "error"}] * 2
    assert reports[0].examples == 11


def test_a_run_without_any_data_says_so() -> None:
    with pytest.raises(UserCodeError, match="no partition to train on"):
        fit(MEAN, CONFIG, until=1)


def test_a_subclass_says_the_same_as_functions(parts: list[Path], tmp_path: Path) -> None:
    class Written(model_hopper.HoppingTrainer):
        def input_fn(self, path: Path) -> Arrays:
            return programs.input_fn(path)

        def model_fn(self, config: Mapping[str, Any]) -> Mean:
            return programs.mean_model(config)

        def train_fn(self, data: Arrays, model: Mean, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
            return programs.mean_train(data, model, optimizer, config)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    made, written = (tour(one, CONFIG, parts, tmp_path / name) for one, name in ((MEAN, "a"), (Written, "b")))
    assert [r.metrics for r in made] == [r.metrics for r in written]
    with pytest.raises(UserCodeError, match="has no evaluate_fn"):
        visit(Written, CONFIG, parts[0], tmp_path, snapshot=tmp_path / "a" / "snapshot-0", mode="evaluate")


@pytest.mark.parametrize(
    ("data", "examples"),
    [
        (np.zeros((5, 2)), 5),
        ((np.zeros((5, 2)), [1, 2, 3, 4, 5]), 5),
        ({"x": np.zeros(7), "y": np.zeros(7)}, 7),
        ([1.0, 2.0, 3.0], 3),
    ],
)
def test_examples_are_counted_where_they_show(data: Any, examples: int, parts: list[Path], tmp_path: Path) -> None:
    program = evaluating(data, lambda data, model, config: {"error": 1.0})
    visit(program, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    assert visit(program, CONFIG, parts[0], tmp_path, snapshot=tmp_path / "saved", mode="evaluate").examples == examples


def test_an_evaluation_may_say_how_many_examples_it_had(parts: list[Path], tmp_path: Path) -> None:
    program = evaluating(object(), lambda data, model, config: ({"error": 1.0}, 42))
    visit(program, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    assert visit(program, CONFIG, parts[0], tmp_path, snapshot=tmp_path / "saved", mode="evaluate").examples == 42


@pytest.mark.parametrize("data", [object(), (np.zeros(3), np.zeros(4))])
def test_examples_that_do_not_show_are_asked_for(data: Any, parts: list[Path], tmp_path: Path) -> None:
    program = evaluating(data, lambda data, model, config: {"error": 1.0})
    visit(program, CONFIG, parts[0], tmp_path, save=tmp_path / "saved")
    with pytest.raises(UserCodeError, match=r"return \(metrics, examples\)"):
        visit(program, CONFIG, parts[0], tmp_path, snapshot=tmp_path / "saved", mode="evaluate")


def evaluating(data: Any, evaluate_fn: Any) -> type[model_hopper.HoppingTrainer]:
    return model_hopper.trainer(
        input_fn=lambda path: data,
        model_fn=programs.mean_model,
        train_fn=lambda data, model, optimizer, config: {},
        evaluate_fn=evaluate_fn,
    )


def test_a_model_that_nobody_can_save_is_refused(parts: list[Path], tmp_path: Path) -> None:
    program = model_hopper.trainer(
        input_fn=programs.input_fn, model_fn=lambda config: object(), train_fn=lambda *given: {}
    )
    with pytest.raises(UserCodeError, match=r"model_fn returned a object; allowed: a torch.nn.Module") as caught:
        visit(program, CONFIG, parts[0], tmp_path)
    assert isinstance(caught.value.__cause__, Unsupported)


def test_a_handler_of_ones_own_saves_any_model(parts: list[Path], tmp_path: Path) -> None:
    class Text(model_hopper.Handler):
        def save(self, model: Any, optimizer: Any, directory: Path) -> None:
            (directory / "text").write_text(",".join(model))

        def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, Any]:
            return (directory / "text").read_text().split(","), optimizer

    def train_fn(data: Any, model: list[str], optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
        model.append("unit")
        return {"units": len(model)}

    program = model_hopper.trainer(
        input_fn=programs.input_fn, model_fn=lambda config: list[str](), train_fn=train_fn, handler=Text()
    )
    assert [report.metrics["units"] for report in tour(program, CONFIG, parts, tmp_path)] == [1, 2, 3]


def test_a_function_of_another_name_is_refused() -> None:
    given = {"input_fn": partition, "model_fn": dict, "train_fn": dict, "eval_fn": dict}
    with pytest.raises(
        TypeError, match=r"^model_hopper\.trainer has no parameter eval_fn; .*; did you mean evaluate_fn\?$"
    ):
        model_hopper.trainer(**given)  # type: ignore[arg-type]


def test_what_is_no_function_is_refused() -> None:
    wrong: Any = "train"
    with pytest.raises(TypeError, match="train_fn is 'train'"):
        model_hopper.trainer(input_fn=programs.input_fn, model_fn=programs.mean_model, train_fn=wrong)


# ------------------------------------------------------------------------------------------- the order of examples, and time


def seen(reshuffle: bool, folder: Path, part: Path, seed: int = 3) -> list[list[float]]:
    """Return the first column of the data that `train_fn` receives in each of two units on one partition."""
    orders: list[list[float]] = []

    def train_fn(data: Arrays, model: Mean, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
        orders.append([float(value) for value in data[0][:, 0]])
        assert [bool(row.sum() > 0) for row in data[0]] == [bool(label) for label in data[1]]
        return {}

    program = model_hopper.trainer(
        input_fn=programs.input_fn, model_fn=programs.mean_model, train_fn=train_fn, reshuffle=reshuffle
    )
    first = folder / f"first-{reshuffle}-{seed}-{len(list(folder.iterdir()))}"
    visit(program, CONFIG, part, folder, save=first, seed=seed)
    visit(program, CONFIG, part, folder, snapshot=first, seed=seed)
    return orders


def test_examples_come_in_another_order_each_time_and_the_same_wherever_they_are_trained_on(
    parts: list[Path], tmp_path: Path
) -> None:
    plain, shuffled = seen(False, tmp_path, parts[0]), seen(True, tmp_path, parts[0])
    assert plain[0] == plain[1]
    assert sorted(shuffled[0]) == sorted(shuffled[1]) == sorted(plain[0])
    assert len({tuple(order) for order in (plain[0], *shuffled)}) == 3
    assert seen(True, tmp_path, parts[0]) == shuffled
    assert seen(True, tmp_path, parts[0], seed=4) != shuffled


def test_what_cannot_be_taken_apart_cannot_be_reshuffled(parts: list[Path], tmp_path: Path) -> None:
    program = model_hopper.trainer(
        input_fn=lambda path: "ten words", model_fn=programs.mean_model, train_fn=lambda *_: {}, reshuffle=True
    )
    with pytest.raises(UserCodeError, match=r"the examples of a str cannot be taken apart; allowed: arrays, tensors"):
        visit(program, CONFIG, parts[0], tmp_path)


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        (np.arange(4), np.array([3, 1])),
        ((np.arange(4), [0, 1, 2, 3]), (np.array([3, 1]), [3, 1])),
        ({"x": np.arange(4)}, {"x": np.array([3, 1])}),
        ([np.arange(4), np.arange(4)], [np.array([3, 1]), np.array([3, 1])]),
        (["a", "b", "c", "d"], ["d", "b"]),
    ],
)
def test_some_examples_have_the_form_of_all(data: Any, chosen: Any) -> None:
    assert repr(examples.some(data, np.array([3, 1]))) == repr(chosen)
    assert examples.count(examples.some(data, slice(2))) == 2


@pytest.mark.parametrize("each", [1e-5, 0.01])
def test_a_profile_tells_the_time_of_a_whole_unit(each: float, parts: list[Path], tmp_path: Path) -> None:
    trained: list[int] = []

    def train_fn(data: Any, model: Mean, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
        trained.append(len(data))
        trainer_module.time.passed += 0.0 if len(trained) == 1 else len(data) * each
        return {}

    class Watch:
        passed = 0.0

        def perf_counter(self) -> float:
            return self.passed

    program = model_hopper.trainer(
        input_fn=lambda path: np.zeros(6400), model_fn=programs.mean_model, train_fn=train_fn
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "time", Watch())
        report = visit(program, CONFIG, parts[0], tmp_path, mode="profile")
    assert report.metrics == {"seconds": pytest.approx(6400 * each)}
    assert trained == ([100, 100] if each == 0.01 else [100, 100, 400, 1600, 6400])
