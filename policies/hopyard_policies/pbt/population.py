"""A population of PBT: its members, their results and their ranking. A boundary is a multiple of `interval`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Population:
    """Jobs that are compared with each other, the members of the population.

    Attributes:
        number: Index of the population, from 0.
        experiment: The experiment that its jobs belong to.
        size: The intended number of members.
        interval: Units between two boundaries.
        lag: Maximum lead of a member over the slowest, in units.
        frozen: Hyperparameters that exploration does not change.
        wanted: Number of members still to be created.
        members: The member jobs, in the order in which they joined.
        results: By member, its result at each boundary that it has passed: larger is better, minus infinity is worst. A copy
            without a report has the results of the member that it replaced; otherwise the next worse member would become the
            worst, and within one round all members would be copies of the best.
        inherited: By copy without a report, the results of its parents up to the forked position.
        poor: Members that were not replaced although they were not better than random guessing at their first boundary.
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
        """Remove a member, given by the id of its job, and its results; do nothing if it is not a member."""
        self.members.pop(job, None)
        self.results.pop(job, None)
        self.inherited.pop(job, None)
        self.poor.discard(job)

    def replace(self, job: str, child: str, better: str, position: int) -> None:
        """Replace a member with a copy of a better member.

        Args:
            job: The member that is removed.
            child: The job of the copy.
            better: The member that is copied.
            position: The position of the copied snapshot.
        """
        results, history = self.results[job], self.history(better)[: self.boundary(position)]
        self.leave(job)
        self.members[child] = None
        self.results[child], self.inherited[child] = results, history

    def history(self, job: str) -> list[float]:
        """Return the results of a member at each boundary, including those of its parents before it was forked; empty: none."""
        return self.inherited.get(job, self.results.get(job, []))

    def passes(self, job: str, position: int, value: float) -> bool:
        """Record a report; return whether the member passes a boundary with it that it had not passed before.

        Args:
            job: The member.
            position: The position of the report.
            value: The result; larger is better.
        """
        mine = self.history(job)
        new = self.boundary(position) - len(mine)
        if new <= 0:
            return False
        self.inherited.pop(job, None)
        self.results[job] = mine + new * [value]
        return True

    def is_better(self, one: str, other: str) -> bool:
        """Return whether the member `one` was strictly better than the member `other` at the last boundary that both have passed.

        Both must have results.
        """
        mine, theirs = self.results[one], self.results[other]
        both = min(len(mine), len(theirs)) - 1
        return mine[both] > theirs[both]

    def best(self, part: float) -> list[str]:
        """Return the best members with results, best first: at most the fraction `part` of all members, rounded down."""
        return self._ranked()[: self._share(part)]

    def is_last(self, job: str, part: float) -> bool:
        """Return whether a member is in the worst fraction `part` (0..1) of all members; their number is rounded down.

        Members without results are counted as the worst, but the result for them is False.
        """
        return job in self._ranked()[len(self.members) - self._share(part) :]

    def _share(self, part: float) -> int:
        return math.floor(part * len(self.members) + 1e-9)  # 0.29 of 100 is 29.

    def _ranked(self) -> list[str]:
        """Return the members with results, best first: ranked by how many others are better; of equal ones the earlier member first."""
        rated = [job for job in self.members if job in self.results]
        return sorted(rated, key=lambda job: sum(self.is_better(other, job) for other in rated))

    def boundary(self, position: int) -> int:
        """Return the number of boundaries in 1..position."""
        return position // self.interval

    def next_boundary(self, position: int) -> int:
        """Return the position of the first boundary after a position."""
        return (self.boundary(position) + 1) * self.interval
