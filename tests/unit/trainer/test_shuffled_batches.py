from __future__ import annotations

from collections.abc import Iterator
from itertools import count as naturals

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

from hopyard.torch import ShuffledBatches, batch_of, length_of

SIZES = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=60)


@given(count=st.integers(1, 25), seed=st.integers(0, 2**63 - 1), smallest=st.integers(1, 4), plan=SIZES)
@settings(max_examples=150, deadline=None)
def test_each_example_comes_once_an_epoch_whatever_happens(
    count: int, seed: int, smallest: int, plan: list[tuple[int, bool]]
) -> None:
    """Check that batch sizes and suspends change only where batches end, and not the order of examples."""
    undisturbed = ShuffledBatches(count, 1, seed=seed)
    batches = ShuffledBatches(count, 3, seed=seed, smallest=smallest)
    seen: list[int] = []
    for batch_size, suspend in plan:
        if suspend:
            state = batches.state()
            batches = ShuffledBatches(count, 7, seed=0, smallest=smallest)
            batches.load_state(state)
        batches.batch_size = batch_size
        epoch = batches.epoch
        indices = batches.next_batch()
        assert 1 <= len(indices) < batch_size + smallest
        assert batches.epoch == epoch or batches.offset == 0, "a batch never spans two epochs"
        seen += indices.tolist()
    assert seen == [int(undisturbed.next_batch()) for _ in seen]
    for start in range(0, len(seen) - count + 1, count):
        assert sorted(seen[start : start + count]) == list(range(count))


def test_orders_depend_on_seed_and_epoch_alone() -> None:
    def orders(seed: int) -> list[list[int]]:
        batches = ShuffledBatches(50, 50, seed=seed)
        return [batches.next_batch().tolist() for _ in range(3)]

    torch.manual_seed(1)
    first = orders(4)
    torch.manual_seed(2)
    assert orders(4) == first
    everything = [*first, *orders(5)]
    assert len({tuple(order) for order in everything}) == 6


def test_a_remainder_that_is_too_small_joins_the_batch_before() -> None:
    batches = ShuffledBatches(9, 4, seed=0, smallest=2)
    assert [len(batches.next_batch()) for _ in range(4)] == [4, 5, 4, 5]
    one_by_one = ShuffledBatches(3, 1, seed=0, smallest=2)
    assert [len(one_by_one.next_batch()) for _ in range(3)] == [1, 1, 1]


def test_another_partition_only_between_epochs() -> None:
    batches = ShuffledBatches(10, 4, seed=0)
    inside = ShuffledBatches(12, 4, seed=0)
    inside.next_batch()
    with pytest.raises(ValueError, match="4 examples into an epoch of 12; the data now has 10"):
        batches.load_state(inside.state())
    between = ShuffledBatches(12, 12, seed=0)
    between.next_batch()
    batches.load_state(between.state())
    assert (batches.epoch, batches.offset, batches.count) == (1, 0, 10)


@pytest.mark.parametrize("state", [{"offset": 10}, {"offset": -1}, {"epoch": -1}, {"seed": -1}])
def test_a_place_that_does_not_exist_is_refused(state: dict[str, int]) -> None:
    batches = ShuffledBatches(10, 4, seed=0)
    with pytest.raises(ValueError, match="allowed"):
        batches.load_state({**batches.state(), **state})


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True, "8"])
def test_a_batch_size_is_a_positive_whole_number(batch_size: int) -> None:
    with pytest.raises(ValueError, match=r"batch_size is .*; allowed"):
        ShuffledBatches(10, batch_size, seed=0)


def test_batches_of_all_kinds_of_data() -> None:
    x, y = torch.arange(10.0), torch.arange(10)
    indices = torch.tensor([3, 1])
    assert batch_of(x, indices).tolist() == [3.0, 1.0]
    assert [part.tolist() for part in batch_of((x, y), indices)] == [[3.0, 1.0], [3, 1]]
    assert [part.tolist() for part in batch_of(TensorDataset(x, y), indices)] == [[3.0, 1.0], [3, 1]]
    assert length_of(x) == length_of((x, y)) == length_of(TensorDataset(x)) == 10


def test_data_without_a_length_is_refused() -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return naturals()

    with pytest.raises(TypeError, match="Endless has no __len__"):
        length_of(Endless())
    with pytest.raises(ValueError, match=r"first lengths \[2, 3\]"):
        length_of((torch.zeros(2), torch.zeros(3)))
    with pytest.raises(ValueError, match="without examples"):
        length_of(torch.zeros(0))
