"""What training and saving take: measured while the trials train."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import CurvePoint


class CostModel:
    """Seconds of a unit of training by trial, and of all else that a run costs.

    Attributes:
        changes: Rises when the unit of any trial becomes another.
    """

    def __init__(self) -> None:
        self._units: dict[str, float] = {}
        self.changes = 0
        self._seconds = 0.0
        self._trained = 0
        self._beside = 0.0
        self._runs = 0

    def run_over(self, trial: str, began: float, ended: float, start: int, curve: Sequence[CurvePoint]) -> None:
        """A run has left its machine: when it began and ended, where it started, and the trial's curve."""
        seconds = self.trained(trial, start, curve)
        if seconds is not None:
            self._beside += max(ended - began - seconds, 0.0)
            self._runs += 1

    def trained(self, trial: str, start: int, curve: Sequence[CurvePoint]) -> float | None:
        """A trial was trained beyond a position. Answers the seconds that it took; None: its curve has nothing there."""
        points = [point for point in curve if point.position > start]
        if not points:
            return None
        seconds, units = sum(point.seconds for point in points), points[-1].position - start
        before = self._units.get(trial), self._mean
        self._seconds += seconds
        self._trained += units
        self._units[trial] = max(seconds / units, 0.0)
        self.changes += before != (self._units[trial], self._mean)
        return seconds

    def unit(self, trial: str) -> float:
        """Seconds of a unit of a trial, > 0: its own, else those of all; 1 while nothing is known."""
        found = self._units.get(trial)
        found = self._mean if found is None else found
        return found if found > 0 else 1e-9

    @property
    def _mean(self) -> float:
        return self._seconds / self._trained if self._trained else 1.0

    @property
    def known(self) -> bool:
        """Whether anything was measured yet."""
        return self._trained > 0

    @property
    def tells_costs(self) -> bool:
        """Whether any run has ended, so that it is known what changes cost."""
        return self._runs > 0

    @property
    def beside(self) -> float:
        """Seconds that a run costs beside its training: starting, loading, saving."""
        return self._beside / self._runs if self._runs else 0.0
