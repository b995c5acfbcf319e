"""Compares what a cluster recorded with what the program computes alone.

Everything here is computed from the jobs and their reports, without knowledge of the policy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disturbance.program import BEGIN, CHAIN, METRIC, advance, metrics
from disturbance.searches import Search
from hopyard.client.curve_lineage import ancestor
from hopyard.client.types import Job, JobState, Statistic
from hopyard.sequences import values_at

_MOST_EXAMPLES = 5

Row = tuple[Any, ...]


@dataclass(slots=True)
class Verdict:
    """The result of the check of every position of every job.

    Attributes:
        positions: Number of reports that were checked.
        wrong: Number of reports that differ from what the program computes alone.
        doubled: Number of positions that a job has reported more than once.
        missing: Number of positions without a report.
        examples: Messages about the first of these.
    """

    positions: int = 0
    wrong: int = 0
    doubled: int = 0
    missing: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, doubled or missing."""
        return not (self.wrong or self.doubled or self.missing)

    def say(self, text: str) -> None:
        """Keep a message, unless there are enough."""
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(text)


class Reports:
    """The reports of all jobs of an experiment, and the chains that follow from them."""

    def __init__(self, search: Search, jobs: Sequence[Job], statistics: Sequence[Statistic]) -> None:
        self._search = search
        self._jobs = {job.id: job for job in jobs}
        self._rows: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
        self._times = Counter((one.job, one.report.position) for one in statistics)
        for one in statistics:
            self._rows[one.job].setdefault(one.report.position, one.report.metrics)
        self._chains: dict[str, list[bytes]] = {}

    def check(self) -> Verdict:
        """Return what is wrong, doubled or missing."""
        verdict = Verdict(positions=self._times.total())
        for (name, position), times in self._times.items():
            if times > 1:
                verdict.doubled += times - 1
                verdict.say(f"job {name} has {times} reports at {position}")
        for job in self._jobs.values():
            if not self._search.hops:  # `disturbance.units` checks their reports.
                self._check_rows(job, verdict)
                self._check_best(job, verdict)
            self._check_whole(job, verdict)
        return verdict

    def curve(self, job: Job) -> dict[int, Mapping[str, float]]:
        """Return the reports of a job by position. Those before a fork are the ones of the job from which it was forked."""
        found: dict[int, Mapping[str, float]] = {}
        passed: set[str] = set()
        upto = float("inf")
        one: Job | None = job
        while one is not None:
            parent = ancestor(one, upto, passed)
            begin = one.fork_position if parent is not None else -1
            found |= {at: row for at, row in self._rows[one.id].items() if begin < at <= upto}
            passed.add(one.id)
            upto = min(upto, begin)
            one = self._jobs.get(parent) if parent is not None else None
        return found

    def _check_rows(self, job: Job, verdict: Verdict) -> None:
        for position, found in sorted(self._rows[job.id].items()):
            expected = metrics(self._chain(job, position), position, values_at(job.hyperparameters, position - 1))
            if dict(found) != expected:
                verdict.wrong += 1
                verdict.say(f"job {job.id} reported {dict(found)} at {position}; alone it reports {expected}")

    def _check_best(self, job: Job, verdict: Verdict) -> None:
        """Check the best result of a job that has only its own reports. That of another one may be a result that it shares."""
        if job.parent is not None or job.shared_position:
            return
        found, expected = (job.best_value, job.best_position), best(self._rows[job.id])
        if found != expected:
            verdict.wrong += 1
            verdict.say(f"the best result of job {job.id} is {found}; of its reports it is {expected}")

    def _check_whole(self, job: Job, verdict: Verdict) -> None:
        curve = self.curve(job)
        end = max([*curve, job.position, job.shared_position if self._search.study else 0])
        if job.state is JobState.COMPLETED and not self._search.study:
            end = max(end, self._search.length)
        absent = [position for position in range(1, end + 1) if position not in curve]
        if absent:
            verdict.missing += len(absent)
            verdict.say(f"job {job.id} ({job.state.value} at {job.position}) has no reports at {absent[:10]}")

    def _chain(self, job: Job, position: int) -> bytes:
        """Return the chain of a job at a position as the program computes it alone."""
        known = self._chains.setdefault(job.id, [BEGIN])
        while len(known) <= position:
            at = len(known)
            parent = self._jobs.get(job.parent or "")
            if self._search.inherits and parent is not None and at <= job.fork_position:
                known.append(self._chain(parent, at))
                continue
            known.append(advance(known[-1], at, values_at(job.hyperparameters, at - 1)))
        return known[position]


def best(curve: Mapping[int, Mapping[str, float]]) -> tuple[float | None, int]:
    """Return the largest value of a curve and the first position that has it; None and 0 if it is empty."""
    value, position = max(((row[METRIC], -at) for at, row in curve.items()), default=(None, 0))
    return value, -position


def table(reports: Reports, jobs: Sequence[Job]) -> list[Row]:
    """Return what must not depend on disturbances: configuration, state, best result and chain of each job, without times.

    Which of several jobs trains a stage that they share does depend on disturbances. The best result of a job that shares results is
    therefore that of its whole curve.
    """
    rows = []
    for job in jobs:
        curve = reports.curve(job)
        end = max(curve, default=0)
        alone = job.parent is None and not job.shared_position
        value, at = (job.best_value, job.best_position) if alone else best(curve)
        chain = curve[end][CHAIN].hex() if end else ""
        rows.append((job.id, repr(dict(job.hyperparameters)), job.state.value, end, value and value.hex(), at, chain))
    return rows


def difference(expected: Sequence[Row], found: Sequence[Row]) -> str:
    """Return a message about the first difference of two tables; empty: they are equal."""
    for before, after in zip(expected, found, strict=False):
        if before != after:
            return f"the table differs: undisturbed {before}, disturbed {after}"
    if len(expected) != len(found):
        return f"the table differs: undisturbed {len(expected)} rows, disturbed {len(found)}"
    return ""
