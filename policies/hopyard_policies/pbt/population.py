"""A population: who is in it, how its members do, and who is far behind or in front."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Population:
    """Jobs that are compared with each other.

    Attributes:
        number: Its place among all populations, from 0.
        experiment: Whose jobs they are.
        size: How many members it was made for.
        interval: Units between two judgements of a member.
        lag: How far a member may be in front of the slowest, in units.
        frozen: Hyperparameters that no exploration changes.
        wanted: Members that are still to be created.
        members: The jobs in it, in the order in which they came.
        results: What members had at each boundary so far: larger is better, minus infinity is worst. A copy that has reported
            nothing yet stands for the member that it replaced: else the next worse one would at once be the worst, and in one
            round all would be copies of the best.
        inherited: What copies that have reported nothing yet had on the way to where they were made.
        poor: Members kept though they were not above random guessing at first.
    """

    number: int
    experiment: str
    size: int
    interval: int
    lag: int
    frozen: frozenset[str] = frozenset()
    wanted: int = 0
    members: dict[str, None] = field(default_factory=dict)
    results: dict[str, list[float]] = field(default_factory=dict)
    inherited: dict[str, list[float]] = field(default_factory=dict)
    poor: set[str] = field(default_factory=set)

    def leave(self, job: str) -> None:
        """A member is none any more."""
        self.members.pop(job, None)
        self.results.pop(job, None)
        self.inherited.pop(job, None)
        self.poor.discard(job)

    def replace(self, job: str, child: str, better: str, position: int) -> None:
        """A copy of a better member, from a position, takes a member's place."""
        results, history = self.results[job], self.history(better)[: self.boundary(position)]
        self.leave(job)
        self.members[child] = None
        self.results[child], self.inherited[child] = results, history

    def history(self, job: str) -> list[float]:
        """What a member had at each boundary along its lineage."""
        return self.inherited.get(job, self.results.get(job, []))

    def passes(self, job: str, position: int, value: float) -> bool:
        """A member reports at a position; whether that is a boundary that it has not passed before."""
        mine = self.history(job)
        new = self.boundary(position) - len(mine)
        if new <= 0:
            return False
        self.inherited.pop(job, None)
        self.results[job] = mine + new * [value]
        return True

    def is_better(self, one: str, other: str) -> bool:
        """Whether a member was better than another at the last boundary that both have passed."""
        mine, theirs = self.results[one], self.results[other]
        both = min(len(mine), len(theirs)) - 1
        return mine[both] > theirs[both]

    def best(self, part: float) -> list[str]:
        """As many of the best as are that part of the population, rounded down, best first."""
        return self._ranked()[: self._share(part)]

    def is_last(self, job: str, part: float) -> bool:
        """Whether a member is in the worst part of the population, whatever those will report that have not yet."""
        return job in self._ranked()[len(self.members) - self._share(part) :]

    def _share(self, part: float) -> int:
        return math.floor(part * len(self.members) + 1e-9)  # 0.29 of 100 are 29.

    def _ranked(self) -> list[str]:
        """Those that fewest others are better than first; of equals the one that came earlier."""
        rated = [job for job in self.members if job in self.results]
        return sorted(rated, key=lambda job: sum(self.is_better(other, job) for other in rated))

    def boundary(self, position: int) -> int:
        """How many boundaries lie up to a position."""
        return position // self.interval

    def next_boundary(self, position: int) -> int:
        """The first boundary beyond a position."""
        return (self.boundary(position) + 1) * self.interval
