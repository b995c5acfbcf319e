"""One bracket of successive halving as a data structure: the results at each rung and the jobs that may be promoted.

It uses no cluster, no time and no random numbers. A caller adds configurations to the bottom rung, reports their
results, and queries which jobs may be promoted. The cost of finding a promotion grows with the logarithm of the number of
results. The *next rung* of a job is the rung at which its result is due, from its addition or promotion until that result is
reported.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

Result = tuple[float, int, str]
"""Cost, order of the report, and job; sorting puts the best first and ties in order of the reports."""


@dataclass(slots=True)
class BracketRung:
    """One rung of a bracket: the results reported there and the jobs whose next rung it is.

    Attributes:
        results: All results, best first.
        able: The results that are finite and not promoted, best first.
        values: The reported value of each job.
        promoted: Jobs promoted from this rung, in order.
        awaited: Jobs whose results at this rung are awaited, in the order of their addition or promotion.
    """

    results: list[Result] = field(default_factory=list)
    able: list[Result] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    promoted: dict[str, None] = field(default_factory=dict)
    awaited: dict[str, None] = field(default_factory=dict)

    def report(self, job: str, value: float, cost: float) -> None:
        """Add a result.

        Args:
            job: The job.
            value: The value of its metric.
            cost: The value as a cost to minimize. A cost that is not finite is the worst and cannot be promoted.
        """
        self.awaited.pop(job, None)
        result = (cost if math.isfinite(cost) else math.inf, len(self.results), job)
        insort(self.results, result)
        self.values[job] = value
        if math.isfinite(cost):
            insort(self.able, result)

    def promotable(self, eta: int, missing: int = 0) -> int:
        """Return how many jobs may be promoted now: the first so many entries of `able`.

        They are among the best floor(|rung| / eta) results of the rung, where |rung| is the number of results plus `missing`.

        Args:
            eta: The reduction factor.
            missing: The number of jobs without a result that still belong to the rung.
        """
        places = min((len(self.results) + missing) // eta, len(self.results))
        return bisect_right(self.able, self.results[places - 1]) if places else 0


class Bracket:
    """An asynchronous bracket: Algorithm 2 of the ASHA paper.

    Rungs are numbered from 0 at the bottom. |rung| is the number of results, without jobs that have not reported at the rung.
    NaN and infinities are the worst results and are never promoted.

    Args:
        eta: The reduction factor, >= 2: one of eta results is promoted.
        rungs: The number of rungs, >= 1.

    Attributes:
        eta: As given.
        rungs: The rungs, from the bottom.
        size: The number of added configurations.
    """

    def __init__(self, eta: int, rungs: int) -> None:
        self.eta = eta
        self.rungs = [BracketRung() for _ in range(rungs)]
        self.size = 0
        """The number of added configurations."""
        self._heading: dict[str, int] = {}

    def heading(self, job: str) -> int | None:
        """Return the number of a job's next rung, at which its result is due; None: no result of the job is due in this bracket."""
        return self._heading.get(job)

    def add(self, job: str) -> None:
        """Add a configuration, given by the id of its job; its next rung is the bottom rung."""
        self.size += 1
        self._send(job, 0)

    def report(self, job: str, value: float, cost: float) -> None:
        """Add the result of a job at its next rung, the one to which it was added or promoted.

        Args:
            job: The job.
            value: The value of its metric.
            cost: The value as a cost to minimize.

        Raises:
            KeyError: No result of the job is due.
        """
        self.rungs[self._heading.pop(job)].report(job, value, cost)

    def promotable(self) -> Iterator[tuple[str, int]]:
        """Yield the jobs that may be promoted, with the numbers of their rungs: rungs from the top down, in each the best job first.

        These are, of each rung below the top with k results, the jobs among the best floor(k / eta) that are not promoted yet.
        """
        for number in range(len(self.rungs) - 2, -1, -1):
            rung = self.rungs[number]
            for _, _, job in rung.able[: rung.promotable(self.eta)]:
                yield job, number

    def promote(self, job: str, rung: int) -> None:
        """Promote a job from the rung with the number `rung`, at which it has reported, to the next one.

        Args:
            job: The job; it must be in `able` at the rung, otherwise the call fails with `StopIteration`.
            rung: The number of the rung, which is not the top rung.
        """
        here = self.rungs[rung]
        del here.able[next(index for index, result in enumerate(here.able) if result[2] == job)]
        here.promoted[job] = None
        self._send(job, rung + 1)

    def give_up(self, job: str, rung: int) -> None:
        """Exclude a job at a rung from promotion. Its result remains part of the rung."""
        here = self.rungs[rung]
        here.able = [result for result in here.able if result[2] != job]

    def heighten(self, rungs: int) -> None:
        """Add rungs at the top until there are `rungs` in total, if there are fewer; jobs at the old top rung may then be promoted."""
        self.rungs += [BracketRung() for _ in range(rungs - len(self.rungs))]

    def _send(self, job: str, rung: int) -> None:
        self._heading[job] = rung
        self.rungs[rung].awaited[job] = None


class SynchronousBracket(Bracket):
    """A bracket of Algorithm 1 (SHA): a rung is decided as a whole when all its configurations have reported.

    `width` configurations start. Of each rung with k configurations the best floor(k / eta) are promoted together.

    Args:
        eta: The reduction factor, >= 2.
        rungs: The number of rungs, >= 1.
        width: The number of configurations at the bottom rung, >= 1.

    Attributes:
        width: As given, or less after `narrow` and more after `widen`.
    """

    def __init__(self, eta: int, rungs: int, width: int) -> None:
        super().__init__(eta, rungs)
        self.width = width
        self._decided = 0
        """The number of decided rungs, from the bottom."""
        self._aside: dict[str, int] = {}
        """By job that its rung does not wait for: the number of that rung."""
        self._late: list[str] = []

    @property
    def decided(self) -> bool:
        """Whether nothing remains to be decided: all rungs are decided, and no late result is pending.

        A result is late if it is reported at a rung that is already decided. One is pending while a job excluded by `set_aside` may
        still report, and until `decide` has returned the jobs that reported late.
        """
        return self._decided == len(self.rungs) and not self._late and not self._aside

    def narrow(self) -> None:
        """Set the width to the number of added configurations, because no further configuration will be added."""
        self.width = min(self.width, self.size)

    def widen(self, width: int) -> None:
        """Raise the width to at least `width`, because more configurations will be added. No effect if the bottom rung is decided."""
        if not self._decided:
            self.width = max(self.width, width)

    def set_aside(self, job: str) -> None:
        """Stop waiting for the result of a job at its next rung.

        The job still belongs to the rung's configurations. If it reports before the rung is decided, it may be promoted; if later, not.
        """
        rung = self._heading.get(job)
        if rung is not None:
            self.rungs[rung].awaited.pop(job, None)
            self._aside[job] = rung

    def report(self, job: str, value: float, cost: float) -> None:
        """Add the result of a job; see `Bracket.report`.

        A result at a decided rung is late: `decide` returns its job among those that are not promoted.
        """
        self._aside.pop(job, None)
        if self._heading[job] < self._decided:
            self._late.append(job)
        super().report(job, value, cost)

    def heighten(self, rungs: int) -> None:
        """Add rungs at the top until there are `rungs` in total; the old top rung is decided again."""
        if rungs > len(self.rungs):
            self._decided = min(self._decided, len(self.rungs) - 1)
        super().heighten(rungs)

    def decide(self) -> tuple[list[str], list[str]] | None:
        """Decide the lowest undecided rung, if all results for which it waits have been reported.

        If jobs have reported at a rung that was already decided, these jobs are returned first, as not promoted, and no rung is
        decided.

        Returns:
            The promoted jobs, best first, and the other jobs. None: no rung can be decided now. At the top rung no job
                is promoted.
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
