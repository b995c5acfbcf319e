"""Divides the examples of a training unit into batches: of one partition, or, on a gang, of the partitions of all ranks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, Final

import numpy as np

from hopyard.model_hopper import examples
from hopyard.model_hopper.gang import Gang
from hopyard.trainer.validation import is_whole

_UNCOUNTED: Final = 2
"""Number of examples, without weight, on which a rank trains if it has none in a batch; batch normalization needs two."""

_gang: ContextVar[Gang | None] = ContextVar("_gang", default=None)


def batches(data: Any, size: int, *, shuffle: bool = True) -> Iterator[Any]:
    """Yield the examples of a partition in batches, each example once, for use in a `train_fn`.

    On a gang, each rank receives its part of each batch: `size` is the number of examples on all ranks together, and all ranks have
    the same number of batches, whatever the sizes of their partitions. The gradients of a rank are weighted by the number of examples
    in its part. A `train_fn` on a gang must call its model only within these batches, call `backward()` in each, and use all of them.

    Args:
        data: The result of `input_fn`: an array, a tensor, a data frame, a list of examples, or a tuple, list or dict of these.
        size: Examples in a batch, 1 or more; the last batch has the remainder.
        shuffle: Whether to shuffle the examples with NumPy's global generator, which is seeded for each unit.

    Raises:
        TypeError: The number of examples in `data` is unknown, or they cannot be selected.
        ValueError: `size` is not an integer of at least 1, or `data` has no examples.
    """
    if not is_whole(size, least=1):
        raise ValueError(f"the size of a batch is {size!r}; allowed: a whole number, 1 or more")
    count = counted(data)
    if not count:
        raise ValueError("a partition without examples; allowed: at least one")
    order = np.random.permutation(count) if shuffle else np.arange(count)
    gang = _gang.get()
    if gang is not None:
        yield from _shared(gang, data, order, size)
        return
    for first in range(0, count, size):
        yield examples.some(data, order[first : first + size])


def counted(data: Any) -> int:
    """Return the number of examples in data of a form that `input_fn` may return (`model_hopper.examples.count`).

    Raises:
        TypeError: The number cannot be determined from the type of `data`.
    """
    found = examples.count(data)
    if found is None:
        raise TypeError(f"how many examples a {type(data).__qualname__} holds does not show")
    return found


@contextmanager
def sharing(gang: Gang) -> Iterator[None]:
    """Within the context, let `batches` yield only the part of each batch that belongs to this process's rank in `gang`.

    Raises:
        RuntimeError: On leaving the context without another exception, if `batches` was not called, or one of its iterators did not
            reach its end: the ranks may then have trained on different batches.
    """
    token = _gang.set(gang)
    gang.passes, gang.unfinished = 0, 0
    try:
        yield
    finally:
        _gang.reset(token)
    if not gang.passes or gang.unfinished:
        found = "leaves out some of its batches" if gang.unfinished else "takes no batches from model_hopper.batches()"
        raise RuntimeError(f"train_fn {found}; allowed on several slots: to train on all of them")


def ends(counts: Sequence[int], size: int) -> Iterator[int]:
    """Yield, for each batch of a gang, the number of examples in this batch and all earlier ones.

    A remainder of fewer than two examples per rank on average is added to the last batch.

    Args:
        counts: Number of examples of each rank.
        size: Examples in a batch, on all ranks together.
    """
    whole, rest = divmod(sum(counts), size)
    for number in range(1, whole + (rest >= 2 * len(counts))):
        yield number * size
    yield sum(counts)


def parts(counts: Sequence[int], upto: int) -> list[int]:
    """Return how many of the first `upto` examples of all partitions are from each partition, if the partitions are interleaved evenly.

    Example j (from 0) of a partition with n examples has the place (j + 1/2) / n; of two examples with the same place, the one of the
    lower rank is first. So if `upto` rises batch by batch, all partitions end in the last batch, and no number decreases.

    Args:
        counts: Number of examples of each partition.
        upto: Number of examples, 0 to the sum of `counts`.
    """
    total = sum(counts)
    found = [(2 * count * upto + total) // (2 * total) for count in counts]
    while (missing := upto - sum(found)) != 0:
        if missing > 0:
            rank = min(
                (rank for rank, count in enumerate(counts) if found[rank] < count),
                key=lambda rank: (Fraction(2 * found[rank] + 1, counts[rank]), rank),
            )
            found[rank] += 1
        else:
            rank = max(
                (rank for rank, _ in enumerate(counts) if found[rank]),
                key=lambda rank: (Fraction(2 * found[rank] - 1, counts[rank]), rank),
            )
            found[rank] -= 1
    return found


def _shared(gang: Gang, data: Any, order: Any, size: int) -> Iterator[Any]:
    rows = gang.gathered([len(order), size])
    counts = [row[0] for row in rows]
    if len({row[1] for row in rows}) > 1:
        raise ValueError(
            f"batches of {sorted({row[1] for row in rows})} examples; allowed: the same size on every rank"
        )
    gang.passes += 1
    gang.unfinished += 1
    before = taken = 0
    for end in ends(counts, size):
        mine = parts(counts, end)[gang.rank]
        which = order[taken:mine]
        with gang.batch(len(which) / (end - before)):
            yield examples.some(data, which if len(which) else order[:_UNCOUNTED])
        before, taken = end, mine
    gang.unfinished -= 1
