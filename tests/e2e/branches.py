"""Reads what runs of `branching/` trained, and computes the states that each trial passes if it is trained alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, Final

from hopyard.client import Client
from hopyard.client.types import Experiment, Job
from hopyard.sequences import values_at
from tests.e2e.harness import Curve, experiment_copy

BRANCHING: Final = Path(__file__).parent / "branching"
LENGTH: Final = 36

METRICS: Final = ("train_loss", "loss", "accuracy")

State = tuple[str, ...]
"""The state at position p: the hyperparameter values in force at positions 0 to p - 1."""


def branching_file(
    folder: Path, log: Path, pace: float = 0.0, *, light: bool = False, held: str | Path = "", **changes: Any
) -> Path:
    """Write the experiment `branching/` into a folder, with changed top-level fields; its runs record what they train in `log`.

    A `light` one needs no PyTorch, and trains nothing while the file `held` exists.
    """
    log.mkdir()
    environment = {"BRANCHING_LOG": str(log), "BRANCHING_PACE": str(pace), "BRANCHING_HELD": str(held)}
    code = "light.py" if light else "train.py"
    return experiment_copy(BRANCHING, folder, {"environment": environment, **changes}, code)


@dataclass(frozen=True)
class Trained:
    """What one run trained: its job, its process, and the positions it reached, in order."""

    job: str
    pid: int
    positions: tuple[int, ...]


def trained(log: Path) -> list[Trained]:
    """Return all runs that have trained at least one position so far, in the order in which they began."""
    found = []
    for file in sorted(log.iterdir()):
        _, job, pid = file.name.split("-")
        *whole, _ = file.read_text().split("\n")
        if whole:
            found.append(Trained(job, int(pid), tuple(map(int, whole))))
    return found


class States:
    """The states that trials pass, computed by brute force from their hyperparameters."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._values = {job.id: tuple(_values(job.hyperparameters)) for job in jobs}
        self._ends = {job.id: job.position for job in jobs}

    def of(self, job: str, position: int) -> State:
        """Return a trial's state at a position."""
        return self._values[job][:position]

    def all(self) -> set[State]:
        """Return each state that some trial passes, which is what must be trained once."""
        return {self.of(job, p) for job, end in self._ends.items() for p in range(1, end + 1)}

    def partings(self, job: str) -> set[int]:
        """Return the positions up to which a trial has the same states as each other trial."""
        mine = self._values[job]
        others = (values for other, values in self._values.items() if other != job)
        return {sum(1 for _ in takewhile(bool, map(eq, mine, values))) for values in others}

    def executed(self, runs: Sequence[Trained]) -> Counter[State]:
        """Return how often runs reached each state."""
        return Counter(self.of(run.job, position) for run in runs for position in run.positions)


def whole_curves(client: Client, experiment: Experiment) -> dict[str, Curve]:
    """Return each trial's curve from its beginning, including what other trials trained for it."""
    found: dict[str, Curve] = {}
    for job in client.jobs(experiment):
        curve = found[job.id] = {}
        for metric in METRICS:
            for point in client.curve(experiment, job.id, metric):
                curve.setdefault(point.position, {})[metric] = point.value.hex()
    return found


def _values(hyperparameters: Mapping[str, Any]) -> Iterator[str]:
    for position in range(LENGTH):
        yield json.dumps(values_at(hyperparameters, position), sort_keys=True)
