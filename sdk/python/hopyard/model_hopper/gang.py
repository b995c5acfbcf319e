"""The interface to the gang of a run whose ranks train one model together, each on its own partition."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Gang(ABC):
    """One rank's access to its gang during a run; a library's handler creates it (`Handler.gang`).

    Attributes:
        rank: Rank of this process.
        size: Number of ranks.
        passes: Number of iterators of `model_hopper.batches` that were started in this unit.
        unfinished: Number of these iterators that have not yielded their last batch and ended.
    """

    rank: int
    size: int
    passes: int = 0
    unfinished: int = 0
    _within: bool = False

    @property
    @abstractmethod
    def exchanges(self) -> int:
        """Number of times that this rank exchanged gradients with the other ranks since it joined the gang."""

    @abstractmethod
    def parallel(self, model: Any) -> Any:
        """Return a wrapper of `model` for `train_fn`: `backward()` gives all ranks the gradients of the whole batch."""

    @abstractmethod
    def weigh(self, share: float) -> None:
        """Set the weight of the next gradients: the share (0 to 1) of the batch that this rank trains on; 0: they are ignored."""

    @abstractmethod
    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the integers of all ranks, by rank. All ranks must call this with the same number of integers."""

    @abstractmethod
    def summed(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all ranks, by name. All ranks must call this with the same names."""

    @abstractmethod
    def exchanging(self) -> AbstractContextManager[object]:
        """Return a context manager for code in which ranks exchange data: it converts errors of a failed exchange to `GangError`.

        Other errors leave it unchanged.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the gang. Safe to call twice. The caller must first drop its references to models that `parallel` returned."""

    @contextmanager
    def batch(self, share: float) -> Iterator[None]:
        """Return a context manager for the training on one batch in `train_fn`.

        On entry it sets the weight of this rank's gradients. On exit it checks that `train_fn` exchanged gradients, as all ranks
        must in each batch.

        Args:
            share: Share (0 to 1) of the batch that this rank trains on.

        Raises:
            RuntimeError: On leaving the context, if no gradients were exchanged: the other ranks wait for them.
        """
        before = self.exchanges
        self.weigh(share)
        self._within = True
        yield
        self._within = False
        if self.exchanges == before:
            raise RuntimeError(
                "train_fn did not go backward in one of its batches; allowed on several slots: to train on all of them"
            )

    def called(self) -> None:
        """Check a call of the model for training; called before each one.

        Raises:
            RuntimeError: The call is not within a batch, so the weight of its gradients is unknown.
        """
        if not self._within:
            raise RuntimeError(
                "train_fn calls its model outside of model_hopper.batches(); allowed on several slots: to train on batches from "
                "there only"
            )

    def mean(self, metrics: Mapping[str, float], examples: int) -> dict[str, float]:
        """Return the means of the metrics over all ranks, weighted by their numbers of examples.

        Args:
            metrics: Means over this rank's examples, by name.
            examples: Number of this rank's examples.

        Raises:
            ValueError: Another rank has metrics with other names.
        """
        named = zlib.crc32(json.dumps(sorted(metrics)).encode())
        rows = self.gathered([named, examples])
        if len({row[0] for row in rows}) > 1:
            raise ValueError(
                f"train_fn returned {sorted(metrics)}, and others on another rank; allowed: the same on all"
            )
        total = sum(row[1] for row in rows)
        sums = self.summed({name: float(value) * examples for name, value in metrics.items()}) if metrics else {}
        return {name: value / total for name, value in sums.items()}
