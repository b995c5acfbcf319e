"""One bracket of successive halving as a data structure: who reported what at which rung, and who may go on.

It knows no cluster, no time and no chance. A caller adds configurations to the bottom rung, reports what they reached, and asks who
may be promoted. Finding the next promotion takes time that grows with the logarithm of what has been reported.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

Result = tuple[float, int, str]
"""A cost, the order in which it was reported, and whose it is: sorted, the best first, ties to the earlier report."""


@dataclass(slots=True)
class BracketRung:
    """One rung.

    Attributes:
        results: All that was reported, best first.
        able: Those of them that are finite and not promoted, best first.
        values: What each job reported, as it was.
        promoted: Jobs that were promoted from here, in that order.
        awaited: Jobs on their way to this rung, in order.
    """

    results: list[Result] = field(default_factory=list)
    able: list[Result] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    promoted: dict[str, None] = field(default_factory=dict)
    awaited: dict[str, None] = field(default_factory=dict)

    def report(self, job: str, value: float, cost: float) -> None:
        """Adds a result; one that is not finite is worst, and never goes on."""
        self.awaited.pop(job, None)
        result = (cost if math.isfinite(cost) else math.inf, len(self.results), job)
        insort(self.results, result)
        self.values[job] = value
        if math.isfinite(cost):
            insort(self.able, result)

    def promotable(self, eta: int, missing: int = 0) -> int:
        """How many of `able`, from its beginning, are among the best floor(|rung| / eta); so many missing results count as well."""
        places = min((len(self.results) + missing) // eta, len(self.results))
        return bisect_right(self.able, self.results[places - 1]) if places else 0


class Bracket:
    """An asynchronous bracket: Algorithm 2 of the ASHA paper.

    Rungs are counted from 0 at the bottom. |rung| counts results only, not the jobs that are on their way. NaN and infinities
    are worst and count as results, but what is not finite is never promoted: nothing is gained by training it further.

    Args:
        eta: The reduction factor, >= 2: of eta results one goes on.
        rungs: How many rungs there are, >= 1.
    """

    def __init__(self, eta: int, rungs: int) -> None:
        self.eta = eta
        self.rungs = [BracketRung() for _ in range(rungs)]
        self.size = 0
        """Configurations that were added."""
        self._heading: dict[str, int] = {}

    def heading(self, job: str) -> int | None:
        """The rung that a job is on its way to; None: it is on none."""
        return self._heading.get(job)

    def add(self, job: str) -> None:
        """A new configuration is on its way to the bottom rung."""
        self.size += 1
        self._send(job, 0)

    def report(self, job: str, value: float, cost: float) -> None:
        """A job has come to the rung that it was on its way to.

        Args:
            job: The job.
            value: Its metric there, as people see it.
            cost: The same as something to minimise.
        """
        self.rungs[self._heading.pop(job)].report(job, value, cost)

    def promotable(self) -> Iterator[tuple[str, int]]:
        """Who may be promoted, and from which rung: rungs from the top down, in each the best first.

        Of each rung below the top these are the ones not promoted yet among the best floor(|rung| / eta).
        """
        for number in range(len(self.rungs) - 2, -1, -1):
            rung = self.rungs[number]
            for _, _, job in rung.able[: rung.promotable(self.eta)]:
                yield job, number

    def promote(self, job: str, rung: int) -> None:
        """Sends a job from its rung to the next."""
        here = self.rungs[rung]
        del here.able[next(index for index, result in enumerate(here.able) if result[2] == job)]
        here.promoted[job] = None
        self._send(job, rung + 1)

    def give_up(self, job: str, rung: int) -> None:
        """A job that has reported at a rung can never be promoted any more. It keeps its place among the results."""
        here = self.rungs[rung]
        here.able = [result for result in here.able if result[2] != job]

    def heighten(self, rungs: int) -> None:
        """Adds rungs on top, up to so many: who stands at the old top may be promoted from now on."""
        self.rungs += [BracketRung() for _ in range(rungs - len(self.rungs))]

    def _send(self, job: str, rung: int) -> None:
        self._heading[job] = rung
        self.rungs[rung].awaited[job] = None


class SynchronousBracket(Bracket):
    """A bracket of Algorithm 1, SHA: a rung is decided when all its configurations have reported, and then at once.

    `width` configurations begin, and of each rung the best floor(|rung| / eta) go on together.

    Args:
        eta: The reduction factor, >= 2.
        rungs: How many rungs there are, >= 1.
        width: Configurations of the bottom rung, >= 1.
    """

    def __init__(self, eta: int, rungs: int, width: int) -> None:
        super().__init__(eta, rungs)
        self.width = width
        self._decided = 0
        """Rungs that are decided, from the bottom."""
        self._aside: dict[str, int] = {}
        """Jobs that a rung does not wait for, and the rung."""
        self._late: list[str] = []

    @property
    def decided(self) -> bool:
        """Whether all rungs are decided: nothing more will come of it."""
        return self._decided == len(self.rungs) and not self._late and not self._aside

    def narrow(self) -> None:
        """No more configurations will come than were added."""
        self.width = min(self.width, self.size)

    def set_aside(self, job: str) -> None:
        """Waits no longer for a job that is on its way. It counts, and may still report: in time, or too late to go on."""
        rung = self._heading.get(job)
        if rung is not None:
            self.rungs[rung].awaited.pop(job, None)
            self._aside[job] = rung

    def report(self, job: str, value: float, cost: float) -> None:
        """A job has come to its rung; see `Bracket.report`."""
        self._aside.pop(job, None)
        if self._heading[job] < self._decided:
            self._late.append(job)
        super().report(job, value, cost)

    def heighten(self, rungs: int) -> None:
        """Adds rungs on top; the old top rung is decided anew."""
        if rungs > len(self.rungs):
            self._decided = min(self._decided, len(self.rungs) - 1)
        super().heighten(rungs)

    def decide(self) -> tuple[list[str], list[str]] | None:
        """Decides the lowest rung that is not decided, if none of its configurations is on its way.

        Returns:
            Who goes on, best first, and who does not; None: nothing is to be decided now. On the top rung nobody goes on.
        """
        if self._late:
            late, self._late = self._late, []
            return [], late
        if self._decided == len(self.rungs):
            return None
        number = self._decided
        rung = self.rungs[number]
        if rung.awaited or (number == 0 and self.size < self.width):
            return None
        top = number == len(self.rungs) - 1
        missing = sum(at == number for at in self._aside.values())
        winners = [] if top else [job for _, _, job in rung.able[: rung.promotable(self.eta, missing)]]
        for job in winners:
            self.promote(job, number)
        self._decided += 1
        return winners, [job for _, _, job in rung.results if job not in rung.promoted]
