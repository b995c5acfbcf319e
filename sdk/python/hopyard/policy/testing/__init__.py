"""A virtual-time cluster for the authors of policies: see `VirtualCluster`. Needs nothing but this SDK.

The suite that every policy passes is `hopyard.policy.conformance`; it drives policies on this cluster.
"""

from hopyard.policy.testing.history import HistoryEntry, difference, replay
from hopyard.policy.testing.view import IllegalCommand, UpCallMoment, UpCallView
from hopyard.policy.testing.virtual import SpinningError, StalledError, VirtualCluster
from hopyard.policy.testing.world import (
    Curve,
    Delays,
    Generator,
    RunLog,
    TrainingFailed,
    Unanswered,
    VirtualStep,
    counting,
    steady,
)

__all__ = [
    "Curve",
    "Delays",
    "Generator",
    "HistoryEntry",
    "IllegalCommand",
    "RunLog",
    "SpinningError",
    "StalledError",
    "TrainingFailed",
    "Unanswered",
    "UpCallMoment",
    "UpCallView",
    "VirtualCluster",
    "VirtualStep",
    "counting",
    "difference",
    "replay",
    "steady",
]
