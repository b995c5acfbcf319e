"""Batches that are made ready while the one before trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from hopyard.torch.data import Data, ShuffledBatches, batch_of


class BatchQueue:
    """Takes batches from `batches` in order; with `ahead` > 0 a thread makes the next ones meanwhile.

    `batches` alone is the place in the data: what only waits in the queue has not come. So a snapshot needs nothing of the
    queue, and after a new batch size or place what waits is dropped and made again: no example is skipped or comes twice.
    """

    def __init__(
        self,
        data: Data,
        batches: ShuffledBatches,
        *,
        ahead: int,
        part: Callable[[torch.Tensor], torch.Tensor] = lambda indices: indices,
    ) -> None:
        """Begin at the place of `batches`.

        Args:
            data: the examples; with `ahead` they are read in another thread.
            batches: the place; may be changed between two batches.
            ahead: how many batches wait at most, 0 or more.
            part: which indices of a batch are read here; by default all.
        """
        if ahead < 0:
            raise ValueError(f"ahead is {ahead}; allowed: 0 or more")
        self._data, self._batches, self._ahead, self._part = data, batches, ahead, part
        self._threads = ThreadPoolExecutor(1, "batches") if ahead else None
        self._waiting = deque[tuple[torch.Tensor, "Future[Any]"]]()
        self._cursor = batches
        self._place: object = None

    def next(self) -> tuple[torch.Tensor, Any]:
        """The next batch's indices, and what is read of it here; raises what reading the data raised."""
        if self._threads is None:
            indices = self._batches.next_batch()
            return indices, batch_of(self._data, self._part(indices))
        if self._place != self._here():
            self._drop()
            self._cursor = self._batches.copy()
        # One more than wait: the first is for this call.
        while len(self._waiting) <= self._ahead:
            indices = self._cursor.next_batch()
            self._waiting.append((indices, self._threads.submit(batch_of, self._data, self._part(indices))))
        indices, batch = self._waiting.popleft()
        made = batch.result()
        self._batches.next_batch()
        self._place = self._here()
        return indices, made

    def close(self) -> None:
        """End the thread; what waits is dropped."""
        self._drop()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _here(self) -> object:
        return self._batches.batch_size, self._batches.state()

    def _drop(self) -> None:
        for _, batch in self._waiting:
            batch.cancel()
        self._waiting.clear()
