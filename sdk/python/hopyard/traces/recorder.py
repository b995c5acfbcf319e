"""Builds the traces of an experiment (the learning curves of its jobs with training times) from its reports and jobs."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hopyard.client.curve_lineage import ancestor
from hopyard.client.types import Experiment, Job, Statistic
from hopyard.client.wire import converters
from hopyard.traces.trace import Trace

_BEGINNING = 0


@dataclass(slots=True)
class _Column:
    """The reports of one job as arrays, which need a tenth of the memory of the report objects.

    Attributes:
        positions: The positions with a report, ascending.
        seconds: Training time up to each position since the position before it.
        metrics: For each metric its values, one for each position; NaN: not reported there.
    """

    positions: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    metrics: dict[str, array[float]] = field(default_factory=dict)


class Recorder:
    """Builds the traces of an experiment from its reports. Call `add` once or several times with reports, then `traces`.

    The trace of a job that started from another job's snapshot (a fork), or that reuses another job's results, begins with the
    other job's curve up to the position of that snapshot or of those results. Reports at position 0, before any training, are
    omitted. Reports on parts of the data at one position become one: their values are averaged, weighted by their number of
    examples, and their seconds are added.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._pending: list[Statistic] = []

    def add(self, statistics: Iterable[Statistic]) -> None:
        """Add reports. The reports of a job must be consecutive, also across calls, and ordered by position."""
        for one in statistics:
            if self._pending and self._pending[0].job != one.job:
                self._finish_job()
            self._pending.append(one)

    def traces(self, experiment: Experiment, jobs: Sequence[Job]) -> list[Trace]:
        """Return the traces of the jobs that have reports, in the order of `jobs`; empty: none has reports.

        Args:
            experiment: The experiment, which names the metric and its mode.
            jobs: All jobs of the experiment, including those from which others were forked.
        """
        self._finish_job()
        known = {job.id: job for job in jobs}
        return [trace for job in jobs if (trace := self._trace(experiment, job, known)) is not None]

    def _finish_job(self) -> None:
        reports, self._pending = [one for one in self._pending if one.report.position > _BEGINNING], []
        if reports:
            self._columns[reports[0].job] = _column(reports)

    def _trace(self, experiment: Experiment, job: Job, known: Mapping[str, Job]) -> Trace | None:
        pieces = self._pieces(job, known)
        metric = experiment.metric
        names = dict.fromkeys((metric.name, *sorted({name for column, _, _ in pieces for name in column.metrics})))
        values: dict[str, list[float]] = {name: [] for name in names}
        seconds: list[float] = []
        positions: list[int] = []
        for column, begin, end in pieces:
            positions.extend(column.positions[begin:end])
            seconds.extend(column.seconds[begin:end])
            for name, found in values.items():
                given = column.metrics.get(name)
                found.extend(given[begin:end] if given is not None else [math.nan] * (end - begin))
        if not positions:
            return None
        others = {name: tuple(found) for name, found in values.items() if name != metric.name}
        own = tuple(values[metric.name])
        return Trace(
            job.id, job.hyperparameters, metric.name, metric.mode, own, tuple(seconds), tuple(positions), others
        )

    def _pieces(self, job: Job, known: Mapping[str, Job]) -> list[tuple[_Column, int, int]]:
        """Return the parts that make up a job's curve, from its beginning.

        Args:
            job: The job.
            known: All jobs by id.

        Returns:
            For each part the reports of the job that trained it, and the first (inclusive) and last (exclusive) index into them.
        """
        pieces: list[tuple[_Column, int, int]] = []
        passed: set[str] = set()
        upto: float = math.inf
        one: Job | None = job
        while one is not None:
            parent = ancestor(one, upto, passed)
            begin = one.fork_position if parent is not None else _BEGINNING
            if (column := self._columns.get(one.id)) is not None:
                first, last = bisect_right(column.positions, begin), bisect_right(column.positions, upto)
                if first < last:
                    pieces.append((column, first, last))
            passed.add(one.id)
            upto = min(upto, begin)
            one = known.get(parent) if parent is not None else None
        return pieces[::-1]


def _column(reports: Sequence[Statistic]) -> _Column:
    seconds: dict[int, float] = {}
    for one in reports:
        seconds[one.report.position] = seconds.get(one.report.position, 0.0) + one.report.seconds
    column = _Column(array("q", seconds), array("d", seconds.values()))
    for name in {name for one in reports for name in one.report.metrics}:
        values = {point.position: point.value for point in converters.curve(reports, name)}
        column.metrics[name] = array("d", [values.get(position, math.nan) for position in column.positions])
    return column
