"""The batches of a training unit: of one partition, or, on a gang, of all its partitions together."""

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
"""Examples that a rank trains on where it has none in a batch: batch normalization cannot do with one."""

_gang: ContextVar[Gang | None] = ContextVar("_gang", default=None)


def batches(data: Any, size: int, *, shuffle: bool = True) -> Iterator[Any]:
    """The examples of a partition in batches, each once, for a `train_fn`.

    On a gang each rank gets its part of each batch, so that `size` is the batch of all ranks together, and all of them have as many
    batches, whatever their partitions' sizes (`parts`). Its gradients then count by the examples in it. There, a `train_fn` calls its
    model within these batches only, goes backward in each, and takes all of them.

    Args:
        data: What `input_fn` returned: an array, a tensor, a data frame, a list of examples, or a tuple, list or dict of such.
        size: Examples in a batch, 1 or more; the last one has what is left.
        shuffle: In an order that NumPy's global generator draws, which is seeded anew for each unit; else as they lie.

    Raises:
        TypeError: The examples of `data` cannot be taken apart.
        ValueError: `size` is no whole number of at least 1, or `data` holds no examples.
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
    """How many examples data hold.

    Raises:
        TypeError: It does not show.
    """
    found = examples.count(data)
    if found is None:
        raise TypeError(f"how many examples a {type(data).__qualname__} holds does not show")
    return found


@contextmanager
def sharing(gang: Gang) -> Iterator[None]:
    """Within this, `batches` are this rank's parts.

    Raises:
        RuntimeError: Not all of the partition was trained on in them: the ranks do not learn the same.
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
    """How many examples have come after each batch of a gang with so many each.

    A rest with fewer than two for each rank joins the batch before it.
    """
    whole, rest = divmod(sum(counts), size)
    for number in range(1, whole + (rest >= 2 * len(counts))):
        yield number * size
    yield sum(counts)


def parts(counts: Sequence[int], upto: int) -> list[int]:
    """How many examples of each partition are among the first `upto` of all, if they come as evenly as whole numbers can.

    Example j of a partition of n comes at (j + 1/2) / n, the lower rank first where two come together: so all partitions end in the
    same batch, and no number ever falls as `upto` rises.
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
