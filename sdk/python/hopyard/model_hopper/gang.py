"""What the ranks of a gang share while they train one model, each on its own partition."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Gang(ABC):
    """One rank's side of a gang, as a library's handler makes it for a run.

    Attributes:
        rank: Which one it is.
        size: How many there are.
        passes: How often `model_hopper.batches` was begun in this unit.
        unfinished: How many of these passes are not through.
    """

    rank: int
    size: int
    passes: int = 0
    unfinished: int = 0
    _within: bool = False

    @property
    @abstractmethod
    def exchanges(self) -> int:
        """How often gradients were exchanged since this rank came."""

    @abstractmethod
    def parallel(self, model: Any) -> Any:
        """What `train_fn` gets for a model: going backward leaves the gradients of the whole batch in it, on every rank."""

    @abstractmethod
    def weigh(self, share: float) -> None:
        """The next gradients are of this share (0 .. 1) of a batch: 0 of examples that do not count."""

    @abstractmethod
    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        """The whole numbers of all ranks, by rank; each gives as many."""

    @abstractmethod
    def summed(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The sums of all ranks, which all have the same names, added up."""

    @abstractmethod
    def exchanging(self) -> AbstractContextManager[object]:
        """Within this, an exchange that fails is told as the gang's trouble (`GangError`)."""

    @abstractmethod
    def close(self) -> None:
        """Leave the gang, when nobody holds what `parallel` made any more; safe to call twice."""

    @contextmanager
    def batch(self, share: float) -> Iterator[None]:
        """While `train_fn` has a batch, of which this rank's part is a share.

        Raises:
            RuntimeError: It did not go backward: the others wait for its gradients.
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
        """The model is about to be called for training.

        Raises:
            RuntimeError: Not within a batch: nobody knows which examples of which ranks are to count.
        """
        if not self._within:
            raise RuntimeError(
                "train_fn calls its model outside of model_hopper.batches(); allowed on several slots: to train on batches from "
                "there only"
            )

    def mean(self, metrics: Mapping[str, float], examples: int) -> dict[str, float]:
        """The means of all ranks' metrics, weighted by their examples.

        Raises:
            ValueError: Another rank has other metrics.
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
