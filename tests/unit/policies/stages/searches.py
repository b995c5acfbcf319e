"""Simulated searches on small spaces of sequences, and the set of states that they trained, computed by brute force."""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hopyard.policy import Policy
from hopyard.sequences import as_sequence
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import Costs, CurveWorkload, Faults, Lesson, Result, simulate

Configuration = Mapping[str, Any]


def prefix(configuration: Configuration, position: int) -> tuple[object, ...]:
    """Return all values at each position before `position`. The results are equal exactly if the states at that position are."""
    return tuple(
        (name, tuple(_at(json.dumps(value), p) for p in range(position)))
        for name, value in sorted(configuration.items())
    )


@functools.cache
def _at(written: str, position: int) -> object:
    return as_sequence(json.loads(written)).value(position)


def value(configuration: Configuration, position: int) -> float:
    """Return a metric value in 0..1 that depends only on the state at the position."""
    digest = hashlib.sha256(repr(prefix(configuration, position)).encode()).hexdigest()
    return int(digest[:8], 16) / 2**32


def steps(milestones: Sequence[int], values: Sequence[float]) -> Configuration:
    """Return a piecewise constant sequence."""
    return {"sequence": {"multi_step": {"milestones": list(milestones), "values": list(values)}}}


def random_space(rng: random.Random, trials: int, length: int) -> list[Configuration]:
    """Return random configurations with common prefixes; some may be equal, also if they are written differently."""
    found: list[Configuration] = []
    for _ in range(trials):
        marks = sorted(rng.sample(range(1, length), rng.randint(1, min(3, length - 1))))
        values = [rng.choice((0.1, 0.2)) for _ in range(len(marks) + 1)]
        found.append(
            {
                "lr": steps(marks, values),
                "batch": rng.choice([32, steps([rng.randint(1, length - 1)], [32, 64])]),
                "decay": rng.choice([0, 0, 1]),
            }
        )
    return found


class Coarse(CurveWorkload):
    """A workload whose programs report, stop and save only every `every` positions and at the end.

    They train `beyond` positions past their end. With `passes`, a program reports at its end only if the end is a multiple of `every`,
    else at the next multiple.
    """

    every = 1
    beyond = 0
    passes = False

    def lesson(self, hyperparameters: Configuration) -> Lesson:
        """Return the reported part of the curve."""
        end = self.max_position
        positions = sorted({*range(self.every, end + 1, self.every), *range(end, end + self.beyond + 1)})
        if self.passes:
            positions = list(range(self.every, end + self.every, self.every))
        steps = [after - before for before, after in zip([0, *positions], positions, strict=False)]
        return Lesson([self._curve(hyperparameters, p) for p in positions], steps, positions)


@dataclass(frozen=True)
class Search:
    """The result of a simulated search, with the sets of trained states and of all states, as (position, prefix)."""

    result: Result
    trained: set[object]
    whole: set[object]


def search(
    configurations: Sequence[Configuration],
    length: int,
    *,
    slots: int,
    costs: Costs | None = None,
    faults: Faults | None = None,
    seed: int = 0,
    policy: type[Policy] = StageTreePolicy,
    every: int = 1,
    passes: bool = False,
    **parameters: Any,
) -> Search:
    """Simulate a search with a report every `every` positions; the same arguments give the same search."""
    known: dict[tuple[int, int], float] = {}

    def curve(configuration: Configuration, position: int) -> float:
        key = (id(configuration), position)
        if key not in known:
            known[key] = value(configuration, position)
        return known[key]

    workload = Coarse(curve, configurations, length)
    workload.every, workload.passes = every, passes
    result = simulate(
        workload, policy, slots=slots, costs=costs, faults=faults, seed=seed, parameters=parameters, details=True
    )
    assert result.curves is not None
    trained: set[object] = {
        (position, prefix(configurations[int(job) - 1], int(position or 0)))
        for job, reports in result.curves.items()
        for _, position, _ in reports
    }
    whole: set[object] = {
        (p, prefix(configuration, p)) for configuration in configurations for p in range(1, length + 1)
    }
    return Search(result, trained, whole)
