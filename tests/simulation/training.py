"""Simulated training: a job's state is a hash chain over its hyperparameters and positions.

Whoever trains from a wrong or stale snapshot therefore reports metrics that differ from the expected ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from hopyard.sequences import as_sequence

_MASK = (1 << 64) - 1


class Blob(NamedTuple):
    """The bytes of a snapshot."""

    position: int
    state: int

    @property
    def sha256(self) -> str:
        """Its name: equal content, equal name."""
        return f"{self.position}-{self.state:016x}"


class Store(dict[str, Blob]):
    """The store: bytes by name, each with the experiments that need them."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, set[str]] = {}

    def put(self, blob: Blob, owner: str) -> None:
        """Somebody needs these bytes."""
        self[blob.sha256] = blob
        self.owners.setdefault(blob.sha256, set()).add(owner)

    def drop(self, sha256: str, owner: str) -> None:
        """Somebody needs them no more; they go when nobody does."""
        owners = self.owners.get(sha256, set())
        owners.discard(owner)
        if not owners:
            self.pop(sha256, None)
            self.owners.pop(sha256, None)


def mix(*values: int) -> int:
    """A well mixed 64-bit number of some others."""
    h = 0x9E3779B97F4A7C15
    for value in values:
        h = ((h ^ (value & _MASK)) * 0xBF58476D1CE4E5B9) & _MASK
        h ^= h >> 29
    return h


class Rates:
    """A configuration's `lr`, a number or a sequence of numbers, by position."""

    def __init__(self, hyperparameters: Mapping[str, Any]) -> None:
        self._lr = as_sequence(hyperparameters["lr"])

    def before(self, position: int) -> int:
        """What is in force in the unit that ends at a position (>= 1)."""
        found = self._lr.value(position - 1)
        assert isinstance(found, int)
        return found


def proposed(seed: int) -> dict[str, Any]:
    """A configuration of its own for each seed."""
    return {"lr": seed % 1_000_003}


def sequenced(seed: int) -> dict[str, Any]:
    """A configuration that has its beginning in common with others."""
    first, second = 1 + seed % 6, 1 + seed // 6 % 6
    if first >= second:
        return {"lr": {"sequence": {"multi_step": {"milestones": [first], "values": [1, 2 + seed // 36 % 2]}}}}
    return {"lr": {"sequence": {"multi_step": {"milestones": [first, second], "values": [1, 2, 3]}}}}


def initial(lr: int) -> int:
    """The state before training."""
    return mix(lr, 1)


def train(state: int, lr: int, position: int) -> int:
    """The state after one unit of training, which ends at a position."""
    return mix(state, lr, position)


def metrics(state: int) -> dict[str, float]:
    """What training reports: a number in 0..1 that tells the state."""
    return {"score": (state >> 20) % 100_003 / 100_003}


def evaluation(state: int, part: str) -> tuple[dict[str, float], int]:
    """What an evaluation on a part of the input reports, and its number of examples."""
    seed = zlib.crc32(part.encode())
    return {"val": mix(state, seed) % 10_007 / 10_007}, 10 + seed % 50
