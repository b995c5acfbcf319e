"""A job's learning curve: one entry for each reported position, with the parts of an evaluation combined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import Metrics, Report


def same_metrics(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    """Returns whether two mappings are equal, with NaN equal to NaN."""
    if a.keys() != b.keys():
        return False
    return all(a[name] == b[name] or (math.isnan(a[name]) and math.isnan(b[name])) for name in a)


@dataclass(slots=True)
class CurveEntry:
    """The metrics at one position: those of whole reports, and those of the parts of an evaluation, each with its number of examples.

    Parts are combined once `expected` of them are there; with 0, after each part. `model` is the hash of the snapshot that the parts
    evaluated.
    """

    position: int
    seconds: float = 0.0
    whole: Metrics | None = None
    parts: dict[str, tuple[int, Metrics]] = field(default_factory=dict)
    expected: int = 0
    model: str = ""

    @property
    def complete(self) -> bool:
        """True if all expected parts are there."""
        return len(self.parts) >= self.expected

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the whole report, overwritten by the means of the parts' metrics weighted by examples."""
        combined: dict[str, float] = dict(self.whole or {})
        if self.parts and self.complete:
            names = {name for _, metrics in self.parts.values() for name in metrics}
            for name in sorted(names):
                weighted = [(max(weight, 1), m[name]) for weight, m in self.parts.values() if name in m]
                combined[name] = sum(w * value for w, value in weighted) / sum(w for w, _ in weighted)
        return combined


@dataclass(slots=True)
class LearningCurve:
    """Entries by position, ascending. Only the first report of each (position, part) is recorded.

    Attributes:
        points: The entries by position.
        added: The position of each recorded report, in order of arrival.
    """

    points: dict[int, CurveEntry] = field(default_factory=dict)
    added: list[int] = field(default_factory=list)

    def recorded(self, report: Report) -> Metrics | None:
        """Returns the recorded metrics for a report's position and part, or None if the report is new."""
        point = self.points.get(report.position)
        if point is None:
            return None
        if report.part:
            known = point.parts.get(report.part)
            return known[1] if known is not None else None
        return point.whole

    def evaluated(self, position: int, model: str) -> None:
        """Prepares for a part evaluated on the snapshot `model`: drops the incomplete parts that belong to another snapshot.

        A job that was rewound and trained again differently has another model at the same position.
        """
        point = self.points.get(position)
        if point is not None and not point.complete and point.model != model:
            point.parts.clear()

    def add(self, report: Report, parts: int = 0, model: str = "") -> CurveEntry:
        """Records a new report and returns its entry. `parts` is the number of parts of the evaluation; 0: unknown."""
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
        """Returns the entries up to and including a position, ascending."""
        return [point for point in self.points.values() if point.position <= position]

    def back(self, position: int) -> Iterator[CurveEntry]:
        """Iterates over the entries from a position downwards, so that callers can stop early."""
        return (point for point in reversed(self.points.values()) if point.position <= position)
