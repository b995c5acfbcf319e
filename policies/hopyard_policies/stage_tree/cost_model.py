"""Measured costs of training and of starting, loading and saving."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import CurvePoint


class CostModel:
    """The seconds of a unit of training for each trial, and the overhead of a run.

    Attributes:
        changes: A counter, increased when the time of a unit changes for any trial.
    """

    def __init__(self) -> None:
        self._units: dict[str, float] = {}
        self.changes = 0
        self._seconds = 0.0
        self._trained = 0
        self._beside = 0.0
        self._runs = 0

    def run_over(self, trial: str, began: float, ended: float, start: int, curve: Sequence[CurvePoint]) -> None:
        """Record the end of a run: when it began and ended, the position where it started, and the trial's curve."""
        seconds = self.trained(trial, start, curve)
        if seconds is not None:
            self._beside += max(ended - began - seconds, 0.0)
            self._runs += 1

    def trained(self, trial: str, start: int, curve: Sequence[CurvePoint]) -> float | None:
        """Record training of a trial beyond `start`; return its seconds, or None if the curve has no report there."""
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
        """Return the seconds of a unit of a trial (> 0): measured for it, else the mean of all trials; 1 before any measurement."""
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
        """Whether any run has ended, so that the overhead of a run is known."""
        return self._runs > 0

    @property
    def beside(self) -> float:
        """The mean overhead of a run in seconds: starting, loading and saving."""
        return self._beside / self._runs if self._runs else 0.0
