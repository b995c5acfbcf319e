"""Tests of the batches of a unit: each example occurs once, on one slot and on a gang, and a train_fn must not use them otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard import model_hopper
from hopyard.model_hopper.batches import ends, parts, sharing
from hopyard.model_hopper.gang import Gang
from hopyard.trainer import TrainerContext, TrainerDriver, UserCodeError
from tests.unit.model_hopper.programs import MEAN, partition
from tests.unit.trainer.trainers import Clock

pytestmark = pytest.mark.quick

COUNTS = st.lists(st.integers(1, 60), min_size=1, max_size=5)


class Alone(Gang):
    """Simulates one rank of a gang without the others: it knows their numbers of examples, and sums contain only its own values."""

    def __init__(self, rank: int, counts: Sequence[int]) -> None:
        self.rank, self.size, self._counts = rank, len(counts), counts
        self.shares: list[float] = []
        self.backwards = 0

    @property
    def exchanges(self) -> int:
        return self.backwards

    def parallel(self, model: Any) -> Any:
        return model

    def weigh(self, share: float) -> None:
        self.shares.append(share)

    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        return [[count, numbers[1]] for count in self._counts]

    def summed(self, sums: Mapping[str, float]) -> dict[str, float]:
        return dict(sums)

    def exchanging(self) -> AbstractContextManager[object]:
        return nullcontext()

    def close(self) -> None:
        pass


@pytest.mark.merge
@given(COUNTS, st.integers(1, 40))
def test_parts_of_batches_are_whole_and_as_even_as_can_be(counts: list[int], size: int) -> None:
    total = sum(counts)
    order = [
        rank
        for _, rank in sorted(
            (Fraction(2 * number + 1, 2 * count), rank) for rank, count in enumerate(counts) for number in range(count)
        )
    ]
    for upto in range(total + 1):
        assert parts(counts, upto) == [order[:upto].count(rank) for rank in range(len(counts))]
    found = list(ends(counts, size))
    sizes = [end - before for before, end in zip([0, *found], found, strict=False)]
    assert sum(sizes) == total
    assert all(each == size for each in sizes[:-1])
    assert sizes[-1] < size + 2 * len(counts)
    assert sizes[-1] >= min(2 * len(counts), size, total)


@pytest.mark.merge
@given(COUNTS, st.integers(1, 40), st.booleans())
def test_ranks_have_as_many_batches_and_each_example_counts_once(counts: list[int], size: int, shuffle: bool) -> None:
    taken: list[list[tuple[float, list[int]]]] = []
    for rank, count in enumerate(counts):
        gang = Alone(rank, counts)
        with sharing(gang):
            mine = []
            for batch in model_hopper.batches(np.arange(count), size, shuffle=shuffle):
                gang.backwards += 1
                mine.append(batch.tolist())
        taken.append(list(zip(gang.shares, mine, strict=True)))
        assert sorted(number for share, batch in taken[-1] if share for number in batch) == list(range(count))
        # A rank without own examples in a batch gets some with weight 0.
        assert all(batch for _, batch in taken[-1])
    assert len({len(batches) for batches in taken}) == 1
    for batch in zip(*taken, strict=True):
        assert sum(share for share, _ in batch) == pytest.approx(1.0)
        whole = sum(len(mine) for share, mine in batch if share)
        assert [share for share, _ in batch] == [
            pytest.approx(len(mine) / whole if share else 0) for share, mine in batch
        ]


@given(st.integers(1, 60), st.integers(1, 40))
def test_alone_each_example_comes_once_in_batches_of_the_size(count: int, size: int) -> None:
    data = {"x": np.arange(count), "y": np.arange(count) * 2}
    found = list(model_hopper.batches(data, size))
    assert sorted(np.concatenate([batch["x"] for batch in found])) == list(range(count))
    assert all((batch["y"] == 2 * batch["x"]).all() for batch in found)
    assert [len(batch["x"]) for batch in found[:-1]] == [size] * (len(found) - 1)
    np.random.seed(5)
    first = [batch.tolist() for batch in model_hopper.batches(np.arange(count), size)]
    np.random.seed(5)
    assert [batch.tolist() for batch in model_hopper.batches(np.arange(count), size)] == first


@pytest.mark.parametrize(
    ("data", "size", "error", "said"),
    [
        (np.arange(3), 0, ValueError, "the size of a batch is 0; allowed: a whole number, 1 or more"),
        (np.arange(0), 4, ValueError, "a partition without examples"),
        (object(), 4, TypeError, "how many examples a object holds does not show"),
    ],
)
def test_what_makes_no_batches_is_told(data: Any, size: int, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        next(model_hopper.batches(data, size))


def unit(gang: Alone, how: str) -> Iterator[None]:
    """Run a train_fn that misuses batches in the way `how`; it yields after each batch."""
    if how == "own batches":
        gang.called()
    for number, _ in enumerate(model_hopper.batches(np.arange(20), 4) if how != "nothing" else ()):
        if how == "stops" and number == 2:
            return
        gang.called()
        gang.backwards += how != "leaves out" or number != 1
        yield


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("own batches", r"calls its model outside of model_hopper.batches\(\)"),
        ("nothing", r"takes no batches from model_hopper.batches\(\)"),
        ("stops", "leaves out some of its batches"),
        ("leaves out", "did not go backward in one of its batches"),
    ],
)
def test_a_train_fn_that_would_leave_others_waiting_is_told_so(how: str, said: str) -> None:
    gang = Alone(0, [20, 20])
    with pytest.raises(RuntimeError, match=said), sharing(gang):
        list(unit(gang, how))


def test_other_metrics_on_another_rank_are_told() -> None:
    gang = Alone(0, [20, 20])
    with pytest.raises(ValueError, match=r"train_fn returned \['loss'\], and others on another rank"):
        _Other(gang).mean({"loss": 1.0}, 20)


class _Other(Alone):
    def __init__(self, gang: Alone) -> None:
        super().__init__(gang.rank, [20, 20])

    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        return [list(numbers), [0, 20]]


def test_a_train_of_a_subclass_is_not_taken_to_gather_partitions() -> None:
    class Own(MEAN):  # type: ignore[misc, valid-type]
        def train(self) -> dict[str, float]:
            return {}

    class Paced(MEAN):  # type: ignore[misc, valid-type]
        gathers_partitions = True

        def train(self) -> Mapping[str, float]:
            return super().train()  # type: ignore[no-any-return]

    assert (MEAN.gathers_partitions, Own.gathers_partitions, Paced.gathers_partitions) == (True, False, True)


def test_a_model_that_trains_on_one_slot_says_so_on_several(tmp_path: Path) -> None:
    part = partition(tmp_path / "part.npz", 10, 1)
    driver = TrainerDriver(MEAN, clock=Clock())
    context = TrainerContext(seed=1, scratch=tmp_path, inputs=part, world_size=2, mode="profile")
    with pytest.raises(UserCodeError, match=r"a Mean trains on one slot, and it was placed on 2; allowed on several"):
        driver.start({"rate": 0.1}, context)
