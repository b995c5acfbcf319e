"""A queue of training batches that a background thread prepares in advance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from hopyard.torch.data import Data, ShuffledBatches, batch_of


class BatchQueue:
    """Returns training batches in the order of `batches`. If `ahead` > 0, a thread prepares the next ones in the background.

    Only `batches` defines the position in the data; batches that wait in the queue do not change it. A snapshot
    therefore needs no state of the queue. After a change of the batch size or the position, waiting batches are
    discarded and prepared again, so no example is skipped or repeated.

    The queue starts at the position of `batches`.

    Args:
        data: The examples. If `ahead` > 0, another thread reads them.
        batches: Returns the indices of each batch. Its position and batch size may be changed between two calls of `next`.
        ahead: Maximum number of waiting batches, 0 or more; 0: each batch is read when `next` is called.
        part: Function that receives the indices of a batch and returns those whose examples this process reads, such as the part
            of a rank of a gang; by default all.

    Raises:
        ValueError: `ahead` is negative.
    """

    def __init__(
        self,
        data: Data,
        batches: ShuffledBatches,
        *,
        ahead: int,
        part: Callable[[torch.Tensor], torch.Tensor] = lambda indices: indices,
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead is {ahead}; allowed: 0 or more")
        self._data, self._batches, self._ahead, self._part = data, batches, ahead, part
        self._threads = ThreadPoolExecutor(1, "batches") if ahead else None
        self._waiting = deque[tuple[torch.Tensor, "Future[Any]"]]()
        self._cursor = batches
        self._place: object = None

    def next(self) -> tuple[torch.Tensor, Any]:
        """Return the indices of the next batch and the examples read for it (for `part` of the indices).

        Errors from reading the data propagate.
        """
        if self._threads is None:
            indices = self._batches.next_batch()
            return indices, batch_of(self._data, self._part(indices))
        if self._place != self._here():
            self._drop()
            self._cursor = self._batches.copy()
        # Prepare one more than `ahead`, because this call takes the first.
        while len(self._waiting) <= self._ahead:
            indices = self._cursor.next_batch()
            self._waiting.append((indices, self._threads.submit(batch_of, self._data, self._part(indices))))
        indices, batch = self._waiting.popleft()
        made = batch.result()
        self._batches.next_batch()
        self._place = self._here()
        return indices, made

    def close(self) -> None:
        """End the background thread and discard waiting batches."""
        self._drop()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _here(self) -> object:
        return self._batches.batch_size, self._batches.state()

    def _drop(self) -> None:
        for _, batch in self._waiting:
            batch.cancel()
        self._waiting.clear()
