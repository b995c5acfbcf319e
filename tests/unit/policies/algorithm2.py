"""A naive implementation of Algorithm 2 of the ASHA paper, the reference for tests of the real brackets."""

from __future__ import annotations

import math


class Naive:
    """Implements `get_job` literally: each rung is a list of (job, loss, completion number) that is sorted at every call."""

    def __init__(self, eta: int, rungs: int) -> None:
        self.eta = eta
        self.rungs: list[list[tuple[str, float, int]]] = [[] for _ in range(rungs)]
        self.promoted: list[set[str]] = [set() for _ in range(rungs)]
        self.clock = 0

    def report(self, job: str, rung: int, loss: float) -> None:
        """Record the loss of a job at a rung."""
        self.clock += 1
        self.rungs[rung].append((job, loss if math.isfinite(loss) else math.inf, self.clock))

    def top(self, rung: int, count: int) -> list[tuple[str, float, int]]:
        """Return the best `count` entries of a rung, by loss; of equal losses the earlier completion comes first."""
        return sorted(self.rungs[rung], key=lambda entry: (entry[1], entry[2]))[:count]

    def all_promotable(self) -> list[tuple[str, int]]:
        """Return the (job, rung) pairs that repeated calls of `get_job` would promote, in order, without further reports."""
        found = []
        for rung in range(len(self.rungs) - 2, -1, -1):  # k = floor(log_eta(R / r)) - s - 1, ..., 1, 0
            candidates = self.top(rung, len(self.rungs[rung]) // self.eta)
            found += [(job, rung) for job, loss, _ in candidates if job not in self.promoted[rung] and loss < math.inf]
        return found

    def get_job(self) -> tuple[str, int] | None:
        """Promote a job and return it with the rung that it leaves, or None if the bottom rung must grow."""
        promotable = self.all_promotable()
        if not promotable:
            return None
        job, rung = promotable[0]
        self.promoted[rung].add(job)
        return job, rung
