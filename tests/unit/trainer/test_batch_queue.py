"""Tests of batches that are prepared ahead: the same ones in the same order, whatever is suspended or changed meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from hopyard.sequences import MultiStep
from hopyard.torch import BatchQueue, Data, ShuffledBatches
from hopyard.trainer import TrainerDriver
from tests.timing import HANG_SECONDS
from tests.unit.trainer.torch_trainers import Base
from tests.unit.trainer.trainers import Clock, context

PLANS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=25)


class Squares(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read.append(index)
        return torch.tensor([index, index**2])


@given(count=st.integers(1, 25), seed=st.integers(0, 2**63 - 1), ahead=st.integers(0, 5), plan=PLANS)
@settings(max_examples=60, deadline=None)
def test_each_example_comes_once_an_epoch_in_the_undisturbed_order(
    count: int, seed: int, ahead: int, plan: list[tuple[int, bool]]
) -> None:
    undisturbed = ShuffledBatches(count, 1, seed=seed)
    batches = ShuffledBatches(count, 3, seed=seed)
    queue = BatchQueue(Squares(count), batches, ahead=ahead)
    seen = list[int]()
    for batch_size, suspend in plan:
        if suspend:
            state = batches.state()
            queue.close()
            batches = ShuffledBatches(count, 7, seed=0)
            batches.load_state(state)
            queue = BatchQueue(Squares(count), batches, ahead=ahead)
        batches.batch_size = batch_size
        for _ in range(2):
            indices, batch = queue.next()
            assert batch.tolist() == [[index, index**2] for index in indices.tolist()]
            assert len(indices) <= batch_size
            seen += indices.tolist()
    queue.close()
    assert seen == [int(undisturbed.next_batch()) for _ in seen]
    for start in range(0, len(seen) - count + 1, count):
        assert sorted(seen[start : start + count]) == list(range(count))


def test_what_waits_is_read_ahead_and_dropped_when_the_size_changes() -> None:
    data = Squares(40)
    batches = ShuffledBatches(40, 4, seed=1)
    queue = BatchQueue(data, batches, ahead=2)
    first, _ = queue.next()
    second, _ = queue.next()
    assert batches.offset == 8, "what waits has not come"
    until = time.monotonic() + HANG_SECONDS
    while len(data.read) < 16:
        assert time.monotonic() < until, "it reads ahead"
    batches.batch_size = 5
    third, _ = queue.next()
    order = ShuffledBatches(40, 40, seed=1).next_batch().tolist()
    assert [*first.tolist(), *second.tolist(), *third.tolist()] == order[:13]
    queue.close()


def test_what_reading_raises_is_raised_where_the_batch_is_wanted() -> None:
    class Broken(Squares):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise OSError("the disk is gone")

    queue = BatchQueue(Broken(9), ShuffledBatches(9, 4, seed=0), ahead=2)
    with pytest.raises(OSError, match="the disk is gone"):
        queue.next()
    queue.close()
    with pytest.raises(ValueError, match="ahead is -1"):
        BatchQueue(Squares(9), ShuffledBatches(9, 4, seed=0), ahead=-1)


class Counted(Base):
    """A training that records in `seen` which examples each step uses."""

    prefetch = 3

    def train_dataset(self) -> Data:
        x, y = super().train_dataset()  # type: ignore[misc]  # a tuple of two
        return x, y, torch.arange(len(y))

    def train_batch(self, batch: Any) -> torch.Tensor:
        self.seen = [*getattr(self, "seen", []), *batch[2].tolist()]
        return super().train_batch(batch)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("stops", "milestones", "sizes"),
    [([], [1, 5], [2, 19, 7]), ([4, 9], [4], [20, 3]), ([2, 3, 10], [3, 7, 11], [5, 5, 16, 2])],
)
def test_a_trainer_with_suspends_and_changing_batch_sizes_sees_each_example_once_an_epoch(
    tmp_path: Path, stops: list[int], milestones: list[int], sizes: list[int]
) -> None:
    batch_size = MultiStep(milestones=tuple(milestones), values=tuple(sizes)).written()
    seen, snapshot = list[int](), None
    for stop in [*stops, 12]:
        driver = TrainerDriver(Counted, clock=Clock())
        driver.start({"lr": 0.01, "batch_size": batch_size}, context(tmp_path), snapshot=snapshot)
        while driver.position < stop:
            driver.step(until=stop)
        snapshot = tmp_path / str(stop)
        driver.save(snapshot)
        trainer = driver.trainer
        assert isinstance(trainer, Counted)
        seen += trainer.seen
        driver.close()
    undisturbed = ShuffledBatches(53, 1, seed=context(tmp_path).seed)
    assert seen == [int(undisturbed.next_batch()) for _ in seen]
