"""The learning curve of a job: one entry for each reported position. An entry combines the parts of a partitioned evaluation.

An evaluation may consist of parts: several runs evaluate the same snapshot, each on one partition of the data, and each reports the
metrics of its part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import Metrics, Report


def same_metrics(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    """Return whether the metrics `a` and `b` have the same names and equal values. NaN equals NaN here."""
    if a.keys() != b.keys():
        return False
    return all(a[name] == b[name] or (math.isnan(a[name]) and math.isnan(b[name])) for name in a)


@dataclass(slots=True)
class CurveEntry:
    """The metrics of a job at one position: those of a report on all data, and those of the parts of an evaluation.

    Attributes:
        position: The position.
        seconds: Sum of the training times of the reports at this position, in seconds.
        whole: Metrics of the report on all data; None: there is no such report.
        parts: (number of examples, metrics) of each part, by the name of the part.
        expected: Number of parts of the evaluation. The parts are combined when so many have been reported; 0: the number is unknown,
            and the parts reported so far are combined.
        model: Hash of the snapshot that the parts evaluated; empty: unknown, or there are no parts.
    """

    position: int
    seconds: float = 0.0
    whole: Metrics | None = None
    parts: dict[str, tuple[int, Metrics]] = field(default_factory=dict)
    expected: int = 0
    model: str = ""

    @property
    def complete(self) -> bool:
        """Whether all expected parts have been reported. True also if the number of parts is unknown or there are none."""
        return len(self.parts) >= self.expected

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the whole report, overwritten by the means of the parts' metrics, weighted by their numbers of examples.

        While expected parts are missing, the parts are left out. Empty if there are neither a report on all data nor combined parts.
        """
        combined: dict[str, float] = dict(self.whole or {})
        if self.parts and self.complete:
            names = {name for _, metrics in self.parts.values() for name in metrics}
            for name in sorted(names):
                weighted = [(max(weight, 1), m[name]) for weight, m in self.parts.values() if name in m]
                combined[name] = sum(w * value for w, value in weighted) / sum(w for w, _ in weighted)
        return combined


@dataclass(slots=True)
class LearningCurve:
    """Represents the reported metrics of a job. Only the first report for each pair of position and part is recorded.

    Attributes:
        points: The entries by position, ascending.
        added: The position of each recorded report, in order of arrival.
    """

    points: dict[int, CurveEntry] = field(default_factory=dict)
    added: list[int] = field(default_factory=list)

    def recorded(self, report: Report) -> Metrics | None:
        """Return the recorded metrics for the position and part of `report`, or None if there are none yet."""
        point = self.points.get(report.position)
        if point is None:
            return None
        if report.part:
            known = point.parts.get(report.part)
            return known[1] if known is not None else None
        return point.whole

    def evaluated(self, position: int, model: str) -> None:
        """Drop the parts of an incomplete evaluation at `position` if they evaluate another snapshot than that with the hash `model`.

        To be called before a part that evaluates `model` is added. If a job resumed from an older snapshot and trained the same
        positions again, its new snapshot at a position can have another hash than the one that was evaluated before. Without an entry
        at `position` nothing changes.
        """
        point = self.points.get(position)
        if point is not None and not point.complete and point.model != model:
            point.parts.clear()

    def add(self, report: Report, parts: int = 0, model: str = "") -> CurveEntry:
        """Record a new report and return its entry.

        Args:
            report: The report. The caller has checked with `recorded` that it is new.
            parts: Number of parts of the evaluation that the report belongs to; 0: unknown. Ignored for a report without a part.
            model: Hash of the evaluated snapshot. Ignored for a report without a part.
        """
        point = self.points.get(report.position)
        if point is None:
            late = next(reversed(self.points), -1) > report.position  # An evaluation of an earlier position.
            point = self.points[report.position] = CurveEntry(report.position)
            if late:
                self.points = dict(sorted(self.points.items()))
        self.added.append(report.position)
        point.seconds += report.seconds
        if report.part:
            point.parts[report.part] = (report.examples, report.metrics)
            point.expected, point.model = parts, model
        else:
            point.whole = report.metrics
        return point

    def upto(self, position: int) -> list[CurveEntry]:
        """Return the entries up to and including `position`, ascending."""
        return [point for point in self.points.values() if point.position <= position]

    def back(self, position: int) -> Iterator[CurveEntry]:
        """Iterate lazily over the entries from `position` (inclusive) downwards."""
        return (point for point in reversed(self.points.values()) if point.position <= position)
