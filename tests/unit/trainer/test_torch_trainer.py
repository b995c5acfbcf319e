from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from hopyard.torch import TorchTrainer, capture_random_states, restore_random_states, seed_everything
from hopyard.torch import trainer as trainer_module
from hopyard.torch.state_io import plain, read_state, write_state
from hopyard.trainer import SnapshotStateError, TrainerDriver, UserCodeError
from tests.unit.trainer.torch_trainers import Base, Epochs, Mixed, Steps
from tests.unit.trainer.trainers import Clock, context

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Restores the random generators of the process, which a trainer uses."""
    states = capture_random_states(CPU)
    yield
    restore_random_states(states, CPU)


def started(tmp_path: Path, trainer_class: type[TorchTrainer] = Base, hyperparameters: Any = None, **start: Any) -> Any:
    driver = TrainerDriver(trainer_class, clock=Clock())
    driver.start(hyperparameters or {"lr": 0.1}, context(tmp_path), **start)
    return driver


def weights(driver: Any) -> list[float]:
    return [value for tensor in driver.trainer.model.state_dict().values() for value in tensor.flatten().tolist()]


def test_reports_training_and_evaluation(tmp_path: Path) -> None:
    report = started(tmp_path).step()
    assert set(report.metrics) == {"train_loss", "loss", "accuracy", "rows"}
    assert (report.position, report.examples) == (3, 20)
    assert 0 <= report.metrics["accuracy"] <= 1


def test_evaluation_averages_over_examples_not_batches(tmp_path: Path) -> None:
    class Cut(Base):
        eval_batch_size = 8  # batches of 8, 8 and 4 of the 20 examples

    one, other = started(tmp_path).step().metrics, started(tmp_path, Cut).step().metrics
    for name in ("loss", "accuracy"):
        assert one[name] == pytest.approx(other[name], rel=1e-6)
    assert other["rows"] == pytest.approx((8 * 8 + 8 * 8 + 4 * 4) / 20)


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    class Draws(Base):
        def metrics(self, model: torch.nn.Module, batch: Any) -> Mapping[str, torch.Tensor | float]:
            return {"noise": torch.rand(()), "python": random.random(), "numpy": float(np.random.random())}

    class Never(Draws):
        evaluate_after_train = False

    # The trainers run one after the other, because trainers in one process share the global generators.
    results = []
    for trainer_class in (Draws, Never):
        driver = started(tmp_path, trainer_class)
        for _ in range(4):
            driver.step()
        results.append(weights(driver))
    assert results[0] == results[1]


def test_where_an_iteration_is_cut_does_not_matter(tmp_path: Path) -> None:
    straight = started(tmp_path, Steps)
    for _ in range(4):
        straight.step()
    cut = started(tmp_path, Steps)
    positions = [cut.step(until=until).position for until in (1, 4, 9, 9, 11, 12)]
    assert positions == [1, 4, 7, 9, 11, 12]
    assert weights(straight) == weights(cut)


def test_the_seed_decides(tmp_path: Path) -> None:
    losses = []
    for seed in (3, 3, 4):
        driver = TrainerDriver(Base, clock=Clock())
        driver.start({"lr": 0.1}, context(tmp_path, seed=seed))
        losses.append(driver.step().metrics["loss"])
    assert losses[0] == losses[1] != losses[2]


def test_an_epoch_sees_all_examples(tmp_path: Path) -> None:
    driver = started(tmp_path, Epochs, {"lr": 0.01, "batch_size": 20})
    driver.step()
    assert driver.trainer.batches.state() == {"seed": 3, "count": 53, "epoch": 1, "offset": 0}


def test_changes_are_put_in_force_and_echoed(tmp_path: Path) -> None:
    first = {"lr": 0.1, "momentum": 0.9, "batch_size": 8, "gamma": 0.5}
    driver = started(tmp_path, Steps, first)
    driver.step(until=2)
    driver.step(until=4)
    assert driver.trainer.optimizer.param_groups[0]["lr"] == 0.05, "the schedule has halved it"
    driver.set_hyperparameters({"lr": 0.4, "momentum": 0.5, "batch_size": 16, "gamma": 0.1})
    group = driver.trainer.optimizer.param_groups[0]
    assert (group["lr"], group["initial_lr"], group["momentum"]) == (0.2, 0.4, 0.5)
    assert driver.trainer.scheduler.base_lrs == [0.4]
    report = driver.step(until=8)
    assert report.in_force == {"lr": 0.4, "momentum": 0.5, "batch_size": 16, "gamma": 0.1}
    driver.step(until=8)
    assert driver.trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.02)


def test_a_fork_trains_with_its_own_values_not_the_snapshots(tmp_path: Path) -> None:
    parent = started(tmp_path, Steps, {"lr": 0.1, "momentum": 0.9, "dropout": 0.3})
    parent.step()
    parent.save(tmp_path / "snapshot")
    child = started(tmp_path, Steps, {"lr": 0.01, "momentum": 0.8, "dropout": 0.0}, snapshot=tmp_path / "snapshot")
    group = child.trainer.optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], child.trainer.model[3].p) == (0.01, 0.8, 0.0)
    assert child.step().in_force == {"lr": 0.01, "momentum": 0.8, "dropout": 0.0}


def test_a_change_that_nothing_takes_up_is_an_error(tmp_path: Path) -> None:
    driver = started(tmp_path, Base, {"lr": 0.1, "dropout": 0.3})
    with pytest.raises(UserCodeError, match=r"'dropout' changed from 0.3 to 0.5 .* override Base.change\(\)"):
        driver.set_hyperparameters({"lr": 0.1, "dropout": 0.5})


def test_groups_keep_values_of_their_own(tmp_path: Path) -> None:
    class Groups(Base):
        def build_optimizer(self, model: torch.nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
            matrices = [p for p in model.parameters() if p.ndim > 1]
            others = [p for p in model.parameters() if p.ndim <= 1]
            decay, lr = hyperparameters["weight_decay"], hyperparameters["lr"]
            groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "lr": lr * 2, "weight_decay": 0}]
            return torch.optim.AdamW(groups, lr=lr)

    driver = started(tmp_path, Groups, {"lr": 0.25, "weight_decay": 0.1, "momentum": 0.9})
    driver.set_hyperparameters({"lr": 0.125, "weight_decay": 0.2, "momentum": 0.8})
    one, other = driver.trainer.optimizer.param_groups
    assert [(g["lr"], g["weight_decay"], g["betas"]) for g in (one, other)] == [
        (0.125, 0.2, (0.8, 0.999)),
        (0.25, 0, (0.8, 0.999)),
    ]


def test_the_scaler_survives(tmp_path: Path) -> None:
    first = started(tmp_path, Mixed)
    first.step()
    first.step()
    state = first.trainer.scaler.state_dict()
    assert state["scale"] > 1024.0, "it has grown, so the state says something"
    first.save(tmp_path / "snapshot")
    second = started(tmp_path, Mixed, snapshot=tmp_path / "snapshot")
    assert second.trainer.scaler.state_dict() == state


def test_a_snapshot_of_another_model_is_refused(tmp_path: Path) -> None:
    first = started(tmp_path, Base)
    first.save(tmp_path / "snapshot")
    with pytest.raises(UserCodeError, match="one of trainer and snapshot has a scheduler"):
        started(tmp_path, Steps, snapshot=tmp_path / "snapshot")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil"),))


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_file_that_is_no_state_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "torch.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SnapshotStateError, match="cannot be read"):
        read_state(path)


def test_nothing_in_a_snapshot_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": 1, "model": Evil()}, tmp_path / "torch.pt")
    with pytest.raises(SnapshotStateError):
        read_state(tmp_path / "torch.pt")
    assert not (tmp_path / "evil").exists()
    with pytest.raises(TypeError, match=r"state\['a'\]\[0\] is a Evil; a snapshot holds"):
        plain({"a": [Evil()]}, "state")


def test_numpy_values_become_plain(tmp_path: Path) -> None:
    write_state(tmp_path / "torch.pt", {"f": np.float64(0.5), "i": np.int32(3), "a": np.arange(3), "t": (1, "x")})
    state = read_state(tmp_path / "torch.pt")
    assert (state["f"], state["i"], state["a"].tolist(), state["t"]) == (0.5, 3, [0, 1, 2], (1, "x"))
    assert (type(state["f"]), type(state["i"])) == (float, int)


def test_a_program_s_own_files_keep_their_checksums(tmp_path: Path) -> None:
    write_state(tmp_path / "torch.pt", {"w": torch.ones(3)})
    torch.save({"w": torch.ones(3)}, tmp_path / "own.pt")
    found = {name: {one.CRC for one in ZipFile(tmp_path / name).infolist()} for name in ("torch.pt", "own.pt")}
    assert found["torch.pt"] == {0}
    assert 0 not in found["own.pt"]
    assert read_state(tmp_path / "torch.pt")["w"].tolist() == [1.0, 1.0, 1.0]


def test_all_random_states_come_back() -> None:
    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.normal()), float(torch.rand(()))]

    seed_everything(2**40 + 5)
    draw()  # leaves half of a Gaussian pair in the generators of Python and NumPy
    states = capture_random_states(CPU)
    first = draw()
    assert draw() != first
    restore_random_states(states, CPU)
    assert draw() == first


@pytest.mark.parametrize(("trainer_class", "batches"), [(Steps, 3), (Epochs, 7)])
def test_a_profile_tells_how_long_an_iteration_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer_class: type[TorchTrainer], batches: int
) -> None:
    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(perf_counter=Clock()))
    driver = TrainerDriver(trainer_class, clock=Clock())
    driver.start({"lr": 0.1}, context(tmp_path, mode="profile"))
    report = driver.step()
    assert report.metrics == {"seconds": pytest.approx(batches / trainer_module._TIMED)}
    assert report.position == 0
