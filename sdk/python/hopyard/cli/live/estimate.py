"""Estimates when an experiment ends, from the iterations that remain and the measured pace of training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SAMPLE_SECONDS: Final = 1.0
"""Minimum length in seconds of an interval over which the pace is measured."""

SMOOTHING_SECONDS: Final = 60.0
"""Time constant in seconds of the moving average of the pace."""

MOST_WEIGHT: Final = 0.2
"""Maximum weight of one interval in the moving average, for experiments whose iterations are longer than the time constant."""

LEAST_INTERVALS: Final = 3
"""Number of measured intervals from which there is an estimate."""

OVERDUE_SECONDS: Final = 10.0
"""Seconds after the estimated end from which there is no estimate until the next measurement."""


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The training that remains in an experiment.

    Attributes:
        iterations: Number of iterations of all jobs, including those that are not created yet.
        longest: Largest number of iterations of one job.
        running: Number of jobs that train now.
    """

    iterations: float
    longest: float
    running: int


class CompletionEstimate:
    """Estimates the end of an experiment from its remaining iterations and its pace.

    The rule:

    * The pace is the number of iterations per second of all jobs together. It is measured from report to report over intervals of
      at least one second, and averaged with an exponential moving average of 60 seconds. Until the average has data of 60 seconds
      it is the plain mean. Progress counts if it was observed: what jobs had trained before the view began does not.
    * At the end of each interval, the estimated end is set to the time of the report plus the larger of two durations: the remaining
      iterations divided by the pace, and those of the longest remaining job divided by the pace of one job (the pace divided by the
      average number of jobs that train).
    * Between reports, the estimated end does not move: the time left decreases by one second each second. With a constant pace it
      does not move at reports either.
    * There is no estimate before three intervals were measured, nor from 10 seconds after an estimated end that has passed.

    All times are in monotonic seconds.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._pace = 0.0
        self._running = 0.0
        self._intervals = 0
        self._measured = 0.0
        self._since: float | None = None
        self._trained = 0
        self._end: float | None = None

    def observe(self, job: str, position: int, now: float) -> bool:
        """Record the position of a job.

        The first position of a job counts as trained before. A lower position than before, after a job has lost progress, counts as
        no training; the iterations that it repeats count again.

        Returns:
            Whether an interval of at least one second has ended at `now`, so that `measure` must be called.
        """
        trained = position - self._positions.get(job, position)
        self._positions[job] = position
        if trained <= 0:
            return False
        if self._since is None:
            # The interval begins at a report, because the time since the report before it is not known.
            self._since = now
            return False
        self._trained += trained
        return now - self._since >= SAMPLE_SECONDS

    def measure(self, work: RemainingWork, now: float) -> None:
        """End the current interval at `now`, begin the next one, and update the estimate.

        Args:
            work: The training that remains at `now`.
            now: The time of a report for which `observe` has returned True.
        """
        if self._since is None or now <= self._since:
            return
        seconds = now - self._since
        self._measured += seconds
        weight = max(min(MOST_WEIGHT, 1 - math.exp(-seconds / SMOOTHING_SECONDS)), seconds / self._measured)
        self._pace += weight * (self._trained / seconds - self._pace)
        self._running += weight * (work.running - self._running)
        self._intervals += 1
        self._since, self._trained = now, 0
        alone = self._pace / max(1.0, self._running)
        self._end = now + max(work.iterations / self._pace, work.longest / alone)

    def interrupt(self) -> None:
        """Record that the experiment does not train now: the time until the next report is not measured, and the estimate ends."""
        self._since, self._trained, self._end = None, 0, None

    def left(self, now: float) -> float | None:
        """Return the estimated seconds from `now` until the experiment ends, at least 0; None: no estimate is possible."""
        if self._end is None or self._intervals < LEAST_INTERVALS or now - self._end > OVERDUE_SECONDS:
            return None
        return max(0.0, self._end - now)


def rounded(seconds: float) -> int:
    """Round an estimate up to a number of seconds that does not look more precise than it is. Larger inputs never give smaller results.

    Below one minute to multiples of 5 seconds (at least 5), below 10 minutes of 10 seconds, below one hour of one minute, else of 5
    minutes.
    """
    step = 5 if seconds <= 60 else 10 if seconds <= 600 else 60 if seconds <= 3600 else 300
    return max(5, math.ceil(seconds / step) * step)
