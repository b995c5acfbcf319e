"""A job's learning curve: what it reported, once for each position, with evaluations by parts combined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import Metrics, Report


def same_metrics(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    """Whether two mappings are equal, with NaN equal to NaN."""
    if a.keys() != b.keys():
        return False
    return all(a[name] == b[name] or (math.isnan(a[name]) and math.isnan(b[name])) for name in a)


@dataclass(slots=True)
class CurveEntry:
    """What is known at one position: the whole's metrics, and those of each part with its weight.

    With `expected` the parts count when there are so many of them; with 0 each counts at once. `model` is the snapshot that they were
    evaluated on.
    """

    position: int
    seconds: float = 0.0
    whole: Metrics | None = None
    parts: dict[str, tuple[int, Metrics]] = field(default_factory=dict)
    expected: int = 0
    model: str = ""

    @property
    def complete(self) -> bool:
        """Whether all parts that are to come are there."""
        return len(self.parts) >= self.expected

    @property
    def metrics(self) -> dict[str, float]:
        """The whole's metrics and, for those that parts reported, their mean weighted by examples."""
        combined: dict[str, float] = dict(self.whole or {})
        if self.parts and self.complete:
            names = {name for _, metrics in self.parts.values() for name in metrics}
            for name in sorted(names):
                weighted = [(max(weight, 1), m[name]) for weight, m in self.parts.values() if name in m]
                combined[name] = sum(w * value for w, value in weighted) / sum(w for w, _ in weighted)
        return combined


@dataclass(slots=True)
class LearningCurve:
    """Points by position, ascending. The first report of a (position, part) counts; later ones are only compared with it.

    Attributes:
        points: By position.
        added: The position of each report that counted, in the order in which they came.
    """

    points: dict[int, CurveEntry] = field(default_factory=dict)
    added: list[int] = field(default_factory=list)

    def recorded(self, report: Report) -> Metrics | None:
        """The metrics already recorded for the report's position and part; None: it is new."""
        point = self.points.get(report.position)
        if point is None:
            return None
        if report.part:
            known = point.parts.get(report.part)
            return known[1] if known is not None else None
        return point.whole

    def evaluated(self, position: int, model: str) -> None:
        """A part was evaluated on a snapshot: parts that were on another one, and have not come together, are no beginning of it.

        A job that was thrown back and trained otherwise is another model at the same position.
        """
        point = self.points.get(position)
        if point is not None and not point.complete and point.model != model:
            point.parts.clear()

    def add(self, report: Report, parts: int = 0, model: str = "") -> CurveEntry:
        """Records a new report, one of so many parts (0: not known), and returns its point."""
        point = self.points.get(report.position)
        if point is None:
            late = next(reversed(self.points), -1) > report.position  # An evaluation of what training has left behind.
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
        """Points up to and including a position, ascending."""
        return [point for point in self.points.values() if point.position <= position]

    def back(self, position: int) -> Iterator[CurveEntry]:
        """Points from a position on down: who needs a few of the newest is spared the others."""
        return (point for point in reversed(self.points.values()) if point.position <= position)
