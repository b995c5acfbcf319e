"""Simulated training: the state of a job is a hash chain over its hyperparameters and positions.

Training from a wrong or stale snapshot therefore reports metrics that differ from the expected ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from hopyard.sequences import as_sequence

_MASK = (1 << 64) - 1


class Blob(NamedTuple):
    """The content of a snapshot."""

    position: int
    state: int

    @property
    def sha256(self) -> str:
        """The name of the content; equal contents have equal names."""
        return f"{self.position}-{self.state:016x}"


class Store(dict[str, Blob]):
    """The store: contents by name, each with the experiments that own it."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, set[str]] = {}

    def put(self, blob: Blob, owner: str) -> None:
        """Store a content and add an owner."""
        self[blob.sha256] = blob
        self.owners.setdefault(blob.sha256, set()).add(owner)

    def drop(self, sha256: str, owner: str) -> None:
        """Remove an owner; delete the content when it has none."""
        owners = self.owners.get(sha256, set())
        owners.discard(owner)
        if not owners:
            self.pop(sha256, None)
            self.owners.pop(sha256, None)


def mix(*values: int) -> int:
    """Return a 64-bit hash of some numbers."""
    h = 0x9E3779B97F4A7C15
    for value in values:
        h = ((h ^ (value & _MASK)) * 0xBF58476D1CE4E5B9) & _MASK
        h ^= h >> 29
    return h


class Rates:
    """The value of a configuration's `lr`, a number or a sequence of numbers, by position."""

    def __init__(self, hyperparameters: Mapping[str, Any]) -> None:
        self._lr = as_sequence(hyperparameters["lr"])

    def before(self, position: int) -> int:
        """Return the value in the unit that ends at a position (>= 1)."""
        found = self._lr.value(position - 1)
        assert isinstance(found, int)
        return found


def proposed(seed: int) -> dict[str, Any]:
    """Return a different configuration for each seed."""
    return {"lr": seed % 1_000_003}


def sequenced(seed: int) -> dict[str, Any]:
    """Return a configuration with a prefix in common with others."""
    first, second = 1 + seed % 6, 1 + seed // 6 % 6
    if first >= second:
        return {"lr": {"sequence": {"multi_step": {"milestones": [first], "values": [1, 2 + seed // 36 % 2]}}}}
    return {"lr": {"sequence": {"multi_step": {"milestones": [first, second], "values": [1, 2, 3]}}}}


def initial(lr: int) -> int:
    """Return the state before training."""
    return mix(lr, 1)


def train(state: int, lr: int, position: int) -> int:
    """Return the state after one unit of training that ends at a position."""
    return mix(state, lr, position)


def metrics(state: int) -> dict[str, float]:
    """Return the metrics of a state: a number in 0..1 that identifies it."""
    return {"score": (state >> 20) % 100_003 / 100_003}


def evaluation(state: int, part: str) -> tuple[dict[str, float], int]:
    """Return the metrics and the number of examples of an evaluation on one part of the input."""
    seed = zlib.crc32(part.encode())
    return {"val": mix(state, seed) % 10_007 / 10_007}, 10 + seed % 50
