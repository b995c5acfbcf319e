"""Shuffled batches whose position can be saved, and whose batch size can change at any time."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import torch
from torch.utils.data import Dataset, default_collate

from hopyard.trainer.validation import is_whole

Data: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...] | Dataset[Any]"
"""The examples: a tensor, a tuple of tensors with the same first dimension, or a map-style data set with `__len__`."""


def length_of(data: Data) -> int:
    """Return the number of examples in a data set.

    Raises:
        TypeError: The data set has no length because it is an iterable-style one.
        ValueError: The tensors have different lengths, or there are no examples.
    """
    if isinstance(data, torch.Tensor):
        data = (data,)
    if isinstance(data, tuple):
        lengths = {len(tensor) for tensor in data}
        if len(lengths) != 1:
            raise ValueError(f"a data set of tensors with first lengths {sorted(lengths)}; allowed: one common length")
        count = lengths.pop()
    elif hasattr(data, "__len__"):
        count = len(data)
    else:
        raise TypeError(f"{type(data).__name__} has no __len__; allowed: tensors or a map-style data set")
    if count < 1:
        raise ValueError("a data set without examples; allowed: at least one")
    return count


def batch_of(data: Data, indices: torch.Tensor) -> Any:
    """Return the examples of `data` at `indices` (int64, on the CPU) as one batch, in the form that `DataLoader` produces."""
    if isinstance(data, torch.Tensor):
        return data[indices.to(data.device)]
    if isinstance(data, tuple):
        return tuple(tensor[indices.to(tensor.device)] for tensor in data)
    return default_collate([data[index] for index in indices.tolist()])


class ShuffledBatches:
    """Endless iteration over the indices 0 to count - 1 in batches, in a different order in each epoch.

    An epoch is one pass over all indices; its order depends only on the seed and the epoch number. The position within an epoch is
    counted in examples, not in batches. Therefore each example occurs exactly once per epoch, even after a suspend or a new
    `batch_size`.

    The iteration starts with epoch 0.

    Args:
        count: Number of examples, 1 or more.
        batch_size: Examples in a batch, 1 or more. The last batch of an epoch may have fewer.
        seed: Seed of the orders, 0 or more.
        smallest: Minimum number of examples in the last batch of an epoch, 1 or more; a value above the batch size has the effect of
            the batch size. If fewer examples are left, they are added to the previous batch, because batch normalization cannot
            train on a single example.

    Raises:
        ValueError: A value is out of range.
    """

    def __init__(self, count: int, batch_size: int, *, seed: int, smallest: int = 1) -> None:
        if count < 1 or seed < 0 or smallest < 1:
            raise ValueError(
                f"count={count}, seed={seed}, smallest={smallest}; allowed: count >= 1, seed >= 0, smallest >= 1"
            )
        self._count = count
        self._seed = seed
        self._smallest = smallest
        self._epoch = 0
        self._offset = 0
        self._order: torch.Tensor | None = None
        self.batch_size = batch_size

    @property
    def count(self) -> int:
        """Number of examples in an epoch."""
        return self._count

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, starting with 0."""
        return self._epoch

    @property
    def offset(self) -> int:
        """Number of examples of this epoch that were returned, 0 to count - 1."""
        return self._offset

    @property
    def batch_size(self) -> int:
        """Examples in a batch. It can be set at any time and applies from the next batch; ValueError unless it is 1 or more."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, batch_size: int) -> None:
        if not is_whole(batch_size, least=1):
            raise ValueError(f"batch_size is {batch_size!r}; allowed: a whole number, 1 or more")
        self._batch_size = batch_size

    def next_batch(self) -> torch.Tensor:
        """Return the indices of the next batch: int64, on the CPU, one dimension."""
        if self._order is None:
            self._order = torch.randperm(self._count, generator=_generator(self._seed, self._epoch))
        end = self._offset + self._batch_size
        if self._count - end < min(self._smallest, self._batch_size):
            end = self._count
        indices = self._order[self._offset : end]
        self._offset = end
        if end == self._count:
            self._epoch, self._offset, self._order = self._epoch + 1, 0, None
        return indices

    def copy(self) -> ShuffledBatches:
        """Return an independent copy at the same position."""
        found = ShuffledBatches(self._count, self._batch_size, seed=self._seed, smallest=self._smallest)
        found._epoch, found._offset, found._order = self._epoch, self._offset, self._order
        return found

    def state(self) -> dict[str, int]:
        """Return the position as plain numbers, for `load_state`. The batch size is not included."""
        return {"seed": self._seed, "count": self._count, "epoch": self._epoch, "offset": self._offset}

    def load_state(self, state: dict[str, int]) -> None:
        """Continue at the position that `state` (a result of `state()`) describes, with the seed in it.

        If the state is at the beginning of an epoch, it may come from a data set with another number of examples, such as
        another data partition. Inside an epoch it may not.

        Raises:
            ValueError: The state is inside an epoch with another number of examples, or a number in it is out of range.
        """
        seed, count, epoch, offset = (state[key] for key in ("seed", "count", "epoch", "offset"))
        if seed < 0 or epoch < 0 or not 0 <= offset < count:
            raise ValueError(f"{state}; allowed: seed >= 0, epoch >= 0, 0 <= offset < count")
        if offset > 0 and count != self._count:
            raise ValueError(
                f"the snapshot is {offset} examples into an epoch of {count}; the data now has {self._count} examples"
            )
        self._seed, self._epoch, self._offset, self._order = seed, epoch, offset, None


def _generator(seed: int, epoch: int) -> torch.Generator:
    """Return the random generator for one epoch. Its seed is a hash, so that neighbouring seeds and epochs are unrelated."""
    digest = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
