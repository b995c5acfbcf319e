"""What is known of a tuner's trials, and how good what they report is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from hopyard.policy import Cluster, CurvePoint, IterationFinish
from hopyard.policy.vocabulary import ApplicationStat, Call


class Progress(Protocol):
    """What is known of trials at a moment."""

    @property
    def moves(self) -> int:
        """Rises when what is known of any trial changes, but for what `Tuning.stir` is called for."""
        ...

    def moved(self, trial: str, since: int) -> bool:
        """Whether more may be known of a trial than when there were so many moves."""
        ...

    def reached(self, trial: str) -> tuple[int, bool]:
        """How far a trial is trained, by whomever, and whether there is nothing more to train."""
        ...

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """A trial's curve, at least as far as it is trained. Beyond its end there are reports of the same training only."""
        ...

    def saved(self, trial: str, position: int) -> str | None:
        """Whose job has a snapshot of a trial's state at a position (> 0); None: nobody's."""
        ...


def value(call: Call, cluster: Cluster) -> float:
    """How good what a call reports is; minus infinity: it reports nothing."""
    if not isinstance(call, ApplicationStat | IterationFinish):
        return -math.inf
    return cluster.experiment.rated(call.report.metrics.get(cluster.experiment.metric, math.nan))
