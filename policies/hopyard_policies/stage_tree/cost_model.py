"""Measured costs: the seconds of a unit of training, and the overhead of a run for starting, loading and saving."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import CurvePoint


class CostModel:
    """Estimates the seconds of a unit of training of each trial, and the overhead of a run, from ended runs.

    Attributes:
        changes: A counter, increased when the estimated time of a unit changes for any trial.
    """

    def __init__(self) -> None:
        self._units: dict[str, float] = {}
        self.changes = 0
        self._seconds = 0.0
        self._trained = 0
        self._beside = 0.0
        self._runs = 0

    def run_over(self, trial: str, began: float, ended: float, start: int, curve: Sequence[CurvePoint]) -> None:
        """Record the end of a run, to estimate unit times and overhead; a run without a report beyond `start` is ignored.

        Args:
            trial: The trial.
            began: The start time of the run, in seconds.
            ended: The end time of the run, on the same clock.
            start: The position where the run started.
            curve: The trial's learning curve.
        """
        seconds = self.trained(trial, start, curve)
        if seconds is not None:
            self._beside += max(ended - began - seconds, 0.0)
            self._runs += 1

    def trained(self, trial: str, start: int, curve: Sequence[CurvePoint]) -> float | None:
        """Record the training of a trial beyond a position.

        Args:
            trial: The trial.
            start: The position; only reports after it are used.
            curve: The trial's learning curve.

        Returns:
            The seconds of this training; None: the curve has no report after `start`.
        """
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
        """Return the seconds (> 0) of a unit of a trial: measured for it, else the mean of all trials; 1 before any measurement."""
        found = self._units.get(trial)
        found = self._mean if found is None else found
        return found if found > 0 else 1e-9

    @property
    def _mean(self) -> float:
        return self._seconds / self._trained if self._trained else 1.0

    @property
    def known(self) -> bool:
        """Whether the time of a unit has been measured for any trial."""
        return self._trained > 0

    @property
    def tells_costs(self) -> bool:
        """Whether any run has ended with a report, so that the overhead of a run is known."""
        return self._runs > 0

    @property
    def beside(self) -> float:
        """The mean overhead of a run in seconds, for starting, loading and saving; 0 while unknown."""
        return self._beside / self._runs if self._runs else 0.0
