"""Algorithm 2 of the ASHA paper as naively as its text has it: what the real brackets are compared with."""

from __future__ import annotations

import math


class Naive:
    """`get_job` word by word: rungs are lists of (job, loss, when), and everything is sorted anew each time."""

    def __init__(self, eta: int, rungs: int) -> None:
        self.eta = eta
        self.rungs: list[list[tuple[str, float, int]]] = [[] for _ in range(rungs)]
        self.promoted: list[set[str]] = [set() for _ in range(rungs)]
        self.clock = 0

    def report(self, job: str, rung: int, loss: float) -> None:
        """Update configuration job in this rung with this loss."""
        self.clock += 1
        self.rungs[rung].append((job, loss if math.isfinite(loss) else math.inf, self.clock))

    def top(self, rung: int, count: int) -> list[tuple[str, float, int]]:
        """The best of a rung: by loss, ties to the earlier completion."""
        return sorted(self.rungs[rung], key=lambda entry: (entry[1], entry[2]))[:count]

    def all_promotable(self) -> list[tuple[str, int]]:
        """Whom `get_job` would promote, if it were asked again and again and no result came between."""
        found = []
        for rung in range(len(self.rungs) - 2, -1, -1):  # k = floor(log_eta(R / r)) - s - 1, ..., 1, 0
            candidates = self.top(rung, len(self.rungs[rung]) // self.eta)
            found += [(job, rung) for job, loss, _ in candidates if job not in self.promoted[rung] and loss < math.inf]
        return found

    def get_job(self) -> tuple[str, int] | None:
        """The job to promote and the rung it leaves; None: grow the bottom rung."""
        promotable = self.all_promotable()
        if not promotable:
            return None
        job, rung = promotable[0]
        self.promoted[rung].add(job)
        return job, rung
