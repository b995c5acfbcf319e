"""The known progress of a tuner's trials, and the value of their reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from hopyard.policy import Cluster, CurvePoint, IterationFinish
from hopyard.policy.vocabulary import ApplicationStat, Call


class Progress(Protocol):
    """The progress of a tuner's trials at one moment, as the outer policy knows it."""

    @property
    def moves(self) -> int:
        """A counter that increases when the progress of any trial changes. `TunerState.mark_changed` does not increase it."""
        ...

    def moved(self, trial: str, since: int) -> bool:
        """Return whether a trial may have been trained further since the counter `moves` had the value `since`."""
        ...

    def reached(self, trial: str) -> tuple[int, bool]:
        """Return the position up to which a trial is trained, by any job (0: not at all), and whether its training is complete."""
        ...

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """Return a trial's curve, at least up to the reached position; empty before the first report.

        The curve may contain reports beyond the trial's maximum position, but no report of a training with other hyperparameter values.
        """
        ...

    def saved(self, trial: str, position: int) -> str | None:
        """Return the id of a job with a snapshot of the trial's state at a position (> 0); None: there is none."""
        ...


def value(call: Call, cluster: Cluster) -> float:
    """Return the metric value of the report in an up-call, so that larger is better.

    Args:
        call: The up-call.
        cluster: The view whose experiment gives the metric and its mode.

    Returns:
        The value; minus infinity if the up-call has no report, or the report no value of the metric.
    """
    if not isinstance(call, ApplicationStat | IterationFinish):
        return -math.inf
    return cluster.experiment.rated(call.report.metrics.get(cluster.experiment.metric, math.nan))
