"""What runs of `branching/` really trained, and what each trial is when it is trained alone."""

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
"""What a state at position p depends on: the values in force at 0 .. p - 1."""


def branching_file(
    folder: Path, log: Path, pace: float = 0.0, *, light: bool = False, held: str | Path = "", **changes: Any
) -> Path:
    """The experiment in a folder of its own, with some of its top-level fields changed; runs tell what they train in `log`.

    A `light` one needs no PyTorch, and trains nothing while the file `held` is there.
    """
    log.mkdir()
    environment = {"BRANCHING_LOG": str(log), "BRANCHING_PACE": str(pace), "BRANCHING_HELD": str(held)}
    code = "light.py" if light else "train.py"
    return experiment_copy(BRANCHING, folder, {"environment": environment, **changes}, code)


@dataclass(frozen=True)
class Trained:
    """What one run trained: the positions it came to, in order, and its process."""

    job: str
    pid: int
    positions: tuple[int, ...]


def trained(log: Path) -> list[Trained]:
    """All runs that have trained something so far, in the order in which they began."""
    found = []
    for file in sorted(log.iterdir()):
        _, job, pid = file.name.split("-")
        *whole, _ = file.read_text().split("\n")
        if whole:
            found.append(Trained(job, int(pid), tuple(map(int, whole))))
    return found


class States:
    """The states that trials pass, by brute force."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._values = {job.id: tuple(_values(job.hyperparameters)) for job in jobs}
        self._ends = {job.id: job.position for job in jobs}

    def of(self, job: str, position: int) -> State:
        """A trial's state at a position."""
        return self._values[job][:position]

    def all(self) -> set[State]:
        """Each state that some trial has passed: what must be trained, once each."""
        return {self.of(job, p) for job, end in self._ends.items() for p in range(1, end + 1)}

    def partings(self, job: str) -> set[int]:
        """How far a trial is the same as each other one."""
        mine = self._values[job]
        others = (values for other, values in self._values.items() if other != job)
        return {sum(1 for _ in takewhile(bool, map(eq, mine, values))) for values in others}

    def executed(self, runs: Sequence[Trained]) -> Counter[State]:
        """How often runs came to each state."""
        return Counter(self.of(run.job, position) for run in runs for position in run.positions)


def whole_curves(client: Client, experiment: Experiment) -> dict[str, Curve]:
    """Each trial's curve from its beginning on, whoever trained it."""
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
